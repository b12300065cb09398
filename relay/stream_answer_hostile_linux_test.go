package relay

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
)

// A client that has been silent and does not take the reply to that, either, is not waited for for ever.
func TestReplyToSilenceNotTaken(t *testing.T) {
	r := newRig(t, Config{})
	long := []byte(strings.Repeat("a long reply ", repliesMost/13))
	cfg := ListenConfig{Socket: SocketOptions{SendBuffer: 1}}
	cfg.Hooks.Admit = func(f *Flow) Cause {
		f.StartSniff(100, 100*time.Millisecond)
		return CauseNone
	}
	cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
		for last && f.Reply(long) == nil {
			continue // until its socket and the engine hold all that they do
		}
		return 0, map[bool]SniffNext{false: SniffMore, true: SniffDone}[last]
	}
	dial(t, r.listen("unix", cfg))
	if rec := r.expect(CauseClientGone); rec.Err == nil || rec.Attempts != 0 {
		t.Errorf("%+v", rec)
	}
}

// Replies that wait stay in order; the hook that has seen enough is not called again, and what comes meanwhile goes on.
func TestRepliesWait(t *testing.T) {
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	replied, calls := make(chan bool), 0
	var cfg ListenConfig
	cfg.Hooks.Admit = func(f *Flow) Cause {
		f.StartSniff(100, time.Minute)
		return CauseNone
	}
	cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
		if calls++; calls > 1 {
			t.Error("called again")
			return 0, SniffDone
		}
		r.k.Fail(testkernel.Send, sys.EAGAIN, 1)
		f.Reply([]byte("first "))
		f.Reply([]byte("second"))
		replied <- true
		return len(b), SniffDone
	}
	a := dial(t, r.listen("tcp4", cfg, s.addr))
	io.WriteString(a, "hello")
	<-replied
	io.WriteString(a, "and more") // whose event says that the client takes its replies, too
	hear(t, a, "first second")
	b := s.accept(t)
	hear(t, b, "and more")
	say(t, b, a, "and back")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
}

// What an upstream is asked leaves in whole before its answer is looked at, even if that comes first, with an end behind it.
func TestExpectAnsweredTooEarly(t *testing.T) {
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	said, preface := make(chan bool), bytes.Repeat(testnet.NewPattern(9).At(0, 1<<20), 8)
	var cfg ListenConfig
	cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) {
		<-said
		f.Preface(preface)
		f.Expect([]byte(yes))
	}
	took := make(chan time.Duration, 1)
	cfg.Hooks.Answered = func(f *Flow, _ []byte, d time.Duration, err error) bool { took <- d; return false }
	a := dial(t, r.listen("tcp4", cfg, s.addr))
	b := s.accept(t)
	io.WriteString(b, yes)
	closeWrite(t, b)
	close(said)
	io.WriteString(a, "from the client")
	hear(t, b, string(preface)+"from the client")
	wantEnd(t, a)
	a.Close()
	wantEnd(t, b)
	if rec, d := r.expect(CauseEnd), <-took; rec.Connect < d {
		t.Errorf("connected after %v, and answered after %v", rec.Connect, d)
	}
}

// An attempt that failed, with or without an answer, leaves nothing to the next one.
func TestExpectLeavesNothing(t *testing.T) {
	for _, answer := range []string{yes, "no\n"} {
		r := newRig(t, Config{})
		bad, good := newServer(t, "tcp4"), newServer(t, "tcp4")
		gone := &Addr{Network: TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:" + testnet.Port(t))}
		var cfg ListenConfig
		attempts := 0
		cfg.Hooks.Connected = func(f *Flow, _ *Addr, _ time.Duration, err error) {
			attempts++
			switch attempts {
			case 1:
				f.Preface([]byte(question))
				f.Expect([]byte(yes))
				f.Originate(clientTLS())
			case 2:
				if err == nil || !errors.Is(f.Preface([]byte("x")), ErrStage) || !errors.Is(f.Expect([]byte("x")), ErrStage) || !errors.Is(f.Originate(clientTLS()), ErrStage) {
					t.Errorf("%v: not the stage", err)
				}
			}
		}
		cfg.Hooks.Answered = func(f *Flow, _ []byte, _ time.Duration, err error) bool {
			if err == nil {
				t.Error("the handshake tells how the attempt ends")
			}
			return false
		}
		a := dial(t, r.listen("tcp4", cfg, bad.addr, gone, good.addr))
		io.WriteString(a, "from the client")
		b := bad.accept(t)
		hear(t, b, question)
		io.WriteString(b, answer)
		if answer == yes {
			tls.Server(b, &tls.Config{}).Handshake() // which fails for lack of a certificate
			b.Close()
		}
		g := good.accept(t)
		hear(t, g, "from the client")
		say(t, g, a, "and back")
		a.Close()
		g.Close()
		if rec := r.expect(CauseEnd); rec.Attempts != 3 {
			t.Errorf("%d attempts", rec.Attempts)
		}
	}
}

// A flow has one TLS connection with its client: the first one stays, and what came for it is not lost.
func TestTerminateTwice(t *testing.T) {
	x := &encryption{terminate: true}
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	cfg := x.config()
	terminate := cfg.Hooks.Sniff
	cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
		take, next := terminate(f, b, last)
		if next == SniffDone && !errors.Is(f.Terminate(&tls.Config{}), ErrStage) { // which has no certificate
			t.Error("a second Terminate")
		}
		return take, next
	}
	c := dial(t, r.listen("tcp4", cfg, s.addr))
	a := tls.Client(c, clientTLS())
	written := make(chan error)
	go func() {
		_, err := io.WriteString(a, "a secret")
		written <- err
	}()
	b := s.accept(t)
	hear(t, b, "a secret")
	say(t, b, a, "and back")
	if err := <-written; err != nil { // a Close during a Write says no end of TLS
		t.Error(err)
	}
	a.Close()
	wantEnd(t, b)
	b.Close()
	r.expect(CauseEnd)
}

// An upstream whose handshake has failed reads why, even though it has sent more than was read of it: the engine reads
// that before it closes, or the alert would be lost to a reset.
func TestTLSAlertBehindUnread(t *testing.T) {
	x := &encryption{originate: true}
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	dial(t, r.listen("tcp4", x.config(), s.addr))
	b := s.accept(t)
	hello := make([]byte, 5)
	io.ReadFull(b, hello)
	io.CopyN(io.Discard, b, int64(hello[3])<<8|int64(hello[4]))
	// A ServerHello that is empty, and more than the engine receives at a time.
	if _, err := b.Write(append([]byte("\x16\x03\x03\x00\x04\x02\x00\x00\x00"), make([]byte, 400_000)...)); err != nil {
		t.Fatal(err)
	}
	r.expect(CauseUpstreamTLS)
	b.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(b); err != nil || len(got) != 7 || got[0] != 21 { // alert, RFC 8446, section 5.1
		t.Errorf("%x, %v", got, err)
	}
}
