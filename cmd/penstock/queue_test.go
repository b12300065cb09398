package main

import (
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Flows queue while the members are at their caps, up to a number and a time.
func TestQueue(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  long: {listen: "tcp://127.0.0.1:0", to: long}
  short: {listen: "tcp://127.0.0.1:0", to: short}
groups:
  long: {members: [{to: "{0}", max-flows: 1}], queue: {size: 4, timeout: 1m}}
  short: {members: [{to: "{0}", max-flows: 1}], queue: {size: 4, timeout: 100ms}}
`, up.url())
	mustQueue := func(group string, n int) {
		t.Helper()
		testwait.Until(t, "the flows are queued", func() bool {
			g, err := d.admin.Group(d.ctx(), group)
			return err == nil && g.Queue.Flows == n
		})
	}
	first := d.to("long")
	name(t, first)
	var row []net.Conn
	for i := range 4 {
		row = append(row, d.to("long"))
		mustQueue("long", i+1)
	}
	// They are listed with the state by which they can be filtered.
	if l, err := d.admin.Flows(d.ctx(), api.Filter{State: "queued"}, api.Page{}); err != nil || len(l.Flows) != len(row) || l.Flows[0].State != "queued" {
		t.Errorf("%d flows are queued, want %d: %+v, %v", len(l.Flows), len(row), l.Flows, err)
	}
	d.mustTurnAway("long", "")
	mustBe(t, d.records(1)[0], "cause", "no-upstream", "reason", "queue-full")
	for i, c := range row {
		first.Close()
		if n := name(t, c); n != "up" {
			t.Errorf("it went to %s", n)
		}
		mustQueue("long", len(row)-i-1)
		first = c
	}
	first.Close()
	queued := 0
	for _, r := range d.records(6) {
		if r["queued"] != nil {
			queued++
		}
	}
	if queued != len(row) {
		t.Errorf("%d records have a queue time, want %d", queued, len(row))
	}

	held := d.to("short")
	name(t, held)
	d.mustTurnAway("short", "")
	mustBe(t, d.records(7)[6], "cause", "queue-timeout", "reason", "queue-timeout", "listener", "short")
	g, err := d.admin.Groups(d.ctx())
	if err != nil || g.Groups[0].Queue.Full != 1 || g.Groups[0].Queue.QueuedTotal != 4 || g.Groups[1].Queue.TimedOut != 1 {
		t.Errorf("%v, %+v", err, g)
	}
	mustPing(t, held)
}

// The limits on a flow's time and bandwidth.
func TestFlowBounds(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	silent := testnet.Listen(t, "tcp4") // its accept queue takes clients, but nobody answers
	d := runFile(t, `
listeners:
  life: {listen: "tcp://127.0.0.1:0", timeouts: {life: 300ms}, to: "{0}"}
  first-byte: {listen: "tcp://127.0.0.1:0", timeouts: {first-byte: 100ms}, to: "{1}"}
  idle: {listen: "tcp://127.0.0.1:0", timeouts: {idle: 300ms}, to: "{0}"}
  narrow: {listen: "tcp://127.0.0.1:0", routes: [{name: all, from: 0.0.0.0/0, to: "{0}", bandwidth: 2MiB/s}]}
`, up.url(), url(silent.Addr()))
	for i, l := range []string{"life", "first-byte", "idle"} {
		d.mustTurnAway(l, "")
		mustBe(t, d.records(i + 1)[i], "cause", l, "listener", l)
	}
	c := d.to("narrow")
	name(t, c)
	began := time.Now()
	mustEcho(t, c, 2<<20, 64<<10)
	// A tenth of a second's worth is free at the start, in each direction.
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("2 MiB at 2 MiB/s took %v", took)
	}
}
