package splice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestCopy(t *testing.T) {
	sizes := []struct{ total, chunk int }{
		{0, 1}, {1, 1}, {1000, 1}, {100_000, 1448}, {1 << 20, 4096}, {5 << 20, 64<<10 - 1}, {5 << 20, 1 << 20},
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("total=%d/chunk=%d", size.total, size.chunk), func(t *testing.T) {
			eachLine(t, lines, func(t *testing.T, r *rig) {
				r.feed(t, size.total, size.chunk)
				r.start(t)
				r.read(t, size.total)
				n, err := r.wait(t)
				if n != int64(size.total) || err != nil {
					t.Fatalf("Copy = %d, %v", n, err)
				}
				got := r.live.Up()
				if got.Read != n || got.Written != n {
					t.Errorf("%+v after %d bytes", got, n)
				}
				switch {
				case size.total == 0 && got.Path != datapath.None:
					t.Errorf("path %v for no byte", got.Path)
				case size.total >= 5<<20:
					r.path(t, got)
				case size.total > 0 && size.total <= 1000 && (got.Path != datapath.Copy || got.Spliced != 0):
					t.Errorf("%+v: want it copied", got)
				}
				r.dst.Close()
				if err := r.drain(t); err != nil || r.received != n {
					t.Errorf("%d bytes arrived, then %v", r.received, err)
				}
			})
		})
	}
}

// TestPeersInProcesses has both far ends in processes of their own: nothing
// that this process's netpoller does for them helps.
func TestPeersInProcesses(t *testing.T) {
	const total = 5 << 20
	for _, from := range []string{"tcp4", "unix"} {
		for _, to := range []string{"tcp6", "abstract"} {
			t.Run(from+"-to-"+to, func(t *testing.T) {
				src, sender := testnet.Start(t, from, testnet.Script{Send: total, SendSeed: 3, SendChunk: 200_000})
				dst, receiver := testnet.Start(t, to, testnet.Script{Recv: total, RecvSeed: 3})
				r, err := Relay(src, dst)
				if err != nil || r.Outcome != OutcomeEnd {
					t.Fatalf("Relay = %+v, %v", r, err)
				}
				if r.Up.Read != total || r.Up.Written != total || r.Down.Read != 0 {
					t.Errorf("%+v", r)
				}
				line{kind{socket: true}, kind{socket: true}}.path(t, r.Up)
				sender.MustWait(t)
				receiver.MustWait(t)
			})
		}
	}
}

func TestNoSplice(t *testing.T) {
	eachLine(t, lines, func(t *testing.T, r *rig) {
		r.cfg.NoSplice = true
		const total = 2 << 20
		r.feed(t, total, 256<<10)
		r.start(t)
		r.read(t, total)
		if n, err := r.wait(t); n != total || err != nil {
			t.Fatalf("Copy = %d, %v", n, err)
		}
		want := datapath.WhyNotSocket
		if r.fast() {
			want = datapath.WhyOff
		}
		if got := r.live.Up(); got.Path != datapath.Copy || got.Spliced != 0 || runtime.GOOS == "linux" && got.Why != want {
			t.Errorf("%+v, want a copy because %v", got, want)
		}
	})
}

// TestNoPipeLeft lets others hold all the pipes.
func TestNoPipeLeft(t *testing.T) {
	giveBack := takePipes()
	defer giveBack()
	before := leased()
	for _, l := range lines[:4] {
		t.Run(l.String(), func(t *testing.T) {
			r := newRig(t, l)
			const total = 5 << 20
			r.feed(t, total, 256<<10)
			r.start(t)
			r.read(t, total)
			if n, err := r.wait(t); n != total || err != nil {
				t.Fatalf("Copy = %d, %v", n, err)
			}
			if got := r.live.Up(); got.Path != datapath.Copy || runtime.GOOS == "linux" && got.Why != datapath.WhyPipes {
				t.Errorf("%+v, want a copy because %v", got, datapath.WhyPipes)
			}
			if now := leased(); now != before {
				t.Errorf("%d pipes on lease, want %d", now, before)
			}
		})
	}
}

