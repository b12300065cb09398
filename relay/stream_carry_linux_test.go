package relay

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

func TestCarry(t *testing.T) {
	for _, c := range []struct {
		ab, ba int64
		chunk  int
		path   datapath.Path // of the directions that carry something
	}{
		{0, 0, 1, datapath.None},
		{1, 0, 1, datapath.Copy},
		{0, 1, 1, datapath.Copy},
		{3000, 3000, 1, datapath.Copy},
		{200_000, 100_000, 1000, datapath.Copy},
		{5 << 20, 5<<20 + 1, 1 << 20, datapath.Splice},
	} {
		t.Run(fmt.Sprintf("ab=%d/ba=%d/chunk=%d", c.ab, c.ba, c.chunk), func(t *testing.T) {
			eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
				play(t, a, b,
					testnet.Script{Send: c.ab, SendSeed: 1, SendChunk: c.chunk, Recv: c.ba, RecvSeed: 2},
					testnet.Script{Send: c.ba, SendSeed: 2, SendChunk: c.chunk, Recv: c.ab, RecvSeed: 1})
				rec := r.expect(CauseEnd)
				if rec.Up.Read != c.ab || rec.Up.Written != c.ab || rec.Down.Read != c.ba || rec.Down.Written != c.ba {
					t.Errorf("AB %+v, BA %+v", rec.Up, rec.Down)
				}
				for _, tr := range []Transfer{rec.Up, rec.Down} {
					switch {
					case tr.Read == 0:
						if tr.Path != datapath.None {
							t.Errorf("path of nothing: %v", tr.Path)
						}
					case c.chunk < 1<<16:
						// Many small writes may be one big read, if the relay is slow.
						if tr.Path == datapath.Copy && tr.Why != datapath.WhySmall {
							t.Errorf("path %v, %v", tr.Path, tr.Why)
						}
					case tr.Path != c.path || tr.Spliced == 0:
						t.Errorf("path %v, %v, %d bytes spliced", tr.Path, tr.Why, tr.Spliced)
					}
				}
			})
		})
	}
}

// Small messages one at a time never meet a pipe.
func TestPingPongIsCopied(t *testing.T) {
	eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
		for range 200 {
			say(t, a, b, "a small question")
			say(t, b, a, "and its answer")
		}
		a.Close()
		b.Close()
		rec := r.record()
		if rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhySmall || rec.Down.Path != datapath.Copy {
			t.Errorf("AB %+v, BA %+v", rec.Up, rec.Down)
		}
		if n := r.k.Count(testkernel.SpliceIn) + r.k.Count(testkernel.Pipe); n != 0 {
			t.Errorf("spliced:%s", r.k.Counts())
		}
		// One read and one write a message, and hardly more.
		if recv := r.k.Count(testkernel.Recv); recv > 900 {
			t.Errorf("400 messages took%s", r.k.Counts())
		}
	})
}

func TestNeverSplice(t *testing.T) {
	eachPair(t, Config{MaxPipes: -1}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
		play(t, a, b, testnet.Script{Send: 4 << 20, SendChunk: 1 << 20}, testnet.Script{Recv: 4 << 20})
		if rec := r.expect(CauseEnd); rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhyOff {
			t.Errorf("%+v", rec.Up)
		}
		if n := r.k.Count(testkernel.SpliceIn) + r.k.Count(testkernel.Pipe); n != 0 {
			t.Errorf("spliced:%s", r.k.Counts())
		}
	})
}

// An end goes through after the last byte, and the other direction goes on.
func TestHalfClose(t *testing.T) {
	for _, side := range []string{"client first", "upstream first"} {
		t.Run(side, func(t *testing.T) {
			eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
				if side == "upstream first" {
					a, b = b, a
				}
				say(t, a, b, "my last words")
				closeWrite(t, a)
				wantEnd(t, b)
				for range 3 {
					say(t, b, a, "mine are to come")
				}
				select {
				case rec := <-r.records:
					t.Fatalf("the flow has ended: %+v", rec)
				default:
				}
				closeWrite(t, b)
				wantEnd(t, a)
				r.expect(CauseEnd)
			})
		})
	}
}

// arrived waits until n bytes wait in the socket of c. Bytes that nobody reads make the close of a Unix socket a reset.
func arrived(t *testing.T, c net.Conn, n int) {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "bytes that nobody reads", func() bool {
		got := 0
		if err := raw.Control(func(fd uintptr) { got, _ = (sys.Linux{}).ReadQueued(int(fd)) }); err != nil {
			t.Fatal(err)
		}
		return got == n
	})
}

