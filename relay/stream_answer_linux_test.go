package relay

import (
	"bytes"
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
	"github.com/penstock/penstock/relay/stats"
)

// A protocol in small, which agrees on what follows: "tls?" in a line of its own is answered with "yes".
const (
	question = "tls?\n"
	yes      = "yes\n"
)

// asking answers the question of clients, and asks upstreams.
func asking(client, upstream bool) ListenConfig {
	var cfg ListenConfig
	if client {
		cfg.Hooks.Admit = func(f *Flow) Cause {
			f.StartSniff(4096, time.Minute)
			return CauseNone
		}
		cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
			if f.Value() != nil {
				return 0, SniffDone
			}
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				return 0, SniffMore
			}
			if string(b[:i+1]) != question {
				f.Reply([]byte("no, "))
				f.Reply([]byte("and why\n"))
				return 0, SniffRefuse
			}
			f.SetValue("asked")
			if err := f.Reply([]byte(yes)); err != nil {
				return 0, SniffRefuse
			}
			return i + 1, SniffMore
		}
	}
	if upstream {
		cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) {
			if err == nil {
				f.Preface([]byte(question))
				f.Expect([]byte(yes))
			}
		}
	}
	return cfg
}

// pieces writes text byte by byte.
func pieces(t *testing.T, c net.Conn, text string) {
	t.Helper()
	for i := range len(text) {
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
}

// Both sides agree before anything else is said, whatever pieces it comes in and the kernel takes.
func TestAgree(t *testing.T) {
	for _, p := range pairs {
		for _, short := range []bool{false, true} {
			t.Run(fmt.Sprintf("client=%s/upstream=%s/short=%v", p[0], p[1], short), func(t *testing.T) {
				r := newRig(t, Config{})
				if short {
					r.k.Short(testkernel.Send, 1, -1)
					r.k.Fail(testkernel.Send, sys.EINTR, 3)
					r.k.Fail(testkernel.Recv, sys.EINTR, 3)
				}
				s := newServer(t, p[1])
				cfg, told := asking(true, true), make(chan error, 1)
				cfg.Hooks.Answered = func(f *Flow, _ []byte, took time.Duration, err error) bool { told <- err; return false }
				a := dial(t, r.listen(p[0], cfg, s.addr))
				pieces(t, a, question)
				hear(t, a, yes)
				pieces(t, a, "first ")
				b := s.accept(t)
				hear(t, b, question)
				io.WriteString(a, "second")
				pieces(t, b, yes[:3])
				if n := len(told); n != 0 {
					t.Error("the answer was not complete")
				}
				pieces(t, b, yes[3:])
				hear(t, b, "first second")
				if err := <-told; err != nil {
					t.Error(err)
				}
				say(t, b, a, "and back")
				closeWrite(t, a)
				wantEnd(t, b)
				b.Close()
				wantEnd(t, a)
				rec := r.expect(CauseEnd)
				if rec.Up.Written != int64(len("first second")) || rec.Down.Written != int64(len("and back")) || rec.Connect <= 0 || rec.FirstByte <= 0 {
					t.Errorf("%+v", rec)
				}
			})
		}
	}
}

// What follows can be TLS, on either side, and nothing of what it protects is sent before.
func TestAgreeOnTLS(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		r := newRig(t, Config{})
		s := newServer(t, "tcp4")
		cfg, plain := x.config(), asking(x.terminate, x.originate)
		if x.terminate {
			terminate := cfg.Hooks.Sniff
			cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
				if f.Value() == nil {
					return plain.Hooks.Sniff(f, b, last)
				}
				take, next := terminate(f, b, last)
				if next == SniffDone && !errors.Is(f.Reply([]byte("x")), ErrStage) {
					t.Error("a reply in the middle of TLS")
				}
				return take, next
			}
		}
		if x.originate {
			originate := cfg.Hooks.Connected
			cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
				plain.Hooks.Connected(f, to, took, err)
				originate(f, to, took, err)
			}
		}
		a := dial(t, r.listen("tcp4", cfg, s.addr))
		ready := make(chan error, 1)
		if x.terminate {
			io.WriteString(a, question)
			hear(t, a, yes)
			c := tls.Client(a, clientTLS())
			go func() {
				_, err := io.WriteString(c, "a secret")
				ready <- err
			}()
			a = c
		} else {
			_, err := io.WriteString(a, "a secret")
			ready <- err
		}
		b := s.accept(t)
		if x.originate {
			hear(t, b, question)
			io.WriteString(b, yes)
			b = tls.Server(b, serverTLS(0))
		}
		hear(t, b, "a secret")
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
		say(t, b, a, "and back")
		a.Close()
		wantEnd(t, b)
		b.Close()
		r.expect(CauseEnd)
	})
}