// TestReaderStops: what is read from src then is bounded, and all of it arrives
// when the reader goes on. Then nothing moves, and no pipe is held.
func TestReaderStops(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		before := heap()
		r.push(t)
		grown := heap() - before
		if got := r.live.Up(); got.Read-got.Written > 4<<20 {
			t.Errorf("%d bytes held", got.Read-got.Written)
		} else if r.fast() && leased() != 1 {
			t.Errorf("%d pipes on lease while one holds bytes", leased())
		}
		if grown > 1<<20 {
			t.Errorf("%d bytes of memory for a reader who does not read", grown)
		}
		r.read(t, int(r.sent-r.received))
		testwait.Until(t, "all is counted", func() bool { return r.live.Up().Written == r.sent })
		testwait.Until(t, "no pipe is on lease", func() bool { return leased() == 0 })
		r.write(t, 1)
		r.read(t, 1)
		endWriting(r.from)
		if n, err := r.wait(t); n != r.sent || err != nil {
			t.Errorf("Copy = %d, %v, want %d", n, err, r.sent)
		}
		r.path(t, r.live.Up())
	})
}

// heap is the memory in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestEndBehindPipe: src ends while the last bytes wait for a slow reader.
func TestEndBehindPipe(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.fillUp(t)
		endWriting(r.from)
		time.Sleep(10 * time.Millisecond)
		pipes := leased()
		switch got := r.live.Up(); {
		case got.Written == r.sent:
			t.Log("dst has found room for the last bytes meanwhile")
		case r.fast() && pipes != 1:
			t.Errorf("%d pipes on lease, want the one with the last bytes", pipes)
		}
		r.read(t, int(r.sent-r.received))
		if n, err := r.wait(t); n != r.sent || err != nil {
			t.Errorf("Copy = %d, %v, want %d", n, err, r.sent)
		}
		r.dst.Close()
		if err := r.drain(t); err != nil || r.received != r.sent {
			t.Errorf("%d bytes arrived of %d, then %v", r.received, r.sent, err)
		}
		r.path(t, r.live.Up())
	})
}

func TestReadDeadline(t *testing.T) {
	eachLine(t, lines, func(t *testing.T, r *rig) {
		const total = 30_000
		r.start(t)
		for range 10 {
			r.write(t, total/10)
			r.read(t, total/10)
		}
		r.src.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := r.wait(t)
		if n != total || !errors.Is(err, os.ErrDeadlineExceeded) || lost(err) != 0 {
			t.Fatalf("Copy = %d, %v", n, err)
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v is not a timeout", err)
		}
		// The connection is as good as before.
		r.src.SetReadDeadline(time.Time{})
		r.start(t)
		r.write(t, 10)
		r.read(t, 10)
		endWriting(r.from)
		if n, err := r.wait(t); n != 10 || err != nil {
			t.Errorf("second Copy = %d, %v", n, err)
		}
	})
}

// TestWriteDeadline: the error says how many bytes are lost, exactly: the
// reader gets all before them, and src goes on after them.
func TestWriteDeadline(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		if r.line.dst.name == secure.name {
			t.Skip("a TLS connection that a deadline interrupts is broken, and its count a guess: crypto/tls, Conn.SetWriteDeadline")
		}
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.push(t)
		r.dst.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := r.wait(t)
		if !errors.Is(err, os.ErrDeadlineExceeded) || lost(err) <= 0 {
			t.Fatalf("Copy = %d, %v: want a deadline, and bytes lost", n, err)
		}
		if !strings.Contains(err.Error(), "not delivered") {
			t.Errorf("%q does not tell of the loss", err)
		}
		if got := r.live.Up(); got.Written != n || got.Read-got.Written != lost(err) {
			t.Errorf("%+v, but Copy = %d, %v", got, n, err)
		}
		r.dst.Close()
		if err := r.drain(t); err != nil || r.received != n {
			t.Errorf("%d bytes arrived, then %v; Copy counted %d", r.received, err, n)
		}
		endWriting(r.from)
		rest, err := io.ReadAll(r.src)
		if err != nil {
			t.Fatal(err)
		}
		if err := pattern().Check(n+lost(r.err), rest); err != nil {
			t.Errorf("src goes on elsewhere: %v", err)
		}
		if all := n + lost(r.err) + int64(len(rest)); all != r.sent {
			t.Errorf("%d bytes accounted for, %d were sent", all, r.sent)
		}
	})
}

