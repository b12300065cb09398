package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/stats"
)

// A client gets replies from every hook in their order, and then what comes from the upstream, whatever pieces the kernel
// takes. None of them counts.
func TestReplyInEachHook(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		for _, short := range []bool{false, true} {
			t.Run(fmt.Sprintf("client=%s/short=%v", network, short), func(t *testing.T) {
				r := newRig(t, Config{})
				if short {
					r.k.Short(testkernel.Send, 1, -1)
					r.k.Fail(testkernel.Send, sys.EINTR, 3)
				}
				s := newServer(t, "tcp4")
				reply := func(f *Flow, text string) {
					if err := f.Reply([]byte(text)); err != nil {
						t.Errorf("%s: %v", text, err)
					}
				}
				bad := Addr{Network: Unix, Path: "/nowhere/at/all"}
				a := dial(t, r.listen(network, ListenConfig{Hooks: Hooks{
					Admit: func(f *Flow) Cause {
						reply(f, "Admit ")
						f.StartSniff(100, time.Minute)
						return CauseNone
					},
					Sniff: func(f *Flow, b []byte, _ bool) (int, SniffNext) {
						reply(f, "Sniff ")
						return 0, SniffDone
					},
					Upstream: func(f *Flow, attempt int) *Addr {
						reply(f, "Upstream ")
						return []*Addr{&bad, s.addr}[attempt]
					},
					Connected: func(f *Flow, _ *Addr, _ time.Duration, err error) {
						if err != nil {
							reply(f, "not connected ")
							return
						}
						reply(f, "Connected ")
						f.Preface([]byte(question))
						f.Expect([]byte(yes))
						f.Originate(clientTLS())
					},
					Secured: func(f *Flow, _ Side, _ *tls.ConnectionState, _ time.Duration, _ error) Cause {
						reply(f, "Secured ")
						return CauseNone
					},
				}}))
				hear(t, a, "Admit ")
				io.WriteString(a, "hello")
				b := s.accept(t)
				hear(t, b, question)
				io.WriteString(b, yes)
				secure := tls.Server(b, serverTLS(0))
				if _, err := io.WriteString(secure, "the upstream"); err != nil {
					t.Fatal(err)
				}
				hear(t, a, "Sniff Upstream not connected Upstream Connected Secured the upstream")
				hear(t, secure, "hello")
				closeWrite(t, a)
				wantEnd(t, secure)
				secure.Close()
				wantEnd(t, a)
				if rec := r.expect(CauseEnd); rec.Down.Written != int64(len("the upstream")) || rec.Down.Read != rec.Down.Written {
					t.Errorf("%+v", rec)
				}
			})
		}
	}
}

// A reply comes before what a built-in upstream returns.
func TestReplyBuiltin(t *testing.T) {
	r := newRig(t, Config{})
	cfg := ListenConfig{}
	cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
		f.Reply([]byte("hello, "))
		return &Addr{Network: Echo}
	}
	a := dial(t, r.listen("tcp4", cfg))
	io.WriteString(a, "client")
	hear(t, a, "hello, client")
	closeWrite(t, a)
	wantEnd(t, a)
	if rec := r.expect(CauseEnd); rec.Down.Written != 6 {
		t.Errorf("%+v", rec)
	}
}

// replyLong replies until the socket and the engine hold all that they do, and returns the number of bytes.
func replyLong(f *Flow) (n int) {
	long := []byte(strings.Repeat("a long reply ", 1000))
	for f.Reply(long) == nil {
		n += len(long)
	}
	return n
}

// wantReplies reads n bytes of replyLong.
func wantReplies(t *testing.T, c net.Conn, n int) {
	t.Helper()
	hear(t, c, strings.Repeat("a long reply ", n/13))
}

