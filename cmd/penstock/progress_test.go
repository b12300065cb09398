package main

import (
	"net"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	engine "github.com/penstock/penstock/relay"
)

// blackHole returns an address where attempts to connect get no answer, because the accept queue of
// its listener is full.
func blackHole(t *testing.T) string {
	t.Helper()
	const backlog = 1
	e, err := engine.New(engine.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	l, err := e.Listen(engine.Addr{Network: engine.TCP, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}, engine.ListenConfig{
		Hooks:   engine.Hooks{Upstream: func(*engine.Flow, int) *engine.Addr { return nil }},
		Backlog: backlog,
		Paused:  true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range backlog + 1 { // as many as it takes
		c, err := net.DialTimeout("tcp", l.Addr().AddrPort.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	return l.Addr().String()
}

// numbers holds the counters of a listener, its route, its group and its member.
func (c *configured) numbers(listener, group string) (all [4]api.Numbers) {
	c.t.Helper()
	ls, err := c.admin.Listeners(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	gs, err := c.admin.Groups(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range ls.Listeners {
		if l.Name == listener {
			all[0], all[1] = l.Numbers, l.Routes[0].Numbers
		}
	}
	for _, g := range gs.Groups {
		if g.Name == group {
			all[2], all[3] = g.Numbers, g.Members[0].Numbers
		}
	}
	return all
}

// Flows count from their first step on: while they are sniffed, connecting and queued; and their
// counters balance at the end.
func TestFlowsInProgressAreCounted(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
defaults: {timeouts: {connect: 1m}}
listeners:
  hole: {listen: "tcp://127.0.0.1:0", to: hole}
  queue: {listen: "tcp://127.0.0.1:0", to: queue}
  sniff: {listen: "tcp://127.0.0.1:0", sniff: {timeout: 1m}, routes: [{name: tls, sni: a.test, to: hole}], to: queue}
groups:
  hole: {members: ["{0}"]}
  queue: {members: [{to: "{1}", max-flows: 1}], queue: {size: 9, timeout: 1m}}
`, blackHole(t), up.url())
	const n = 5
	open := func(listener string) (conns []net.Conn) {
		for range n {
			conn := d.to(listener)
			conn.(*net.TCPConn).SetLinger(0) // a reset: a FIN would be a half-close
			conns = append(conns, conn)
		}
		return conns
	}
	flows := func(what, listener, group string, want ...int64) {
		t.Helper()
		var got [4]int64
		testwait.Until(t, what, func() bool {
			for i, v := range d.numbers(listener, group) {
				got[i] = v.Flows
			}
			for i, w := range want {
				if got[i] != w {
					return false
				}
			}
			return true
		})
	}
	a := open("hole")
	flows("flows that connect", "hole", "hole", n, n, n, n)
	b := open("sniff")
	flows("flows that are sniffed", "sniff", "hole", n, 0, n, n)
	c := open("queue")
	flows("one flow, and those that wait for it to end", "queue", "queue", n, n, n, 1)
	for _, v := range d.numbers("hole", "hole") {
		if v.Begun != n {
			t.Errorf("%d have begun, want %d", v.Begun, n)
		}
	}
	if s, err := d.admin.Status(d.ctx()); err != nil || s.Totals.Flows != 3*n || s.Totals.Begun != 3*n {
		t.Errorf("totals %+v, %v", s.Totals, err)
	}
	closeAll(a)
	closeAll(b)
	closeAll(c)
	flows("none is open", "hole", "hole", 0, 0, 0, 0)
	flows("none is open", "sniff", "hole", 0, 0)
	flows("none is open", "queue", "queue", 0, 0, 0, 0)
	for _, listener := range []string{"hole", "sniff", "queue"} {
		if v := d.numbers(listener, "hole")[0]; v.Begun != n {
			t.Errorf("%s: %d have begun, want %d", listener, v.Begun, n)
		}
	}
}

// A datagram flow that ends because its upstream is gone does not count as refused, and its connect
// counts.
func TestUnreachableIsNoRefusal(t *testing.T) {
	t.Parallel()
	d := runFile(t, `
log: {flows: all}
listeners: {u: {listen: "udp://127.0.0.1:0", to: "udp://127.0.0.1:{0}"}}
`, testnet.Port(t))
	if _, err := datagramClient(t, d.daemon).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if f := d.line("flow"); f["cause"] != "upstream-refused" || f["reason"] != nil {
		t.Errorf("%v", f)
	}
	if n := d.metric("penstock_refusals_total", `listener="u",reason="connect-failed"`); n != 0 {
		t.Errorf("%v refusals", n)
	}
}

// Each reason counts in penstock_refusals_total, including those that a flow meets after it has a
// group; and a flow's detail has its times.
func TestRefusalsOfGroups(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  none: {listen: "tcp://127.0.0.1:0", to: none}
  full: {listen: "tcp://127.0.0.1:0", to: full}
groups:
  none: {members: [{to: "tcp://127.0.0.1:9", drained: true}]}
  full: {members: [{to: "{0}", max-flows: 1}], queue: {size: 1, timeout: 1m}}
`, up.url())
	d.mustTurnAway("none", "x")
	first := d.to("full")
	name(t, first)
	second := d.to("full")
	testwait.Until(t, "it waits", func() bool {
		gs, err := d.admin.Groups(d.ctx())
		return err == nil && gs.Groups[1].Queue.Flows == 1
	})
	d.mustTurnAway("full", "x")
	for reason, listener := range map[string]string{"no-member": "none", "queue-full": "full"} {
		testwait.Until(t, reason, func() bool {
			return d.metric("penstock_refusals_total", `listener="`+listener+`",reason="`+reason+`"`) == 1
		})
	}
	detail := func() (f api.FlowDetail) {
		t.Helper()
		list, err := d.admin.Flows(d.ctx(), api.Filter{}, api.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Flows {
			if one.Client.AddrPort.String() == second.LocalAddr().String() {
				if f, err = d.admin.Flow(d.ctx(), one.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		return f
	}
	if f := detail(); f.Queued <= 0 || f.Connect != 0 || f.Peer.AddrPort.String() != second.LocalAddr().String() {
		t.Errorf("in the queue: %+v", f)
	}
	first.Close()
	name(t, second)
	if f := detail(); f.Queued <= 0 || f.Connect < f.Queued || f.FirstByte <= 0 {
		t.Errorf("connected: %+v", f)
	}
}