func TestCloseWhileIdle(t *testing.T) {
	eachLine(t, lines, func(t *testing.T, r *rig) {
		r.start(t)
		r.write(t, 1000)
		r.read(t, 1000)
		r.src.Close()
		if n, err := r.wait(t); n != 1000 || class(err) != "closed" || lost(err) != 0 {
			t.Errorf("Copy = %d, %v", n, err)
		}
	})
}

// TestCloseSource: what was read before still arrives.
func TestCloseSource(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.push(t)
		r.src.Close()
		go func() {
			<-r.done
			r.dst.Close()
		}()
		if err := r.drain(t); err != nil {
			t.Errorf("read at %d: %v", r.received, err)
		}
		n, err := r.wait(t)
		if class(err) != "closed" || lost(err) != 0 || n != r.live.Up().Read || n != r.received {
			t.Errorf("Copy = %d, %v; %d bytes arrived, %+v", n, err, r.received, r.live.Up())
		}
	})
}

func TestCloseDestination(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.push(t)
		r.dst.Close()
		n, err := r.wait(t)
		if class(err) != "closed" || lost(err) == 0 || n+lost(err) != r.live.Up().Read {
			t.Errorf("Copy = %d, %v, %+v", n, err, r.live.Up())
		}
		if r.line.dst.name == secure.name {
			return // its last record is cut
		}
		if err := r.drain(t); err != nil || r.received != n {
			t.Errorf("%d bytes arrived, then %v; Copy counted %d", r.received, err, n)
		}
	})
}

func TestSourceResets(t *testing.T) {
	eachLine(t, lines, func(t *testing.T, r *rig) {
		if !r.line.src.canReset() {
			t.Skip("a reset of its far end cannot be made")
		}
		r.start(t)
		r.write(t, 1000)
		r.read(t, 1000)
		unread(t, r.src)
		reset(r.from)
		n, err := r.wait(t)
		if n != 1000 || class(err) != "reset" || lost(err) != 0 {
			t.Errorf("Copy = %d, %v", n, err)
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "read" && op.Op != "raw-read" {
			t.Errorf("%v: want package net's error of a read", err)
		}
	})
}

func TestDestinationResets(t *testing.T) {
	eachLine(t, stalls, func(t *testing.T, r *rig) {
		if !r.line.dst.canReset() {
			t.Skip("a reset of its far end cannot be made")
		}
		r.shrink()
		r.start(t)
		r.bulk(t, 1<<20)
		r.push(t)
		reset(r.to)
		n, err := r.wait(t)
		if class(err) != "reset" || lost(err) == 0 || n+lost(err) != r.live.Up().Read {
			t.Errorf("Copy = %d, %v, %+v", n, err, r.live.Up())
		}
	})
}

// TestEcho copies a connection to itself.
func TestEcho(t *testing.T) {
	for _, k := range []kind{tcp, unix, wrapped, hidden} {
		t.Run(k.name, func(t *testing.T) {
			near, far := k.open(t)
			r := &rig{from: far, src: near, dst: near, to: far}
			r.start(t)
			const total = 3 << 20
			r.feed(t, total, 256<<10)
			r.read(t, total)
			if n, err := r.wait(t); n != total || err != nil {
				t.Errorf("Copy = %d, %v", n, err)
			}
		})
	}
}

func TestLive(t *testing.T) {
	eachLine(t, lines, func(t *testing.T, r *rig) {
		r.start(t)
		for range 20 {
			r.write(t, 5000)
			r.read(t, 5000)
			testwait.Until(t, "Live has counted", func() bool {
				got := r.live.Up()
				if got.Written > got.Read || got.Spliced > got.Written {
					t.Fatalf("%+v cannot be", got)
				}
				return got.Written == r.sent && got.Read == r.sent
			})
		}
		if got := r.live.Down(); got != (Transfer{}) {
			t.Errorf("Copy has a second direction: %+v", got)
		}
		endWriting(r.from)
		r.wait(t)
		// The next Copy with the same Live starts from nothing.
		before := r.live.Up()
		r2 := newRig(t, r.line)
		r2.counted = &r.live
		r2.start(t)
		testwait.Until(t, "Live is reset", func() bool { return r.live.Up().Read < before.Read })
	})
}
