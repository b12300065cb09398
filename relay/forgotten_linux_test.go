package relay

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// collect has the garbage collected until what must follow has happened.
func collect(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, what, func() bool { runtime.GC(); return ok() })
}

func ended(e *core) bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// An engine that nobody can close any more closes itself: after its flows, and
// not while it has a listener. testnet.CheckLeaks sees what is left.
func TestForgotten(t *testing.T) {
	testnet.CheckLeaks(t)
	forget := func(use func(e *Engine)) *core {
		e, err := New(Config{Loops: 2})
		if err != nil {
			t.Fatal(err)
		}
		use(e)
		return e.core
	}
	core := forget(func(*Engine) {})
	collect(t, "an idle engine ends", func() bool { return ended(core) })

	a, innerA := testnet.Pair(t, "tcp4")
	innerB, b := testnet.Pair(t, "unix")
	core = forget(func(e *Engine) {
		if err := e.Relay(innerA, innerB, PairConfig{}); err != nil {
			t.Fatal(err)
		}
	})
	collect(t, "it takes nobody new", core.stopping.Load)
	for range 3 {
		say(t, a, b, "a flow goes on")
		runtime.GC()
	}
	if ended(core) {
		t.Error("the engine has ended before its flow")
	}
	a.Close()
	b.Close()
	collect(t, "it ends with its flow", func() bool { return ended(core) })

	var addr string
	closed := make(chan error, 1)
	core = forget(func(e *Engine) {
		var l *Listener
		l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{
			Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} },
			Done:     func(rec *Record) { closed <- rec.Listener.Close() },
		}})
		if err != nil {
			t.Fatal(err)
		}
		addr = l.Addr().AddrPort.String()
	})
	for range 5 { // what is garbage is cleaned up; the engine is not
		cleaned := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(cleaned chan struct{}) { close(cleaned) }, cleaned)
		collect(t, "a collection cleans up", func() bool {
			select {
			case <-cleaned:
				return true
			default:
				return false
			}
		})
	}
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "hello")
	hear(t, c, "hello")
	c.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	collect(t, "it ends with its last listener", func() bool { return ended(core) })
}

// What was closed is collected, whatever it has carried, and though its hooks refer to it: the engine's memory, with the buffers and the listeners.
func TestClosedIsCollected(t *testing.T) {
	for _, c := range []struct {
		network  Network
		upstream Network
	}{{TCP, Echo}, {TCP, Discard}, {UDP, Echo}, {UDP, Discard}} {
		t.Run(c.network.String()+"/"+c.upstream.String(), func(t *testing.T) {
			testnet.CheckLeaks(t)
			collected := make(chan bool, 1)
			func() {
				e, err := New(Config{Loops: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				l, err := e.Listen(Addr{Network: c.network, AddrPort: loopback}, ListenConfig{Hooks: Hooks{
					Upstream: func(*Flow, int) *Addr {
						runtime.KeepAlive(e) // which hooks may refer to
						return &Addr{Network: c.upstream}
					},
				}})
				if err != nil {
					t.Fatal(err)
				}
				runtime.AddCleanup(e.core, func(collected chan bool) { collected <- true }, collected)
				at := toNet(l.Addr())
				if c.network == UDP {
					at = net.UDPAddrFromAddrPort(l.Addr().AddrPort)
				}
				conn := testnet.Dial(t, at)
				io.WriteString(conn, "hello")
				if c.upstream == Echo {
					hear(t, conn, "hello")
				} else {
					testwait.Until(t, "it has come", func() bool { return e.Stats().Total().BytesWritten == 5 })
				}
				conn.Close()
			}()
			collect(t, "the engine is collected", func() bool { return len(collected) > 0 })
		})
	}
}
