//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A probedListener is one of a daemon without load, to which single clients come, of all kinds that there can be.
type probedListener struct {
	Kind    string   // one of probedKinds
	Port    int      `json:",omitempty"` // wide: any
	Balance string   // of its groups
	Offers  []string `json:",omitempty"` // tls: the listener's protocols
	Routes  []string `json:",omitempty"` // tls: the protocols that have routes, in their order
}

// probedKinds are a Unix listener of datagrams, a UDP listener at all addresses, one at one, and TCP listeners, one of which is where TLS
// ends.
var probedKinds = []string{"gram", "wide", "udp", "tcp", "tls"}

// protocols are those of TLS that clients and listeners may speak.
var protocols = []string{"h2", "http/1.1"}

// probedDeeds are what can happen to a daemon with them.
var probedDeeds = []deed{
	{"kill", anyKill},
	{"kill", anyKill},
	{"kill", anyKill},
	{"upgrade", func(*rand.Rand, *config, *event) {}},
	{"loops", anyLoops},
	{"loops", anyLoops},
	{"cpus", anyCPUs},
	{"cpus", anyCPUs},
	{"sandbox", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, "on", "off", "log") }},
	{"restart", func(*rand.Rand, *config, *event) {}},
}

// some returns a few of all, in any order.
func some(r *rand.Rand, all []string) []string {
	list := slices.Clone(all)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if n := r.IntN(len(list) + 1); n > 0 {
		return list[:n]
	}
	return nil
}

func drawProbed(r *rand.Rand, seed uint64, events int, c config, root bool) *script {
	if r.IntN(2) == 0 {
		c.Loops = 0
	}
	c.CPUs = pick(r, "1", "all")
	for _, kind := range probedKinds {
		if r.IntN(3) == 0 {
			continue
		}
		d := &probedListener{Kind: kind, Balance: pick(r, balances...)}
		switch kind {
		case "udp", "tcp", "tls":
			if d.Port = 22443; root && r.IntN(2) == 0 {
				d.Port = 843
			}
			if kind == "tcp" {
				d.Port++
			}
		}
		if kind == "tls" {
			d.Offers, d.Routes = some(r, protocols), some(r, protocols)
		}
		c.Probed = append(c.Probed, d)
	}
	if len(c.Probed) == 0 {
		c.Probed = []*probedListener{{Kind: "wide", Balance: balances[0]}}
	}
	s := &script{Seed: seed, Config: c}
	for range events {
		d := probedDeeds[r.IntN(len(probedDeeds))]
		e := event{Do: d.name, Rest: time.Duration(r.IntN(500)) * time.Millisecond, Close: r.IntN(5) < 2}
		d.draw(r, &c, &e)
		s.Events = append(s.Events, e)
	}
	return s
}

// group returns the name of the group for a protocol; "": for those without a route.
func (d *probedListener) group(protocol string) string {
	if protocol == "" {
		return d.Kind
	}
	return d.Kind + "-" + strings.ReplaceAll(protocol, "/", "-")
}

// upstreams are the addresses of the members of each group.
func (d *probedListener) upstreams(p *places) map[string][]string {
	switch d.Kind {
	case "gram":
		return map[string][]string{d.group(""): {"unixgram://" + p.dir + "/gram-1"}}
	case "wide":
		return map[string][]string{d.group(""): {"udp://" + p.host + ":23001", "udp://" + p.host + ":23002"}}
	case "udp":
		return map[string][]string{d.group(""): {"udp://" + p.host + ":23003", "udp://" + p.host + ":23004"}}
	}
	if d.Kind == "tcp" {
		return map[string][]string{d.group(""): {"tcp://" + p.host + ":23005", "tcp://" + p.host + ":23006"}}
	}
	all := map[string][]string{d.group(""): {"tcp://" + p.host + ":23010"}}
	for i, protocol := range protocols {
		all[d.group(protocol)] = []string{fmt.Sprintf("tcp://%s:%d", p.host, 23011+i)}
	}
	return all
}

func (d *probedListener) groups(p *places) string {
	var b strings.Builder
	all := d.upstreams(p)
	for _, name := range append([]string{""}, protocols...) {
		if members := all[d.group(name)]; len(members) > 0 {
			fmt.Fprintf(&b, "  %s: {balance: %s, members: [%q]}\n", d.group(name), d.Balance, strings.Join(members, `", "`))
		}
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

// addr is where clients find it.
func (d *probedListener) addr(p *places) string {
	switch d.Kind {
	case "gram":
		return p.dir + "/gram"
	case "wide":
		return fmt.Sprintf("%s:%d", p.host, p.wide)
	}
	return fmt.Sprintf("%s:%d", p.host, d.Port)
}

func (d *probedListener) listener(p *places) string {
	at := map[string]string{"gram": "unixgram://", "wide": "udp://", "udp": "udp://", "tcp": "tcp://", "tls": "tcp://"}[d.Kind] + d.addr(p)
	if d.Kind == "wide" {
		at = fmt.Sprintf("udp://0.0.0.0:%d", p.wide)
	}
	if d.Kind != "tls" {
		return fmt.Sprintf("  %s: {listen: %q, to: %s}\n", d.Kind, at, d.group(""))
	}
	alpn, routes := "", ""
	if len(d.Offers) > 0 {
		alpn = fmt.Sprintf(", alpn: [%s]", strings.Join(d.Offers, ", "))
	}
	for _, protocol := range d.Routes {
		routes += fmt.Sprintf("{alpn: %s, to: %s}, ", protocol, d.group(protocol))
	}
	return fmt.Sprintf("  tls: {listen: %q, tls: {certificates: [{certificate: %q, key: %q}]%s}, routes: [%s], to: %s}\n", at, p.pair.Certificate, p.pair.Key, alpn, strings.TrimSuffix(routes, ", "), d.group(""))
}
