//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A fleetConfig describes relays that get their configuration from etcd. A script that has one starts no other daemon.
type fleetConfig struct {
	Relays  int
	Kept    bool          // they have keepers
	Sandbox string        // its mode
	Share   string        // of the relays that try a version
	Wait    time.Duration // how long it is tried
}

// fleetDeeds are what can happen to a fleet.
var fleetDeeds = []deed{
	{"publish", anyPublish},
	{"publish", anyPublish},
	{"publish", anyPublish},
	{"publish", anyPublish},
	{"outage", anyOutage},
	{"rollback", func(*rand.Rand, *config, *event) {}},
	{"registry", func(r *rand.Rand, _ *config, e *event) { e.For = time.Duration(r.IntN(8000)) * time.Millisecond }},
	{"link", anyLink},
	{"link", anyLink},
	{"link", anyLink},
	{"link", anyLink},
	{"relay", func(r *rand.Rand, c *config, e *event) {
		e.Member, e.Value = 1+r.IntN(c.Fleet.Relays), pick(r, "killed", "stopped", "worker killed")
	}},
}

func anyPublish(r *rand.Rand, _ *config, e *event) {
	e.Value, e.Canary = pick(r, balances...), r.IntN(3) == 0
}

// parties are whose link something is wrong with: that of whoever publishes, of one relay, or of all of them.
var parties = []string{"tool", "tool", "relay", "all"}

func anyLink(r *rand.Rand, c *config, e *event) {
	e.Value, e.Group, e.Member = pick(r, linkFaults...), pick(r, parties...), 1+r.IntN(c.Fleet.Relays)
	e.For = time.Duration(2000+r.IntN(16000)) * time.Millisecond
}

func anyOutage(r *rand.Rand, _ *config, e *event) {
	e.Value, e.Canary = pick(r, outages...), true // nobody publishes one to all at once
}

// outages are versions with which nobody is served: the listener is elsewhere, or nobody, or nobody who answers, is behind it.
var outages = []string{"elsewhere", "nobody", "closes", "silent", "denied", "removed"}

func drawFleet(r *rand.Rand, seed uint64, events int) *script {
	c := config{Fleet: &fleetConfig{Relays: 3 + r.IntN(2), Kept: r.IntN(2) == 0, Sandbox: pick(r, "on", "off"), Share: pick(r, "25%", "50%"), Wait: time.Duration(5+r.IntN(4)) * time.Second}}
	s := &script{Seed: seed, Config: c}
	for range events {
		d := fleetDeeds[r.IntN(len(fleetDeeds))]
		e := event{Do: d.name, Rest: time.Duration(r.IntN(4000)) * time.Millisecond, Close: r.IntN(3) > 0}
		d.draw(r, &c, &e)
		s.Events = append(s.Events, e)
	}
	return s
}

// text returns version n of a fleet's configuration, with a balancer, or one of outages. Its members, and only they, have its number in their
// names.
func (c *fleetConfig) text(p *places, n int, what string) string {
	var b strings.Builder
	keeper := ""
	if c.Kept {
		keeper = "keeper: {keep-after: 200ms, max-restart-delay: 100ms, start-timeout: 20s, healthy-after: 500ms}\n"
	}
	balance := balances[0]
	if slices.Contains(balances, what) {
		balance = what
	}
	host, to, more := "${HOST}", []string{p.fleetMember("one"), p.fleetMember("two")}, ""
	switch what {
	case "elsewhere":
		host = "127.0.0.3"
	case "denied":
		more = ", allow: [192.0.2.0/24]"
	case "nobody", "closes", "silent":
		to = []string{p.fleetMember(what)}
	}
	web := fmt.Sprintf("  web: {listen: \"tcp://%s:${WEB}\", to: web%s}\n", host, more)
	if what == "removed" {
		web = ""
	}
	var members []string
	for i, at := range to {
		members = append(members, fmt.Sprintf("{name: v%d-%d, to: \"tcp://%s\"}", n, i, at))
	}
	fmt.Fprintf(&b, "sandbox: {mode: %s}\n%sadmin: {listen: \"unix://${ADMIN}\"}\ndrain: 1s\nlog: {format: json, flows: none}\nlisteners:\n%s", c.Sandbox, keeper, web)
	fmt.Fprintf(&b, "  dns: {listen: \"udp://${HOST}:${DNS}\", to: dns, timeouts: {idle: 2s}}\ngroups:\n  web: {balance: %s, members: [%s]}\n", balance, strings.Join(members, ", "))
	fmt.Fprintf(&b, "  dns: {members: [\"udp://%s\"]}\n", p.fleetMember("udp"))
	return b.String()
}

// fleetMembers are the upstreams of a fleet.
var fleetMembers = []string{"one", "two", "closes", "silent", "udp", "nobody"}

func (p *places) fleetMember(name string) string {
	return fmt.Sprintf("%s:%d", p.host, 23001+slices.Index(fleetMembers, name))
}