// Who is refused with a reply can read it, even if there was more to read from it.
func TestReplyRefused(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		r := newRig(t, Config{})
		a := dial(t, r.listen(network, asking(true, false)))
		io.WriteString(a, "something else\nand more")
		hear(t, a, "no, and why\n")
		wantEnd(t, a)
		r.expect(CauseRefused)
	}
}

// A client that does not take its reply is waited for, but not for ever.
func TestReplyNotTaken(t *testing.T) {
	for _, takes := range []bool{true, false} {
		t.Run(fmt.Sprintf("takes=%v", takes), func(t *testing.T) {
			r := newRig(t, Config{})
			long := strings.Repeat("a long reply ", repliesMost/13)
			filled := make(chan bool, 1)
			cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}}
			cfg.Hooks.Admit = func(f *Flow) Cause {
				f.StartSniff(100, time.Minute)
				return CauseNone
			}
			if !takes {
				cfg.Timeouts.Connect = 300 * time.Millisecond
			}
			replies := 0
			cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
				if replies > 0 {
					t.Error("it has seen enough, and is called again")
					return 0, SniffDone
				}
				for f.Reply([]byte(long)) == nil {
					replies++ // until its socket and the engine hold all that they do
				}
				if err := f.Reply([]byte(long)); err == nil || errors.Is(err, ErrStage) {
					t.Errorf("reply without bound: %v", err)
				}
				filled <- true
				return 0, SniffDone
			}
			s := newServer(t, "tcp4")
			a := dial(t, r.listen("unix", cfg, s.addr)) // where the kernel takes nothing on behalf of its reader
			io.WriteString(a, "hello")
			<-filled
			if !takes {
				if rec := r.expect(CauseClientGone); rec.Err == nil || rec.Attempts != 0 {
					t.Errorf("%+v", rec)
				}
				return
			}
			io.WriteString(a, " again")
			hear(t, a, strings.Repeat(long, replies))
			b := s.accept(t)
			hear(t, b, "hello again")
			say(t, b, a, "and back")
			a.Close()
			b.Close()
			r.expect(CauseEnd)
		})
	}
}

// A client that cannot be sent its reply has gone.
func TestReplyFails(t *testing.T) {
	r := newRig(t, Config{})
	l := r.listen("tcp4", asking(true, false))
	r.k.Fail(testkernel.Send, sys.EPIPE, 1)
	a := dial(t, l)
	io.WriteString(a, question)
	if rec := r.expect(CauseClientGone); rec.Err != sys.EPIPE {
		t.Errorf("error %v", rec.Err)
	}
}