// A client that takes its reply late gets all of it before what the upstream has sent meanwhile, and its end. One that
// does not take it is given up.
func TestReplyTakenLate(t *testing.T) {
	for _, upstream := range []string{"tcp4", "unix"} {
		for _, takes := range []bool{true, false} {
			t.Run(fmt.Sprintf("upstream=%s/takes=%v", upstream, takes), func(t *testing.T) {
				r := newRig(t, Config{})
				replied := make(chan int, 1)
				cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}}
				if !takes {
					cfg.Timeouts.Connect = 300 * time.Millisecond
				}
				cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) { replied <- replyLong(f) }
				cfg.Dial = &DialConfig{}
				a, b := r.flow("unix", upstream, cfg) // where the kernel takes nothing on behalf of the client
				n := <-replied
				if !takes {
					if rec := r.expect(CauseClientGone); !errors.Is(rec.Err, os.ErrDeadlineExceeded) {
						t.Errorf("%v", rec.Err)
					}
					wantReset(t, b)
					return
				}
				io.WriteString(a, "the client")
				io.WriteString(b, "the upstream")
				closeWrite(t, b)
				r.e.Flows(func(all []FlowInfo) bool {
					for _, f := range all {
						if f.State != stats.StateConnecting {
							t.Errorf("state %s", f.State)
						}
					}
					return true
				})
				wantReplies(t, a, n)
				hear(t, a, "the upstream")
				wantEnd(t, a)
				hear(t, b, "the client")
				closeWrite(t, a)
				wantEnd(t, b)
				r.expect(CauseEnd)
			})
		}
	}
}

// What a client says while it is to take its reply reaches an upstream that is silent: no further event of the client's
// socket tells of it.
func TestReplyTakenWhileTalking(t *testing.T) {
	r := newRig(t, Config{})
	replied := make(chan int, 1)
	cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}, Dial: &DialConfig{}}
	cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) { replied <- replyLong(f) }
	a, b := r.flow("tcp4", "tcp4", cfg)
	n := <-replied
	io.WriteString(a, "the client")
	wantReplies(t, a, n)
	hear(t, b, "the client")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}

// A side that breaks while the client is to take its reply ends the flow, and nothing of it is left.
func TestReplyNotTakenEnds(t *testing.T) {
	for what, cause := range map[string]Cause{
		"the client resets": CauseClientGone, "the upstream resets": CauseUpstreamReset, "is killed": CauseKilled, "the engine closes": CauseClosed,
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{})
			r.k.StopClock()
			replied := make(chan int, 1)
			cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}, Dial: &DialConfig{}}
			cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) { replied <- replyLong(f) }
			a, b := r.flow("unix", "tcp4", cfg)
			n := <-replied
			switch what {
			case "the client resets":
				reset(t, a)
				wantReset(t, b)
			case "the upstream resets":
				reset(t, b)
				wantReplies(t, a, n)
				wantReset(t, a)
			case "is killed":
				r.e.endFlows(CauseKilled)
				wantReset(t, b)
			case "the engine closes":
				r.e.Close()
			}
			r.expect(cause)
		})
	}
}

