package relay

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Options of listeners' sockets in a simulation, which change from process to process, and by Update.

// simSockets are the options that a listener may have.
var simSockets = [...]SocketOptions{
	{},
	{DSCP: 10, KeepAlive: 30 * time.Second},
	{DSCP: 46, Nagle: true, UserTimeout: 5 * time.Second},
	{KeepAlive: 90 * time.Second, KeepAliveInterval: 7 * time.Second, KeepAliveCount: 3, Mark: 5},
	{Transparent: true}, // is not drawn
}

const simSocketsDrawn, simSocketTransparent = 4, 4

// listenConfig returns what listeners are made with.
func (s *simulation) listenConfig() ListenConfig {
	return ListenConfig{
		Hooks:    Hooks{Admit: s.admit, Sniff: s.sniff, Upstream: s.choose, Connected: s.connected, Answered: s.answered, Secured: s.secured, Done: s.done, Encode: encodeNumber, Decode: decodeNumber},
		Timeouts: s.timeouts(),
		Socket:   simSockets[s.socket],
	}
}

// listeners returns them in an order that is always the same.
func (s *simulation) listeners() []*Listener {
	return slices.SortedFunc(maps.Keys(s.core.listeners), func(a, b *Listener) int { return int(a.addr.Network) - int(b.addr.Network) })
}

// update gives the listeners other options. Two of them cannot be taken back.
func (s *simulation) update(n int) bool {
	if s.updates == 0 || s.core.state != running {
		return false
	}
	before := s.socket
	s.socket = n % simSocketsDrawn
	refused := simSockets[before].KeepAliveCount > 0 && simSockets[s.socket].KeepAliveCount == 0
	s.call(func() {
		for _, l := range s.listeners() {
			err := l.Update(s.listenConfig())
			if (err != nil) != (refused && l.addr.Network == TCP) {
				s.fail("update of %v from %+v to %+v: %v", l.addr, simSockets[before], simSockets[s.socket], err)
			}
		}
	})
	if refused {
		s.socket = before
	}
	return s.socket != before
}

// lookAtOptions checks that the sockets of listeners have the options of their configuration.
func (s *simulation) lookAtOptions() {
	if s.updates == 0 || s.core.state != running {
		return
	}
	want := &simSockets[s.socket]
	for _, l := range s.listeners() {
		if l.addr.Network != TCP {
			continue
		}
		for _, p := range l.sockets() {
			fd := p.socket().fd
			get := func(o sys.Option) int {
				n, e := o.Get(s.process, fd)
				if e != 0 {
					s.fail("an option of a listener: %v", e)
				}
				return n
			}
			got := SocketOptions{DSCP: uint8(get(sys.TypeOfService) >> 2), Nagle: get(sys.NoDelay) == 0, UserTimeout: time.Duration(get(sys.UserTimeout)) * time.Millisecond, Mark: uint32(get(sys.Mark)),
				KeepAliveInterval: want.KeepAliveInterval, KeepAliveCount: want.KeepAliveCount}
			if get(sys.KeepAlive) != 0 {
				got.KeepAlive = time.Duration(get(sys.KeepAliveIdle)) * time.Second
			}
			if want.KeepAliveCount > 0 {
				got.KeepAliveInterval, got.KeepAliveCount = time.Duration(get(sys.KeepAliveInterval))*time.Second, get(sys.KeepAliveCount)
			}
			full := *want
			if full.KeepAlive == 0 {
				full.KeepAlive = got.KeepAlive // the default
			}
			if got != full {
				s.fail("a socket of %v has the options %+v, and its listener %+v", l.addr, got, full)
			}
		}
	}
}

// TestSimulateUnfitSockets has a process find sockets of listeners that lack an option which only a new socket can have: it listens with new ones.
func TestSimulateUnfitSockets(t *testing.T) {
	for _, loops := range []int{1, 2} {
		s := newSimulation(simSettings{loops: loops})
		s.connect(0, 0)
		s.settle(false)
		before := map[int]bool{}
		for _, p := range s.listeners()[0].sockets() {
			n, _ := s.process.Number(p.socket().fd)
			before[n] = true
		}
		s.socket = simSocketTransparent
		s.kill()
		s.settle(false) // the holder lets go of the others
		for _, l := range s.listeners() {
			for _, p := range l.sockets() {
				if n, _ := s.process.Number(p.socket().fd); l.addr.Network == TCP && before[n] {
					t.Errorf("%d loops: %v has a socket that it had", loops, l.addr)
				}
				if n, e := sys.Transparent.Get(s.process, p.socket().fd); l.addr.Network == TCP && (n != 1 || e != 0) {
					t.Errorf("%d loops: a socket of %v has %d, %v as IP_TRANSPARENT", loops, l.addr, n, e)
				}
			}
			if l.degraded != nil {
				t.Errorf("%d loops: %v lacks something: %v", loops, l.addr, l.degraded)
			}
		}
		s.connect(0, 0)
		s.settle(false)
		s.quiet()
		s.settle(true)
		s.check()
		if s.finish(); s.wrong != nil {
			t.Fatal(s.wrong)
		}
	}
}
