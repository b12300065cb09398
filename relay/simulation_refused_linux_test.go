package relay

import (
	"math"
	"net/netip"
	"time"
)

// simRefused are configurations that no listener is made with. Each changes one thing of a configuration that is taken.
var simRefused = [...]func(*ListenConfig){
	func(c *ListenConfig) { c.Hooks.Upstream = nil },
	func(c *ListenConfig) { c.Backlog = -1 },
	func(c *ListenConfig) { c.Mode = 0o1000 },
	func(c *ListenConfig) { c.Datagram.Replies = -1 },
	func(c *ListenConfig) { c.Datagram.Amplification = -1 },
	func(c *ListenConfig) { c.Datagram.OnUnreachable = UnreachableIgnore + 1 },
	func(c *ListenConfig) { c.Datagram.TOS = TOSCopy + 1 },
	func(c *ListenConfig) { c.Socket.DSCP = 64 },
	func(c *ListenConfig) { c.Socket.FastOpen = -1 },
	func(c *ListenConfig) { c.Socket.KeepAlive = -time.Second },
	func(c *ListenConfig) { c.Socket.KeepAliveInterval = -time.Second },
	func(c *ListenConfig) { c.Socket.KeepAliveCount = -1 },
	func(c *ListenConfig) { c.Socket.UserTimeout = math.MaxInt64 },
	func(c *ListenConfig) { c.Socket.RecvBuffer = -1 },
	func(c *ListenConfig) { c.Socket.SendBuffer = -1 },
	func(c *ListenConfig) { c.Dial = &DialConfig{Source: make([]netip.Addr, 1)} },
	func(c *ListenConfig) { c.Dial = &DialConfig{Socket: SocketOptions{DSCP: 64}} },
}

// refusesConfigs checks that the first process makes no listener with any of them at an address, that an update takes none of them, and that nothing is
// open afterwards that was not.
func (s *simulation) refusesConfigs(l *Listener) {
	if s.processes > 1 || s.wrong != nil {
		return
	}
	open := s.process.Open()
	for i, spoil := range simRefused {
		c := *l.cfg.Load()
		spoil(&c)
		if _, err := (&Engine{s.core}).Listen(l.addr, c); err == nil {
			s.fail("a listener is made with configuration %d of those that are refused", i)
		}
		if err := l.Update(c); err == nil {
			s.fail("a listener is updated with configuration %d of those that are refused", i)
		}
	}
	if n := s.process.Open(); n != open {
		s.fail("%d descriptors were open, and are %d after configurations that are refused", open, n)
	}
}
