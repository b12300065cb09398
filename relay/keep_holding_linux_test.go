package relay

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// memoryHolder is a Holder in the same process. It fails while broken is set.
type memoryHolder struct {
	t      *testing.T
	mu     sync.Mutex
	broken bool
	busy   int // how often a Flush fails before one succeeds
	queued []hold.Held
	held   map[holdKey]hold.Held
}

func newMemoryHolder(t *testing.T) *memoryHolder {
	return &memoryHolder{t: t, held: make(map[holdKey]hold.Held)}
}

func (h *memoryHolder) Hold(key [2]uint64, label string, fds []int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := hold.Held{Key: key, Label: label}
	for _, fd := range fds {
		n, e := sys.Dup(fd)
		if e != 0 {
			return e
		}
		x.FDs = append(x.FDs, n)
	}
	h.queued = append(h.queued, x)
	return nil
}

func (h *memoryHolder) Drop(key [2]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range h.held[key].FDs {
		sys.Linux{}.Close(fd)
	}
	delete(h.held, key)
}

func (h *memoryHolder) Flush() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	queued := h.queued
	h.queued = nil
	broken := h.broken
	if len(queued) > 0 && h.busy > 0 {
		h.busy--
		broken = true
	}
	for _, x := range queued {
		if broken {
			for _, fd := range x.FDs {
				sys.Linux{}.Close(fd)
			}
			continue
		}
		if _, ok := h.held[x.Key]; ok {
			h.t.Errorf("key %x is held already", x.Key)
		}
		h.held[x.Key] = x
	}
	if broken && len(queued) > 0 {
		return errors.New("broken")
	}
	return nil
}

// of returns duplicates of what is held of a kind.
func (h *memoryHolder) of(kind holdKind) (all []hold.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, x := range h.held {
		if kindOf(k) == kind {
			d := hold.Held{Key: k, Label: x.Label}
			for _, fd := range x.FDs {
				n, _ := sys.Dup(fd)
				d.FDs = append(d.FDs, n)
			}
			all = append(all, d)
		}
	}
	return all
}

func (h *memoryHolder) set(broken bool) {
	h.mu.Lock()
	h.broken = broken
	h.mu.Unlock()
}

func (h *memoryHolder) count(kind holdKind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for k := range h.held {
		if kindOf(k) == kind {
			n++
		}
	}
	return n
}

var toEcho = ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }}}

// A listener that cannot be held works, and is held as soon as that is possible; one that was closed
// meanwhile is not.
func TestListenerIsHeldLater(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newMemoryHolder(t)
	e, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: h}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	h.set(true)
	a, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, toEcho)
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.Listen(Addr{Network: UDP, AddrPort: loopback}, toEcho)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, a)
	say(t, c, c, "text")
	c.Close()
	b.Close()
	h.set(false)
	testwait.Until(t, "it is held", func() bool { return h.count(holdListener) == 1 })
	for _, x := range h.of(holdListener) {
		if x.Label != a.Addr().String() {
			t.Errorf("held: %s, want %s", x.Label, a.Addr())
		}
		sys.Linux{}.Close(x.FDs[0])
	}
	e.Close()
	if n := len(h.held); n != 0 {
		t.Errorf("%d are held in the end: %v", n, h.held)
	}
}

