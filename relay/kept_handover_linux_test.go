package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// All flows go on in the next process after a planned change, also those that are not settled.
func TestHandOver(t *testing.T) {
	for _, p := range pairs {
		t.Run(p[0]+"-"+p[1], func(t *testing.T) {
			k := newKeptTable(t)
			upstream := echoServer(t, p[1])
			o := keptOrder{Loops: 2, After: patience, Listen: []string{keptPlace(t, p[0])}, Upstream: upstream.String()}
			proc := k.start(o)
			o.Listen = proc.urls()
			var all []*flowConn
			for i := range 50 {
				c := &flowConn{testnet.Dial(t, toNet(proc.addrs[0])), fmt.Sprintf("flow %d", i)}
				say(t, c, c, c.name)
				all = append(all, c)
			}
			for range 3 {
				proc.ask("handover")
				k.settled(len(all))
				late := &flowConn{testnet.Dial(t, toNet(proc.addrs[0])), "late"}
				proc.kill()
				proc = k.start(o)
				if r := proc.Restored; r.Flows != len(all) || r.TotalLost() != 0 {
					t.Fatalf("%+v", r)
				}
				say(t, late, late, late.name)
				late.Close()
				for _, c := range all {
					say(t, c, c, c.name)
				}
			}
			for _, c := range all {
				c.Close()
			}
			k.settled(0)
			for range all {
				select {
				case rec := <-proc.records:
					if rec.Cause != CauseEnd {
						t.Errorf("%+v", rec)
					}
				case <-proc.gone:
					t.Fatal("the child is gone")
				}
			}
		})
	}
}

// flowConn is a connection that tells its flow by what it says.
type flowConn struct {
	net.Conn
	name string
}

// A client that is still sniffed, and one whose upstream does not answer yet, begin again at their stage.
func TestHandOverEarly(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			upstream := echoServer(t, "tcp4")
			o := keptOrder{Loops: 2, After: patience, Listen: []string{keptPlace(t, network)}, Upstream: upstream.String(), Sniff: 9}
			proc := k.start(o)
			o.Listen = proc.urls()
			c := testnet.Dial(t, toNet(proc.addrs[0]))
			for _, part := range []string{"one", "two", "six"} {
				if _, err := c.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
				testwait.Until(t, "the client is sniffed", func() bool { return proc.ask("stats").Stats.Flows() == 1 })
				proc.ask("handover")
				proc.kill()
				proc = k.start(o)
				if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 {
					t.Fatalf("%+v", r)
				}
			}
			hear(t, c, "onetwosix")
			say(t, c, c, "more")
			c.Close()
			k.settled(0)
			if rec := <-proc.records; rec.Cause != CauseEnd || rec.Up.Read != 13 || rec.Down.Written != 13 {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A flow goes on whose upstream has sent its answer, has ended well and is gone, while the client takes its
// time. The upstream's socket is closed then, as after a reset, which must stay one.
func TestHandOverAfterUpstreamIsDone(t *testing.T) {
	s := newServer(t, "tcp4")
	k := newKeptTable(t)
	// The client's side takes less than the answer, and what is left fits into the upstream's socket.
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String(), Socket: SocketOptions{SendBuffer: 4 << 10}}
	proc := k.start(o)
	o.Listen = proc.urls()
	a := smallClient(t, toNet(proc.addrs[0]).String())
	b := s.accept(t)
	say(t, a, b, "ask")
	closeWrite(t, a)
	expectEOF(t, b)
	answer := strings.Repeat("answer ", 8000)
	io.WriteString(b, answer)
	closeWrite(t, b)
	rc, err := b.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "all of the answer is at the relay", func() (done bool) {
		rc.Control(func(fd uintptr) {
			c, e := sys.Linux{}.TCPCounts(int(fd))
			done = e == 0 && c.State == sys.TCPClose
		})
		return done
	})
	for range 2 {
		proc.ask("handover")
		proc.kill()
		proc = k.start(o)
		if r := proc.Restored; r.Flows != 1 || r.TotalLost() != 0 {
			t.Fatalf("%+v", r)
		}
	}
	hear(t, a, answer)
	expectEOF(t, a)
	k.settled(0)
	if rec := <-proc.records; rec.Cause != CauseEnd || rec.Down.Written != int64(len(answer)) {
		t.Errorf("%+v", rec)
	}
}

