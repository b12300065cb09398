package main

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
)

// The primary of a group is known to Consul only: while it is in maintenance its new clients are at the backup of the file, and when it is back
// their flows end. Those that it has kept go on.
func TestFlowsOfBackupsGoBackByRegistry(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	consul := testfleet.NewConsul(t)
	maintain := func(on bool) {
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(one.url(), "tcp://"))
		i := testfleet.ConsulInstance{ID: "one", Node: "n", Address: "127.0.0.1"}
		i.Port, _ = strconv.Atoi(port)
		if on {
			i.Checks = map[string]string{"_node_maintenance": "critical"}
		}
		consul.Set("web", i)
	}
	maintain(false)
	d := runFile(t, `
registries: {dc1: {consul: ["{0}"]}}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {up: {live-flows: close}, discover: [{consul: web}], members: [{name: two, to: "{1}", backup: true}]}}
`, consul.URL, two.url())
	d.memberIs("all", one.url(), "up")
	before := d.to("a")
	if n := name(t, before); n != "one" {
		t.Fatalf("a client is at %s", n)
	}
	maintain(true)
	d.memberIs("all", one.url(), "drained")
	c := d.to("a")
	if n := name(t, c); n != "two" {
		t.Fatalf("a client is at %s", n)
	}
	mustPing(t, c)
	maintain(false)
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "failback", "member", "two")
	mustPing(t, before)
}