// An upstream that does not answer as it should is an attempt that failed; the next one gets everything.
func TestExpectFails(t *testing.T) {
	for _, c := range []struct{ what, says, want string }{
		{"says no", "no\n", `"n`},
		{"changes its mind", "yeah", `"yea`},
		{"says more", yes + "!", `"yes\n!"`},
		{"ends", "", "ended"},
		{"ends early", "ye", `"ye"`},
		{"resets", "", "reset"},
		{"is silent", "ye", "timeout"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t, Config{})
			bad, good := newServer(t, "tcp4"), newServer(t, "tcp4")
			cfg := asking(false, true)
			cfg.Timeouts.Connect = time.Minute
			told := make(chan error, 2)
			cfg.Hooks.Answered = func(f *Flow, _ []byte, took time.Duration, err error) bool {
				if !errors.Is(f.Preface([]byte("x")), ErrStage) || !errors.Is(f.Expect([]byte("x")), ErrStage) {
					t.Error("not the stage")
				}
				told <- err
				return false
			}
			a := dial(t, r.listen("tcp4", cfg, bad.addr, good.addr))
			io.WriteString(a, "from the client")
			b := bad.accept(t)
			hear(t, b, question)
			io.WriteString(b, c.says)
			switch c.what {
			case "ends", "ends early":
				closeWrite(t, b)
			case "resets":
				b.(*net.TCPConn).SetLinger(0)
				b.Close()
			case "is silent":
				r.pass(cfg.Timeouts.Connect)
			}
			if err := <-told; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			g := good.accept(t)
			hear(t, g, question)
			io.WriteString(g, yes)
			hear(t, g, "from the client")
			if err := <-told; err != nil {
				t.Error(err)
			}
			say(t, g, a, "and back")
			a.Close()
			g.Close()
			if rec := r.expect(CauseEnd); rec.Attempts != 2 {
				t.Errorf("%d attempts", rec.Attempts)
			}
		})
	}
}

// The cause is that of the last attempt.
func TestExpectFailsLast(t *testing.T) {
	for _, c := range []struct {
		originate bool
		says      string
		want      Cause
	}{{false, "no\n", CauseNoUpstream}, {true, "no\n", CauseUpstreamTLS}, {false, "", CauseConnectTimeout}, {true, "", CauseConnectTimeout}} {
		r := newRig(t, Config{})
		s := newServer(t, "tcp4")
		cfg := asking(false, true)
		if c.says == "" {
			cfg.Timeouts.Connect = 200 * time.Millisecond
		}
		if ask := cfg.Hooks.Connected; c.originate {
			cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
				ask(f, to, took, err)
				f.Originate(clientTLS())
			}
		}
		a := dial(t, r.listen("tcp4", cfg, s.addr))
		b := s.accept(t)
		io.WriteString(b, c.says)
		rec := r.expect(c.want)
		if _, is := errors.AsType[*AnswerError](rec.Err); is != (c.says != "") || !is && rec.Err != os.ErrDeadlineExceeded {
			t.Errorf("%v", rec.Err)
		}
		if _, err := readToEnd(t, a); err == nil {
			t.Error("a clean end")
		}
	}
}

// A flow that ends while its upstream is to answer leaves nothing.
func TestExpectEnds(t *testing.T) {
	for what, cause := range map[string]Cause{"the client resets": CauseClientGone, "is killed": CauseKilled, "the engine closes": CauseClosed} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{})
			a, b := r.flow("tcp4", "tcp4", asking(false, true))
			io.WriteString(a, "hello")
			hear(t, b, question)
			io.WriteString(b, "ye")
			switch what {
			case "the client resets":
				a.(*net.TCPConn).SetLinger(0)
				a.Close()
			case "is killed":
				r.e.Flows(func(all []FlowInfo) bool {
					for _, f := range all {
						if f.State != stats.StateConnecting {
							t.Errorf("state %s", f.State)
						}
						go r.e.Kill(f.ID, CauseKilled)
					}
					return true
				})
			case "the engine closes":
				r.e.Close()
			}
			r.expect(cause)
		})
	}
}

// The words are for one stage each, and bounded.
func TestAnswerStages(t *testing.T) {
	r := newRig(t, Config{})
	cfg := ListenConfig{}
	cfg.Hooks.Admit = func(f *Flow) Cause {
		if !errors.Is(f.Expect([]byte("x")), ErrStage) {
			t.Error("in Admit")
		}
		return CauseNone
	}
	cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) {
		if f.Expect(nil) != errAnswer || f.Expect(make([]byte, answerMost+1)) != errAnswer {
			t.Error("in Connected")
		}
	}
	a, b := r.flow("tcp4", "tcp4", cfg)
	say(t, a, b, "hello")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}