// Who is turned away can read why, even if there was more to read from it. Who was told nothing since the flow last went
// on is reset.
func TestReplyThenTurnedAway(t *testing.T) {
	nobody := Addr{Network: Unix, Path: "/nowhere/at/all"}
	why := func(f *Flow) { f.Reply([]byte("why")) }
	sniffing := func(f *Flow) Cause {
		f.StartSniff(100, time.Minute)
		return CauseNone
	}
	failing := func(say bool) func(f *Flow, to *Addr, took time.Duration, err error) {
		return func(f *Flow, _ *Addr, _ time.Duration, err error) {
			if err != nil && say {
				why(f)
			}
		}
	}
	twice := func(_ *Flow, attempt int) *Addr {
		if attempt < 2 {
			return &nobody
		}
		return nil
	}
	for _, c := range []struct {
		name  string
		hooks Hooks
		cause Cause
		reset bool // after "why"
	}{
		{"Admit", Hooks{Admit: func(f *Flow) Cause { why(f); return CauseRefused }}, CauseRefused, false},
		{"Sniff", Hooks{Admit: sniffing, Sniff: func(f *Flow, _ []byte, _ bool) (int, SniffNext) { why(f); return 0, SniffRefuse }}, CauseRefused, false},
		{"Upstream", Hooks{Upstream: func(f *Flow, _ int) *Addr { why(f); return nil }}, CauseNoUpstream, false},
		{"Upstream after attempts", Hooks{Upstream: func(f *Flow, attempt int) *Addr {
			if attempt < 2 {
				return &nobody
			}
			why(f)
			return nil
		}}, CauseNoUpstream, false},
		{"last Connected", Hooks{Upstream: twice, Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) {
			if f.Value() != nil {
				why(f)
			}
			f.SetValue("the second attempt")
		}}, CauseNoUpstream, false},
		{"a mistake", Hooks{Upstream: func(f *Flow, _ int) *Addr { why(f); return new(Addr) }}, CauseNoUpstream, true},
		{"an earlier Connected", Hooks{Upstream: twice, Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) {
			if f.Value() == nil {
				why(f)
			}
			f.SetValue("the second attempt")
		}}, CauseNoUpstream, true},
		{"Admit that admits", Hooks{Admit: func(f *Flow) Cause { why(f); return CauseNone }, Upstream: twice}, CauseNoUpstream, true},
		{"Sniff that goes on", Hooks{Admit: sniffing, Sniff: func(f *Flow, _ []byte, _ bool) (int, SniffNext) {
			why(f)
			return 0, SniffDone
		}, Upstream: twice, Connected: failing(false)}, CauseNoUpstream, true},
		{"Connected before the queue", Hooks{Connected: failing(true), Upstream: func(f *Flow, attempt int) *Addr {
			switch {
			case attempt == 0:
				return &nobody
			case f.Value() == nil:
				f.SetValue("queued")
				f.Queue()
				f.Ref().Resume()
			}
			return nil
		}}, CauseNoUpstream, true},
	} {
		for _, network := range []string{"tcp4", "unix"} {
			t.Run(c.name+"/"+network, func(t *testing.T) {
				r := newRig(t, Config{})
				gate := make(chan bool)
				admit := c.hooks.Admit
				hooks := c.hooks
				hooks.Admit = func(f *Flow) Cause {
					<-gate // until what the client sends is there
					if admit == nil {
						return CauseNone
					}
					return admit(f)
				}
				a := dial(t, r.listen(network, ListenConfig{Hooks: hooks}))
				io.WriteString(a, "something that nobody reads")
				close(gate)
				if c.reset && network == "tcp4" {
					wantReset(t, a) // which may destroy the reply
				} else {
					hear(t, a, "why")
				}
				if !c.reset {
					wantEnd(t, a)
				}
				r.expect(c.cause)
			})
		}
	}
}

// The answer of an upstream, and a handshake with it, may be followed by a refusal with words, too.
func TestReplyAfterAnswer(t *testing.T) {
	for _, originate := range []bool{false, true} {
		r := newRig(t, Config{})
		s := newServer(t, "tcp4")
		cfg := asking(false, true)
		agree := cfg.Hooks.Connected
		cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
			agree(f, to, took, err)
			if originate {
				f.Originate(clientTLS())
			}
		}
		cfg.Hooks.Answered = func(f *Flow, _ []byte, _ time.Duration, err error) bool { f.Reply([]byte("it says no")); return false }
		cfg.Hooks.Secured = func(f *Flow, _ Side, state *tls.ConnectionState, _ time.Duration, _ error) Cause {
			f.Reply([]byte("it says no"))
			return CauseRefused
		}
		a := dial(t, r.listen("tcp4", cfg, s.addr))
		b := s.accept(t)
		hear(t, b, question)
		want := CauseNoUpstream
		if originate {
			io.WriteString(b, yes)
			tls.Server(b, serverTLS(0)).Handshake()
			want = CauseRefused
		} else {
			io.WriteString(b, "no\n")
		}
		hear(t, a, "it says no")
		wantEnd(t, a)
		r.expect(want)
	}
}