// A reset of one side is a reset of the other, not an end, while a flow is
// idle, in the middle of bulk, and with bytes held for a slow reader.
func TestReset(t *testing.T) {
	for _, side := range []string{"client", "upstream"} {
		for _, when := range []string{"idle", "bulk", "held"} {
			t.Run("by="+side+"/when="+when, func(t *testing.T) {
				eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
					cause := CauseClientReset
					if side == "upstream" {
						a, b, cause = b, a, CauseUpstreamReset
					}
					say(t, a, b, "hello")
					switch when {
					case "bulk":
						go testnet.Play(b, testnet.Script{Discard: true})
						go a.Write(make([]byte, 8<<20))
						testwait.Until(t, "bulk", func() bool { s := r.e.Stats(); total := s.Total(); return total.BytesWritten > 1<<20 })
						if _, tcp := a.(*net.TCPConn); !tcp {
							// bytes that nobody reads make a Unix socket's close a reset
							b.Write([]byte("x"))
							arrived(t, a, 1)
						}
						reset(t, a)
					case "held":
						r.fill(t, a) // nobody reads
						fallthrough
					default:
						b.Write([]byte("never read"))
						arrived(t, a, len("never read"))
						reset(t, a)
						wantReset(t, b)
					}
					rec := r.expect(cause)
					if rec.Err == nil {
						t.Error("no error in the record")
					}
				})
			})
		}
	}
}

// A reset is noticed while its side is not read from, because the other one has
// stopped reading: nobody waits for that one to go on. All flows at once.
func TestResetWhileStalled(t *testing.T) {
	r := newRig(t, Config{})
	var sides [][2]net.Conn // that is reset, and that has stopped
	for _, p := range pairs {
		for _, side := range []string{"client", "upstream"} {
			for _, ended := range []bool{false, true} { // what is held has the end of the stream behind it
				a, b := r.flow(p[0], p[1], ListenConfig{})
				if side == "upstream" {
					a, b = b, a
				}
				say(t, a, b, "hello")
				r.fill(t, a)
				b.Write([]byte("never read"))
				arrived(t, a, len("never read"))
				if ended {
					closeWrite(t, a)
				}
				sides = append(sides, [2]net.Conn{a, b})
			}
		}
	}
	for _, s := range sides {
		reset(t, s[0])
	}
	n := make(map[Cause]int)
	for range sides {
		rec := r.record()
		n[rec.Cause]++
		if rec.Err == nil || rec.Up.BytesDropped()+rec.Down.BytesDropped() == 0 {
			t.Errorf("%v, %v, AB %+v, BA %+v", rec.Cause, rec.Err, rec.Up, rec.Down)
		}
	}
	if n[CauseClientReset] != len(sides)/2 || n[CauseUpstreamReset] != len(sides)/2 {
		t.Errorf("%d flows: %v", len(sides), n)
	}
	for _, s := range sides {
		wantReset(t, s[1])
	}
}

// A side that has ended may be reset all the same, and the other one, which
// waits to answer, learns of it.
func TestResetAfterHalfClose(t *testing.T) {
	for _, side := range []string{"client", "upstream"} {
		t.Run("by="+side, func(t *testing.T) {
			eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
				cause := CauseClientReset
				if side == "upstream" {
					a, b, cause = b, a, CauseUpstreamReset
				}
				r.k.StopClock()
				say(t, b, a, "first part")
				io.WriteString(b, "never read")
				closeWrite(t, a)
				wantEnd(t, b)
				arrived(t, a, len("never read"))
				reset(t, a)
				r.expect(cause)
			})
		})
	}
}

// Who writes and closes at once, before there is an upstream, is heard.
func TestFireAndForget(t *testing.T) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, p[1])
			l := r.listen(p[0], ListenConfig{}, s.addr)
			for i := range 50 {
				text := fmt.Sprintf("message %d", i)
				a := dial(t, l)
				io.WriteString(a, text)
				a.Close()
				b := s.accept(t)
				hear(t, b, text)
				wantEnd(t, b)
				b.Close()
				if rec := r.expect(CauseEnd); rec.Up.Written != int64(len(text)) {
					t.Errorf("%+v", rec)
				}
			}
		})
	}
}

// A reader that stops stops the writer: what is in flight is bounded, and all arrives once the reader goes on. TestSimulateRest shows
// that nothing is tried meanwhile.
func TestSlowReader(t *testing.T) {
	eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
		const n = 96 << 20
		done := make(chan testnet.Report, 1)
		go func() { done <- testnet.Play(a, testnet.Script{Send: n, SendSeed: 1, SendChunk: 1 << 20}) }()
		var before stats.Loop
		still := 0
		testwait.Until(t, "the writer stands still", func() bool {
			s := r.e.Stats()
			now := s.Total()
			if still++; now.BytesRead != before.BytesRead || now.BytesRead == 0 {
				still = 0
			}
			before = now
			return still > 40 && now.BytesRead > now.BytesWritten
		})
		if held := before.BytesRead - before.BytesWritten; held <= 0 || held > 1<<20 {
			t.Errorf("%d bytes held for a slow reader", held)
		}
		if before.BytesRead > n/2 {
			t.Fatalf("%d of %d bytes are in flight", before.BytesRead, n)
		}
		if s := r.e.Stats(); s.PipesLeased > 1 {
			t.Errorf("%d pipes on lease for one direction", s.PipesLeased)
		}
		if rep := testnet.Play(b, testnet.Script{Recv: n, RecvSeed: 1}); rep.Err != "" {
			t.Error(rep.Err)
		}
		if rep := <-done; rep.Err != "" {
			t.Error(rep.Err)
		}
		r.expect(CauseEnd)
	})
}

