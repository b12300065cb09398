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
	// Without are events, kinds of probed listeners and kinds of clients that are left out, because what they find is known.
	Without []string `json:",omitempty"`
}

// leaveOut leaves something out of what was drawn, and reports whether anything is left.
func (s *script) leaveOut(names []string) bool {
	s.Without = names
	s.Events = slices.DeleteFunc(s.Events, func(e event) bool { return slices.Contains(names, e.Do) })
	probed := len(s.Config.Probed) > 0
	if probed {
		s.Config.Probed = slices.DeleteFunc(s.Config.Probed, func(d *probedListener) bool { return slices.Contains(names, d.Kind) })
		if len(s.Config.Probed) == 0 {
			s.Config.Probed = []*probedListener{{Kind: "tcp", Port: 22444, Balance: balances[0]}}
		}
	}
	kind := "load"
	switch {
	case s.Config.Fleet != nil:
		kind = "fleet"
	case s.Config.Ends != nil:
		kind = "ends"
	case probed:
		kind = "probed"
	}
	return !slices.Contains(names, kind)
}

// A config is the model's configuration, of which the daemon's is written.
type config struct {
	Loops     int    // 0: one for each CPU
	CPUs      string `json:",omitempty"` // with which the service begins: as the event cpus has them
	Sandbox   string // its mode
	User      string // the user that the daemon becomes; "": it stays who it is
	Groups    []*group
	Listeners []*listener
	Probed    []*probedListener `json:",omitempty"` // if there are any, the daemon has no load, and no other listeners
	Ends      *endsConfig       `json:",omitempty"` // the same if it is there
	Fleet     *fleetConfig      `json:",omitempty"` // if it is there, nothing else counts
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
	For    time.Duration `json:",omitempty"` // link, registry: how long it lasts
	Canary bool          `json:",omitempty"` // publish: some relays try it first
	Oldest bool          `json:",omitempty"` // kill: the worker that serves, also if another one is about to take over
	Close  bool          `json:",omitempty"` // it follows the one before at once, in a fleet before that is over, and what is checked in between is left out
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
	if e.For > 0 {
		what += fmt.Sprintf(" for %v", e.For)
	}
	if e.Canary {
		what += ", with a canary"
	}
	if e.Oldest {
		what += ", the one that serves"
	}
	if e.Close {
		what += ", at once"
	}
	return what
}

// A deed is a kind of event.
type deed struct {
	name string
	draw func(r *rand.Rand, c *config, e *event)
}

// deeds are what can happen to a daemon with load, the more frequent ones several times, and how each is drawn.
var deeds = []deed{
	{"kill", anyKill},
	{"upgrade", func(*rand.Rand, *config, *event) {}},
	{"add", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"add", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"remove", func(r *rand.Rand, c *config, e *event) { e.Group, e.Member = anyGroup(r, c), addedMember+r.IntN(4) }},
	{"drain", anyMember},
	{"enable", anyMember},
	{"loops", anyLoops},
	{"cpus", anyCPUs},
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

func anyKill(r *rand.Rand, _ *config, e *event) {
	e.Value, e.Oldest = pick(r, "killed", "killed", "segmentation fault", "aborted"), r.IntN(2) == 0
}

func anyLoops(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, "0", "1", "2", "3", "4") } // 0: one for each CPU

func anyCPUs(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, "1", "all") }

func anyGroup(r *rand.Rand, c *config) string { return c.Groups[r.IntN(len(c.Groups))].Name }

func anyMember(r *rand.Rand, c *config, e *event) {
	e.Group = anyGroup(r, c)
	e.Member = []int{firstMember, addedMember + r.IntN(4)}[r.IntN(2)]
}

// fleetSeeds begins the random numbers that say which seeds have a fleet, and those of the fleets: the others, and what is known of them, are as they were before
// there were fleets.
const fleetSeeds = 21

// draw returns a script by its seed.
func draw(seed uint64, events int, root bool) *script {
	if r := rand.New(rand.NewPCG(seed, fleetSeeds)); r.IntN(4) == 0 {
		return drawFleet(r, seed, events)
	}
	if r := rand.New(rand.NewPCG(seed, endsSeeds)); r.IntN(4) == 0 {
		return drawEnds(r, seed, events, root)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	c := config{Loops: r.IntN(4), Sandbox: pick(r, "on", "on", "on", "off")}
	if root && r.IntN(2) == 0 {
		c.User = "65534:65534"
	}
	if r.IntN(2) == 0 {
		return drawProbed(r, seed, events, c, root)
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
		e := event{Do: d.name, Rest: time.Duration(r.IntN(1500)) * time.Millisecond, Close: r.IntN(4) == 0}
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
	n.Groups, n.Listeners, n.Probed = nil, slices.Clone(c.Listeners), slices.Clone(c.Probed)
	if c.Ends != nil {
		one := *c.Ends
		n.Ends = &one
	}
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
	engine := ""
	if c.Loops > 0 {
		engine = fmt.Sprintf("engine: {loops: %d}\n", c.Loops)
	}
	fmt.Fprintf(&b, "%ssandbox: {mode: %s%s}\nkeeper: {keep-after: %v, watchdog: 20s, max-restart-delay: 100ms, start-timeout: 20s, healthy-after: 500ms}\n", engine, c.Sandbox, user, keepAfter)
	drain := "1s"
	if len(c.Probed) > 0 {
		drain = "5s"
	} else if c.Ends != nil {
		drain = "20s" // all clients have left then: it is over at once, unless the machine is busy
	}
	fmt.Fprintf(&b, "admin: {listen: \"unix://%s\"}\naccess-log: {to: %q}\ndrain: %s\nlog: {format: json, flows: none}\n", p.admin(), p.own("access", ".log"), drain)
	if c.Ends != nil {
		b.WriteString(c.Ends.lists(p))
	}
	b.WriteString("groups:\n")
	for _, g := range c.Groups {
		var members []string
		for _, n := range g.Members {
			members = append(members, fmt.Sprintf("{name: m%d, to: %q}", n, p.url(g, n)))
		}
		fmt.Fprintf(&b, "  %s: {balance: %s, members: [%s]}\n", g.Name, g.Balance, strings.Join(members, ", "))
	}
	for _, d := range c.Probed {
		b.WriteString(d.groups(p))
	}
	if c.Ends != nil {
		b.WriteString(c.Ends.groups(p))
	}
	fmt.Fprintln(&b, "listeners:")
	if c.Ends != nil {
		b.WriteString(c.Ends.listeners(p))
	}
	for _, d := range c.Probed {
		b.WriteString(d.listener(p))
	}
	for _, l := range c.Listeners {
		idle := ""
		if l.Network == "udp" {
			idle = fmt.Sprintf(", timeouts: {idle: %v}", world.Idle)
		}
		fmt.Fprintf(&b, "  %s: {listen: \"%s://%s\", to: %s%s}\n", l.Name, l.Network, p.addr(l), l.Group, idle)
	}
	return b.String()
}