// A socket that somebody else has bound, and gives to the next process as well, is one socket under the same
// key, whichever descriptor it came by. If it was held under two keys, one is dropped.
func TestInheritedListenerIsHeldOnce(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			testnet.CheckLeaks(t)
			h := newMemoryHolder(t)
			listen := func(e *Engine, bound any) *Listener {
				t.Helper()
				var l *Listener
				var err error
				if network == "tcp" {
					l, err = e.ListenOn(bound.(net.Listener), toEcho)
				} else {
					l, err = e.ListenOnPacket(bound.(net.PacketConn), toEcho)
				}
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			var bound any
			var err error
			if network == "tcp" {
				bound, err = net.Listen("tcp", "127.0.0.1:0")
			} else {
				bound, err = net.ListenPacket("udp", "127.0.0.1:0")
			}
			if err != nil {
				t.Fatal(err)
			}
			first, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: h}})
			if err != nil {
				t.Fatal(err)
			}
			listen(first, bound)
			held := h.of(holdListener)
			if len(held) != 1 {
				t.Fatalf("%d held", len(held))
			}
			again := hold.Held{Key: newHoldKey(holdListener, 0, 99, 1), Label: held[0].Label}
			again.FDs = append(again.FDs, held[0].FDs[0])
			h.Hold(again.Key, again.Label, again.FDs)
			h.Flush()
			h.Drop(newHoldKey(holdLedger, 0, 0, 1)) // the second engine has one of its own
			given := h.of(holdListener)
			second, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: h, Held: given}})
			if err != nil {
				t.Fatal(err)
			}
			if n := h.count(holdListener); n != 1 {
				t.Errorf("%d held, want one", n)
			}
			f := os.NewFile(uintptr(held[0].FDs[0]), "")
			if network == "tcp" {
				bound, err = net.FileListener(f)
			} else {
				bound, err = net.FilePacketConn(f)
			}
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			l := listen(second, bound)
			if n := h.count(holdListener); n != 1 || l.ports[0].socket().key != again.Key {
				t.Errorf("%d held, want one with the key %x; the listener has %x", n, again.Key, l.ports[0].socket().key)
			}
			if _, err := second.Restore(RestoreConfig{}); err != nil {
				t.Error(err)
			}
			if n := h.count(holdListener); n != 1 {
				t.Errorf("%d held", n)
			}
			first.Close()
			second.Close()
			h.set(true)
			for k := range h.held {
				if kindOf(k) != holdLedger {
					t.Errorf("held in the end: %x", k)
				}
			}
		})
	}
}

// Restore in a process that has none before it leaves alone the flows that have begun, and were settled, until then: they stay held.
func TestRestoreLeavesNewFlows(t *testing.T) {
	testnet.CheckLeaks(t)
	for _, at := range []Addr{{Network: TCP, AddrPort: loopback}, {Network: UDP, AddrPort: loopback}} {
		h := newMemoryHolder(t)
		e, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: h, After: -1}})
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Listen(at, toEcho)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial(l.Addr().Network.String(), l.Addr().String()[len("tcp://"):])
		if err != nil {
			t.Fatal(err)
		}
		say(t, c, c, "text")
		testwait.Until(t, "the flow is kept", func() bool { return e.Stats().Total().Kept == 1 })
		held := h.count(holdFlow) // none of a datagram flow without an upstream
		if r, err := e.Restore(RestoreConfig{}); err != nil || r.Flows != 0 || r.TotalLost() != 0 {
			t.Errorf("%v: %+v, %v", at.Network, r, err)
		}
		if n := h.count(holdFlow); n != held {
			t.Errorf("%v: %d flows are held, and %d before", at.Network, n, held)
		}
		e.onLoops(func(fl *Flow) {
			if k := e.streams.all[0].keep; k.ledger.Record(fl.slot).Generation() != fl.gen {
				t.Errorf("%v: the flow has no record", at.Network)
			}
		})
		say(t, c, c, "again")
		c.Close()
		e.Close()
	}
}

// A holder that is busy while a loop settles its last flows is asked again, and no flow is lost.
func TestSettleWithBusyHolder(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newMemoryHolder(t)
	e, err := New(Config{Loops: 1, Keep: &hold.Keep{Holder: h, After: patience}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, toEcho)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, l)
	defer c.Close()
	say(t, c, c, "text")
	h.mu.Lock()
	h.busy = 20
	h.mu.Unlock()
	s := e.streams.all[0]
	s.loop.Ask(func() {
		if !s.keep.settleAll(s.loop.Now) {
			t.Error("the holder has failed")
		}
	})
	if n := h.count(holdFlow); n != 1 {
		t.Errorf("%d flows are held, want 1", n)
	}
}