// While a TCP source streams the kernel wakes the loop for much only; what
// comes below that mark, and nothing after it, arrives all the same.
func TestTailBelowLowat(t *testing.T) {
	for _, upstream := range []string{"tcp4", "unix"} {
		t.Run("upstream="+upstream, func(t *testing.T) {
			r := newRig(t, Config{})
			a, b := r.flow("tcp4", upstream, ListenConfig{})
			p := testnet.NewPattern(1)
			var off int64
			send := func(n int) {
				t.Helper()
				go a.Write(p.At(off, n))
				buf := make([]byte, n)
				b.SetReadDeadline(time.Now().Add(patience))
				if m, err := io.ReadFull(b, buf); err != nil {
					t.Fatalf("%d bytes of a tail of %d arrived: %v", m, n, err)
				}
				if err := p.Check(off, buf); err != nil {
					t.Fatal(err)
				}
				off += int64(n)
			}
			for i := range 5 {
				marks := r.k.Count(testkernel.RcvLowat)
				// Where the loop is slow, a turn moves several pieces, and counts as a big one.
				for start := off; r.k.Count(testkernel.RcvLowat) == marks; {
					if off-start > 1<<30 {
						t.Fatalf("no mark was set:%s", r.k.Counts())
					}
					send(32 << 10)
				}
				for range 4 {
					send(1 << 20)
				}
				send(1 + i*7997)
				send(1)
			}
			// The end is seen below the mark too.
			send(1 << 20)
			send(1 << 20)
			closeWrite(t, a)
			wantEnd(t, b)
			b.Close()
			r.expect(CauseEnd)
		})
	}
}

func TestIPv6(t *testing.T) {
	testnet.Listen(t, "tcp6").Close()
	r := newRig(t, Config{})
	a, b := r.flow("tcp6", "tcp6", ListenConfig{})
	play(t, a, b, testnet.Script{Send: 1000, Recv: 0}, testnet.Script{Recv: 1000})
	rec := r.expect(CauseEnd)
	if !rec.Client.AddrPort.Addr().Is6() || !rec.Upstream.AddrPort.Addr().Is6() {
		t.Errorf("from %v to %v", rec.Client, rec.Upstream)
	}
}

// Many flows at once, each with its own bytes.
func TestManyFlows(t *testing.T) {
	r := newRig(t, Config{})
	up := echoServer(t, "tcp4")
	l := r.listen("unix", ListenConfig{}, up)
	const flows = 60
	reports := make(chan testnet.Report, flows)
	for i := range flows {
		c := dial(t, l)
		go func() {
			n := int64(i * 2000)
			reports <- testnet.Play(c, testnet.Script{Send: n, SendSeed: uint64(i), Recv: n, RecvSeed: uint64(i), SendChunk: 10_000})
		}()
	}
	for range flows {
		if rep := <-reports; rep.Err != "" {
			t.Errorf("%+v", rep)
		}
	}
	for range flows {
		r.expect(CauseEnd)
	}
}

// Peers in processes of their own: one that is killed is an end or a reset
// like any other, and what it had sent is accounted for.
func TestPeersInProcesses(t *testing.T) {
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			up, _ := testnet.StartServer(t, p[1], testnet.Script{Echo: true})
			l := r.listen(p[0], ListenConfig{}, fromNet(up))
			const n = 3<<20 + 1
			peer := testnet.StartDialer(t, toNet(l.Addr()), testnet.Script{Send: n, SendSeed: 1, SendChunk: 50_000, Recv: n, RecvSeed: 1})
			if rep := peer.MustWait(t); rep.Received != n {
				t.Errorf("%+v", rep)
			}
			if rec := r.expect(CauseEnd); rec.Up.Written != n || rec.Down.Written != n {
				t.Errorf("%+v", rec)
			}
			endless := testnet.StartDialer(t, toNet(l.Addr()), testnet.Script{Send: -1, Recv: -1})
			testwait.Until(t, "bulk", func() bool { s := r.e.Stats(); sum := s.Total(); return sum.BytesWritten > 8<<20 })
			endless.Stop()
			if rec := r.record(); rec.Cause != CauseClientReset && rec.Cause != CauseEnd {
				t.Errorf("%+v", rec)
			}
		})
	}
}
