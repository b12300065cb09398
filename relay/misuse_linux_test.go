package relay

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

// A hook that ends the goroutine of its loop ends the process and says so: the loop could not go on, and everybody who asks
// it something would wait for ever. A hook that panics is told of as always.
func TestHookEndsItsGoroutine(t *testing.T) {
	const env = "PENSTOCK_RELAY_HOOK"
	hooks := map[string]func(){
		"goexit": runtime.Goexit,
		"panic":  func() { panic("of the hook") },
	}
	if hook := hooks[os.Getenv(env)]; hook != nil { // the child
		e, err := New(Config{Loops: 1})
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{
			Upstream: func(*Flow, int) *Addr { hook(); return nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		testnet.Dial(t, toNet(l.Addr()))
		select {}
	}
	for name, want := range map[string]string{"goexit": "panic: relay: a hook has called runtime.Goexit", "panic": "panic: of the hook"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHookEndsItsGoroutine$", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), env+"="+name)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) || !strings.Contains(string(out), "relay.TestHookEndsItsGoroutine.func") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if name == "panic" && strings.Contains(string(out), "Goexit") {
			t.Errorf("%s", out)
		}
	}
}

// An Engine or a Listener that nobody has made says so.
func TestZeroValues(t *testing.T) {
	var none *Engine
	for name, call := range map[string]func(){
		"Relay":  func() { new(Engine).Relay(nil, nil, PairConfig{}) },
		"Listen": func() { new(Engine).Listen(Addr{}, ListenConfig{}) },
		"Stats":  func() { new(Engine).Stats() },
		"Kill":   func() { new(Engine).Kill(1, CauseKilled) },
		"Close":  func() { none.Close() },
		"Drain":  func() { none.Drain(t.Context()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "Engine."+name+" ") || !strings.Contains(text, "New") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			call()
		}()
	}
	var l Listener
	if l.Close() != net.ErrClosed || l.Update(ListenConfig{}) != net.ErrClosed || l.Value() != nil || l.Addr() != (Addr{}) {
		t.Error("the zero Listener is not closed")
	}
	r := newRig(t, Config{Loops: 1})
	if _, err := r.e.Listen(Addr{}, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}); err == nil || !strings.Contains(err.Error(), "the zero Addr") {
		t.Errorf("listen on the zero Addr: %v", err)
	}
	a, _ := testnet.Pair(t, "tcp4")
	for _, nobody := range []net.Conn{nil, (*net.TCPConn)(nil), (*net.UnixConn)(nil)} {
		if err := errors.Join(r.e.Relay(a, nobody, PairConfig{}), r.e.Relay(nobody, a, PairConfig{})); err == nil {
			t.Errorf("%T is relayed", nobody)
		}
	}
	a.SetDeadline(time.Now().Add(patience))
	if _, err := a.Write([]byte("still mine")); err != nil {
		t.Error(err)
	}
}

// An error of a method in the wrong hook says which, where, and where it works.
func TestStageText(t *testing.T) {
	r := newRig(t, Config{})
	said := make(chan error, 10)
	s := newServer(t, "tcp4")
	a := dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			said <- f.Preface([]byte("x"))
			f.StartSniff(100, time.Minute)
			return CauseNone
		},
		Sniff: func(f *Flow, _ []byte, _ bool) (int, SniffNext) {
			said <- f.Queue()
			return 0, SniffDone
		},
		Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) { said <- f.StartSniff(100, 0) },
	}}, s.addr))
	a.Write([]byte("hello"))
	b := s.accept(t)
	for _, want := range []string{
		"Flow.Preface in Hooks.Admit; it is for Hooks.Connected",
		"Flow.Queue in Hooks.Sniff; it is for Hooks.Upstream",
		"Flow.StartSniff in Hooks.Connected; it is for Hooks.Admit and Hooks.Sniff",
	} {
		if err := <-said; !errors.Is(err, ErrStage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	hear(t, b, "hello")
	a.Close()
	b.Close()
	r.expect(CauseEnd)
	if err := new(Flow).SetDial(nil); !errors.Is(err, ErrStage) {
		t.Errorf("the zero Flow: %v", err)
	}
}
