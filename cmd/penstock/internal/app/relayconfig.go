package app

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// config returns the command line of penstock relay as a configuration of one
// listener and one group. From there on penstock relay and penstock run are the same.
func (c *relayCmd) config() *spec.Config {
	group := &spec.Group{
		Name: "upstreams", Balance: "round-robin", Retries: max(len(c.Upstreams)-1, retriesOfNames),
		Lookups:  spec.Lookups{Keep: 30 * time.Second, Vanish: 0.5},
		Timeouts: spec.GroupTimeouts{Connect: time.Duration(c.ConnectTimeout)},
	}
	for _, u := range c.Upstreams {
		group.Members = append(group.Members, spec.Member{Name: u.String(), To: u.Endpoint, Weight: 1})
	}
	tcp := spec.Socket{
		Nagle:       c.Nagle,
		KeepAlive:   time.Duration(c.KeepAlive),
		UserTimeout: time.Duration(c.UserTimeout),
		RecvBuffer:  int(c.RecvBuffer),
		SendBuffer:  int(c.SendBuffer),
	}
	group.Dial.TCP = tcp
	for _, s := range c.Source {
		group.Dial.Source = append(group.Dial.Source, s.Addr)
	}
	l := &spec.Listener{
		Name: "relay", Listen: c.Listen.Endpoint, Datagrams: !c.Listen.Kind.Streams(),
		Mode: uint32(c.SocketMode), Backlog: int(c.Backlog), TCP: tcp,
		Timeouts: spec.Timeouts{
			Connect: time.Duration(c.ConnectTimeout), Idle: c.idleTimeout(), HalfClosed: time.Duration(c.HalfClosedTimeout),
		},
		Replies: int(c.Replies), Unreachable: c.Unreachable,
		To: spec.Only(group),
	}
	l.Default = &spec.Route{Name: "default", To: l.To, Timeouts: l.Timeouts, Removed: spec.LiveFlows{What: "keep"}}
	pipes := int(c.Pipes)
	if c.NoSplice {
		pipes = -1
	}
	var keep *spec.Keeper
	if c.Keep {
		k := spec.DefaultKeeper
		keep = &k
	}
	return &spec.Config{
		Keeper: keep,
		Engine: spec.Engine{
			Loops: int(c.Loops), Pipes: pipes, NoGSO: c.NoGSO, NoGRO: c.NoGRO,
			MaxFlows: int(c.MaxFlows), MaxNewFlows: int(c.MaxNewFlows),
		},
		Log:       spec.Log{Level: c.LogLevel, Format: c.LogFormat, Flows: c.LogFlows},
		Sandbox:   spec.Sandbox{Mode: c.Sandbox},
		Drain:     time.Duration(c.DrainTimeout),
		Listeners: []*spec.Listener{l},
		Groups:    []*spec.Group{group},
	}
}

// retriesOfNames is how many more members are tried when a name has several addresses.
const retriesOfNames = 15

// idleTimeout returns the idle timeout. By default it is none for streams, and that of
// a configuration for datagrams.
func (c *relayCmd) idleTimeout() time.Duration {
	switch {
	case c.IdleTimeout != nil:
		return time.Duration(*c.IdleTimeout)
	case c.Listen.Kind.Streams():
		return 0
	}
	return config.DatagramIdle
}