// A refusal that the client does not take is waited for for failedDrain, however old the flow is, and what it got of it
// does not look complete.
func TestReplyThenTurnedAwayTakenLate(t *testing.T) {
	for _, takes := range []bool{true, false} {
		t.Run(fmt.Sprintf("takes=%v", takes), func(t *testing.T) {
			r := newRig(t, Config{})
			replied := make(chan int, 1)
			cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}}
			cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
				f.active -= time.Hour
				replied <- replyLong(f)
				return nil
			}
			if !takes {
				r.k.FailAfter(1, testkernel.Send, sys.EAGAIN, -1)
			}
			a := dial(t, r.listen("tcp4", cfg))
			n := <-replied
			if takes {
				if got, err := readToEnd(t, a); got != int64(n) && err == nil {
					t.Errorf("%d bytes of %d, %v", got, n, err)
				}
			} else {
				wantReset(t, a)
			}
			if rec := r.expect(CauseNoUpstream); !takes && rec.Duration < failedDrain {
				t.Errorf("given up after %v", rec.Duration)
			}
		})
	}
}

// A queued client may be told that it is.
func TestReplyQueued(t *testing.T) {
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	queued := make(chan FlowRef, 1)
	cfg := ListenConfig{}
	cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
		if f.Value() != nil {
			return s.addr
		}
		f.SetValue("queued")
		f.Reply([]byte("please wait; "))
		f.Queue()
		queued <- f.Ref()
		return nil
	}
	a := dial(t, r.listen("tcp4", cfg))
	hear(t, a, "please wait; ")
	(<-queued).Resume()
	b := s.accept(t)
	say(t, b, a, "welcome")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}

// Once a stream relays, Reply is too late, and so it is for a client with TLS.
func TestReplyTooLate(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		r := newRig(t, Config{Loops: 1})
		cfg := x.config()
		connected := cfg.Hooks.Connected
		cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
			if x.terminate && !errors.Is(f.Reply([]byte("x")), ErrStage) {
				t.Error("a reply in the middle of TLS")
			}
			if connected != nil {
				connected(f, to, took, err)
			}
		}
		s := newServer(t, "tcp4")
		c := dial(t, r.listen("tcp4", cfg, s.addr))
		if x.terminate {
			c = tls.Client(c, clientTLS())
		}
		go c.Write([]byte("hello"))
		b := s.accept(t)
		if x.originate {
			b = tls.Server(b, serverTLS(0))
		}
		hear(t, b, "hello")
		r.e.onLoops(func(f *Flow) {
			if !errors.Is(f.Reply([]byte("x")), ErrStage) {
				t.Error("a reply of a flow that relays")
			}
		})
		c.Close()
		b.Close()
		r.record()
	})
}

// The flow knows the address from which it has connected.
func TestUpstreamLocal(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6"} {
		r := newRig(t, Config{})
		s := newServer(t, network)
		local := make(chan Addr, 1)
		cfg := ListenConfig{}
		cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
			if a := f.UpstreamLocal(); a != (Addr{}) {
				t.Errorf("%v before there is an upstream", a)
			}
			return s.addr
		}
		cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) { local <- f.UpstreamLocal() }
		a := dial(t, r.listen("tcp4", cfg))
		b := s.accept(t)
		if got, want := <-local, fromNet(b.RemoteAddr()); got != *want {
			t.Errorf("%v, want %v", got, want)
		}
		a.Close()
		b.Close()
		r.expect(CauseEnd)
	}
	r := newRig(t, Config{})
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to, local := Addr{Network: UDP, AddrPort: server.LocalAddr().(*net.UDPAddr).AddrPort()}, make(chan Addr, 1)
	l, err := r.e.Listen(Addr{Network: UDP, AddrPort: loopback}, ListenConfig{Datagram: DatagramConfig{Replies: 1}, Hooks: Hooks{
		Upstream:  func(*Flow, int) *Addr { return &to },
		Connected: func(f *Flow, _ *Addr, _ time.Duration, err error) { local <- f.UpstreamLocal() },
		Done:      r.done,
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := testnet.Dial(t, net.UDPAddrFromAddrPort(l.Addr().AddrPort))
	io.WriteString(c, "question")
	buf := make([]byte, 100)
	server.SetReadDeadline(time.Now().Add(patience))
	_, from, err := server.ReadFrom(buf)
	if err != nil {
		t.Fatal(err)
	}
	server.WriteTo([]byte("answer"), from)
	if got := <-local; got != (Addr{Network: UDP, AddrPort: from.(*net.UDPAddr).AddrPort()}) {
		t.Errorf("%v, want %v", got, from)
	}
	r.expect(CauseAnswered)
}
