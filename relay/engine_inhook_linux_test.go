package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// inside returns how many goroutines are in a function.
func inside(function string) int {
	stacks := make([]byte, 4<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function)
}

// Everybody that drains is told when the last flow has ended.
func TestDrainTogether(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.flow("tcp4", "unix", ListenConfig{})
	say(t, a, b, "hello")
	ctx, cancel := contextFor(t, patience)
	defer cancel()
	const drains = 5
	ended := make(chan error, drains)
	for range drains {
		go func() { ended <- r.e.Drain(ctx) }()
	}
	testwait.Until(t, "the engine drains", r.e.stopping.Load)
	testwait.Until(t, "all of them wait", func() bool { return inside("relay.(*Engine).Drain(") == drains })
	a.Close()
	b.Close()
	for range drains {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A hook may close its listener, and end flows, its own too.
func TestInHook(t *testing.T) {
	for _, hook := range []string{"admit", "sniff", "upstream", "connected", "done"} {
		t.Run("hook="+hook, func(t *testing.T) {
			r := newRig(t, Config{})
			up := echoServer(t, "unix")
			called := make(chan bool, 1)
			var once sync.Once
			var l *Listener
			var set sync.WaitGroup // l is set
			set.Add(1)
			do := func(name string, id uint64) {
				if name != hook {
					return
				}
				once.Do(func() {
					set.Wait()
					if err := l.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
					if err := l.Close(); !errors.Is(err, net.ErrClosed) {
						t.Errorf("a second Close: %v", err)
					}
					if err := l.Update(ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}); !errors.Is(err, net.ErrClosed) {
						t.Errorf("Update: %v", err)
					}
					r.e.Kill(id, CauseKilled)
					for name, call := range map[string]func(){
						"Stats": func() { r.e.Stats() },
						"Flows": func() { r.e.Flows(func([]FlowInfo) bool { return true }) },
						"Flow":  func() { r.e.Flow(id) },
						"Drain": func() { r.e.Drain(context.Background()) },
						"Close": func() { r.e.Close() },
					} {
						wantPanic(t, name, call)
					}
					called <- true
				})
			}
			l = r.listen("tcp4", ListenConfig{Hooks: Hooks{
				Admit:     func(f *Flow) Cause { f.StartSniff(1, 0); do("admit", f.ID()); return CauseNone },
				Sniff:     func(f *Flow, _ []byte, _ bool) (int, SniffNext) { do("sniff", f.ID()); return 0, SniffDone },
				Upstream:  func(f *Flow, _ int) *Addr { do("upstream", f.ID()); return up },
				Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) { do("connected", f.ID()) },
				Done:      func(rec *Record) { r.done(rec); do("done", rec.ID) },
			}})
			set.Done()
			c, err := net.Dial("tcp4", l.Addr().AddrPort.String())
			switch {
			case err == nil:
				defer c.Close()
				c.Write([]byte("hello"))
			case !errors.Is(err, syscall.ECONNRESET): // which an early hook may cause before Dial returns
				t.Fatal(err)
			}
			if hook == "done" {
				hear(t, c, "hello")
				c.(*net.TCPConn).CloseWrite()
			}
			select {
			case <-called:
			case <-time.After(patience):
				t.Fatal("the hook does not return")
			}
			if rec := r.record(); hook != "done" && rec.Cause != CauseKilled {
				t.Errorf("%+v", rec)
			}
			testwait.Until(t, "the listener is closed", func() bool {
				c, err := net.Dial("tcp4", l.Addr().AddrPort.String())
				if err == nil {
					c.Close()
				}
				return err != nil
			})
		})
	}
}

func wantPanic(t *testing.T, name string, call func()) {
	t.Helper()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "Engine."+name+" called in a hook") {
			t.Errorf("%s in a hook: %v", name, p)
		}
	}()
	call()
}
