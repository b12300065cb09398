package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// When a member is added, flows of the others end one after the other, those that have moved no data for longest first, and not more than are too many.
func TestRebalance(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: least-connections, rebalance: {share: 1, tolerance: 0}, members: [{name: one, to: "{0}"}]}}
`, one.url())
	var flows []net.Conn
	for range 36 {
		c := d.to("a")
		if n := name(t, c); n != "one" {
			t.Fatalf("a client is at %s", n)
		}
		flows = append(flows, c)
	}
	mustPing(t, flows[0])
	began := time.Now()
	if _, err := d.admin.AddMember(d.ctx(), "all", api.NewMember{Name: "two", Address: two.url()}); err != nil {
		t.Fatal(err)
	}
	mustReset(t, flows[1])
	mustReset(t, flows[2])
	mustBe(t, d.records(1)[0], "cause", "rebalanced", "group", "all", "member", "one")
	n := d.metric("penstock_flows_ended_total", `cause="rebalanced"`)
	if took := time.Since(began); n < 1 || n > 3*(2+took.Seconds()/5) {
		t.Errorf("%v flows ended by the cause in %v; at most three do in five seconds", n, took)
	}
	mustPing(t, flows[0])
	mustPing(t, flows[len(flows)-1])
	c := d.to("a")
	if n := name(t, c); n != "two" {
		t.Errorf("who comes back is at %s", n)
	}
}

// Each flow has a duration of its own, at most life, and at least that without life-jitter.
func TestLifeJitter(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, timeouts: {life: 1h, life-jitter: 30m}}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`, one.url())
	limits := map[string]bool{}
	for range 8 {
		name(t, d.to("a"))
	}
	flows, err := d.admin.Flows(d.ctx(), api.Filter{}, api.Page{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows.Flows {
		detail, err := d.admin.Flow(d.ctx(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		if detail.LifeLimit > 3600 || detail.LifeLimit < 1800 {
			t.Errorf("a flow may last %v s", detail.LifeLimit)
		}
		limits[fmt.Sprint(detail.LifeLimit)] = true
	}
	if len(limits) != 8 {
		t.Errorf("8 flows have %d limits", len(limits))
	}
}