// A flow whose upstream has been reset, and that still delivers what came before, goes on with that, and ends for
// that cause.
func TestHandOverAfterReset(t *testing.T) {
	s := newServer(t, "tcp4")
	k := newKeptTable(t)
	o := keptOrder{Loops: 1, After: patience, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String(), Socket: SocketOptions{SendBuffer: 4 << 10}}
	proc := k.start(o)
	o.Listen = proc.urls()
	a := smallClient(t, toNet(proc.addrs[0]).String())
	b := s.accept(t)
	say(t, a, b, "ask")
	io.WriteString(b, strings.Repeat("answer ", 20_000))
	testwait.Until(t, "the client's side is full", func() bool {
		down := proc.ask("stats").Stats.Total()
		return down.BytesRead > down.BytesWritten
	})
	reset(t, b)
	testwait.Until(t, "the reset is seen", func() bool {
		causes := proc.ask("causes").Addrs
		return len(causes) == 0 || causes[0] != CauseNone.String()
	})
	proc.ask("handover") // within the second that the client has, unless the machine is busy
	first := proc
	proc.kill()
	proc = k.start(o)
	if r := proc.Restored; r.TotalLost() != 0 {
		t.Errorf("%+v", r)
	}
	var rec keptRecord
	select {
	case rec = <-first.records:
	case rec = <-proc.records:
	case <-time.After(patience):
		t.Fatal("there is no record")
	}
	if rec.Cause != CauseUpstreamReset {
		t.Errorf("%+v", rec)
	}
	k.settled(0)
}

// smallClient connects with a small receive buffer.
func smallClient(t *testing.T, addr string) net.Conn {
	t.Helper()
	dial := net.Dialer{Timeout: patience, Control: func(_, _ string, rc syscall.RawConn) error {
		return rc.Control(func(fd uintptr) { sys.SetBuffers(sys.Linux{}, int(fd), 4<<10, 0) })
	}}
	c, err := dial.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A pair that is given to Relay just before the engine hands over, and that its loop sees last of all, ends with
// a record like others without a name.
func TestHandOverLatePair(t *testing.T) {
	a, b := newServer(t, "tcp4"), newServer(t, "unix")
	k := newKeptTable(t)
	proc := k.start(keptOrder{Loops: 1, Pair: a.addr.String(), Upstream: b.addr.String(), LatePair: true})
	proc.ask("handover, late pair")
	wantReset(t, a.accept(t))
	expectEOF(t, b.accept(t))
	proc.kill()
	select {
	case rec := <-proc.records:
		if rec.Cause != CauseCrashed {
			t.Errorf("%+v", rec)
		}
	default:
		t.Error("there is no record")
	}
}

// handOverLatePair hands over, and gives a pair to Relay meanwhile.
func handOverLatePair(e *Engine, a, b string, done func(*Record)) error {
	s := e.streams.all[0]
	x := e.streams.adoptions.Get()
	*x = adoption{tcp: [2]bool{true, false}, config: PairConfig{Done: done}}
	for i, url := range []string{a, b} {
		at, err := ParseAddr(url)
		if err != nil {
			return err
		}
		c, err := net.Dial(toNet(at).Network(), toNet(at).String())
		if err != nil {
			return err
		}
		if x.fd[i], err = e.dupConn(c); err != nil {
			return err
		}
		c.Close()
	}
	s.loop.Reserve() // as Relay does first
	s.load.Add(1)
	result := make(chan error, 1)
	go func() { result <- e.HandOver(context.Background()) }()
	testwait.For(func() bool {
		open := s.loop.Reserve()
		if open {
			s.loop.PostReserved(nil)
		}
		return !open
	})
	s.loop.PostReserved(&loop.Request{To: s, Arg: x})
	return <-result
}
