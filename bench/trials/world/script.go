//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/world"
)

// A script is one run: a configuration, and what happens. It is drawn by a seed, and is a file that can be run again.
type script struct {
	Seed   uint64 // of the load, too
	Config config
	Events []event
}

// A config is the model's configuration, of which the daemon's is written.
type config struct {
	Loops     int
	Sandbox   string // its mode
	User      string // the user that the daemon becomes; "": it stays who it is
	Groups    []*group
	Listeners []*listener
}

// A group has the first members of the model that have its network, and those that events give it.
type group struct {
	Name, Network, Balance string
	Members                []int // that the file has
}

// A listener is one of the daemon. Those that events add and remove carry no load.
type listener struct {
	Name, Network, Group string
	Port                 int
}

// An event is one thing that happens. What it names may not be there, if events before it were left out: then nothing happens.
type event struct {
	Do     string        // one of deeds
	Group  string        `json:",omitempty"`
	Member int           `json:",omitempty"`
	Value  string        `json:",omitempty"`
	Rest   time.Duration // before it
}

func (e event) String() string {
	what := e.Do
	if e.Member > 0 {
		what += fmt.Sprintf(" m%d", e.Member)
	}
	if e.Group != "" {
		what += " of " + e.Group
	}
	if e.Value != "" {
		what += " " + e.Value
	}
	return what
}

// deeds are what can happen, the more frequent ones several times, and how each is drawn.
var deeds = []struct {
	name string
	draw func(r *rand.Rand, c *config, e *event)
}{
	{"kill", func(r *rand.Rand, _ *config, e *event) {
		e.Value = pick(r, "killed", "killed", "segmentation fault", "aborted")
	}},
	{"upgrade", func(*rand.Rand, *config, *event) {}},
	{"add", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"add", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"remove", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"drain", anyMember},
	{"enable", anyMember},
	{"loops", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, "1", "2", "3", "4") }},
	{"sandbox", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, "on", "off", "log") }},
	{"balance", func(r *rand.Rand, c *config, e *event) { e.Group, e.Value = anyGroup(r, c), pick(r, balances...) }},
	{"file", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), fileMember+r.IntN(3) }},
	{"listener", func(r *rand.Rand, c *config, e *event) {
		e.Group, e.Value = "tcp", pick(r, "22001", "22002", "801", "802")
	}},
}

var balances = []string{"round-robin", "p2c", "least-connections", "random", "maglev, hash: 4-tuple"}

// Numbers of members: those that each group has always, those that a reload brings and takes, and those of the API. Each has a
// port of its own.
const (
	firstMember = 1
	fileMember  = 11
	addedMember = 21
	mostMembers = 30
)

func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

func anyGroup(r *rand.Rand, c *config) string { return c.Groups[r.IntN(len(c.Groups))].Name }

func anyMember(r *rand.Rand, c *config, e *event) {
	e.Group = anyGroup(r, c)
	e.Member = []int{firstMember, addedMember + r.IntN(4)}[r.IntN(2)]
}

// draw returns a script by its seed.
func draw(seed uint64, events int, root bool) *script {
	r := rand.New(rand.NewPCG(seed, 0))
	c := config{Loops: 1 + r.IntN(3), Sandbox: pick(r, "on", "on", "on", "off")}
	if root && r.IntN(2) == 0 {
		c.User = "65534:65534"
	}
	for _, network := range []string{"tcp", "udp"} {
		c.Groups = append(c.Groups, &group{Name: network, Network: network, Balance: pick(r, balances...), Members: []int{firstMember, firstMember + 1}})
	}
	low := 0 // of the ports
	if root && r.IntN(2) == 0 {
		low = 21000
	}
	c.Listeners = []*listener{
		{Name: "stream", Network: "tcp", Group: "tcp", Port: 21900 - low},
		{Name: "local", Network: "unix", Group: "tcp"},
		{Name: "datagram", Network: "udp", Group: "udp", Port: 21901 - low},
	}
	s := &script{Seed: seed, Config: c}
	for range events {
		d := deeds[r.IntN(len(deeds))]
		e := event{Do: d.name, Rest: time.Duration(r.IntN(1500)) * time.Millisecond}
		d.draw(r, &c, &e)
		if e.Do == "listener" && !root && len(e.Value) < 4 {
			e.Value = "22001" // nobody else has ports below 1024
		}
		s.Events = append(s.Events, e)
	}
	return s
}

func (c *config) group(name string) *group {
	return c.Groups[slices.IndexFunc(c.Groups, func(g *group) bool { return g.Name == name })]
}

// clone returns a copy that can be changed.
func (c *config) clone() *config {
	n := *c
	n.Groups, n.Listeners = nil, slices.Clone(c.Listeners)
	for _, g := range c.Groups {
		one := *g
		one.Members = slices.Clone(g.Members)
		n.Groups = append(n.Groups, &one)
	}
	return &n
}

// text returns the daemon's configuration.
func (c *config) text(p *places) string {
	var b strings.Builder
	user := ""
	if c.User != "" {
		user = fmt.Sprintf(", user: %q", c.User)
	}
	fmt.Fprintf(&b, "engine: {loops: %d}\nsandbox: {mode: %s%s}\nkeeper: {keep-after: %v, watchdog: 20s, max-restart-delay: 100ms, start-timeout: 20s, healthy-after: 500ms}\n", c.Loops, c.Sandbox, user, keepAfter)
	fmt.Fprintf(&b, "admin: {listen: \"unix://%s/admin\"}\naccess-log: {to: \"%s/access.log\"}\ndrain: 1s\nlog: {format: json, flows: none}\ngroups:\n", p.dir, p.dir)
	for _, g := range c.Groups {
		var members []string
		for _, n := range g.Members {
			members = append(members, fmt.Sprintf("{name: m%d, to: %q}", n, p.url(g, n)))
		}
		fmt.Fprintf(&b, "  %s: {balance: %s, members: [%s]}\n", g.Name, g.Balance, strings.Join(members, ", "))
	}
	fmt.Fprintln(&b, "listeners:")
	for _, l := range c.Listeners {
		idle := ""
		if l.Network == "udp" {
			idle = fmt.Sprintf(", timeouts: {idle: %v}", world.Idle)
		}
		fmt.Fprintf(&b, "  %s: {listen: \"%s://%s\", to: %s%s}\n", l.Name, l.Network, p.addr(l), l.Group, idle)
	}
	return b.String()
}
