//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// An endsConfig is of a daemon without load, whose clients hold their flows open: members go down and come back, parts of a route get other
// weights, clients are banned and listed, flows have a life, and find new members. The model says of each flow whether it goes on.
type endsConfig struct {
	Down, Up string // what becomes of live flows of the groups pool and grams: one of flowsWords
	Weights  [2]int // of the parts blue and green, in the file
	Header   string // which datagrams towards members have a PROXY header: one of headerWords
}

// flowsWords are what down and up may say. The end of drain is an hour away: no flow ends by it in a run.
var flowsWords = []string{"keep", "drain", "close"}

// The members of the group pool, of which the last one is a backup.
const (
	poolMembers = 4
	backup      = poolMembers
	poolPort    = 23020
)

// The life of flows of the listener short, and how much shorter it may be.
const (
	shortLife   = 4 * time.Second
	shortJitter = time.Second
)

// sources is from how many addresses clients come.
const sources = 3

// endsDeeds are what can happen to such a daemon.
var endsDeeds = []deed{
	{"stop", func(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(poolMembers) }},
	{"stop", func(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(poolMembers) }},
	{"start", func(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(poolMembers) }},
	{"start", func(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(poolMembers) }},
	{"stop-all", func(*rand.Rand, *config, *event) {}},
	{"stop-primaries", func(*rand.Rand, *config, *event) {}},
	{"start-all", func(*rand.Rand, *config, *event) {}},
	{"down", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, flowsWords...) }},
	{"up", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, flowsWords...) }},
	{"weights", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, partWeights...) }},
	{"file-weights", func(r *rand.Rand, _ *config, e *event) { e.Value = pick(r, partWeights...) }},
	{"ban", anySource},
	{"ban-and-end", anySource},
	{"unban", anySource},
	{"list", anySource},
	{"unlist", anySource},
	{"leave", anySpread},
	{"join", anySpread},
	{"join", anySpread},
	{"kill", anyKill},
	{"kill", anyKill},
	{"upgrade", func(*rand.Rand, *config, *event) {}},
	{"loops", anyLoops},
}

var partWeights = []string{"1 0", "0 1", "50 50", "0 100", "100 0", "30 70", "90 10"}

func anySpread(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(spreadMembers) }

func anySource(r *rand.Rand, _ *config, e *event) { e.Member = 1 + r.IntN(sources) }

// endsSeeds begins the random numbers that say which seeds have such a daemon, and what happens to it; see fleetSeeds.
const endsSeeds = 22

func drawEnds(r *rand.Rand, seed uint64, events int, root bool) *script {
	c := config{Loops: r.IntN(4), Sandbox: pick(r, "on", "on", "off"), Ends: &endsConfig{Down: pick(r, "close", "close", "drain", "keep"), Up: pick(r, "close", "close", "drain", "keep")}}
	fmt.Sscan(pick(r, partWeights...), &c.Ends.Weights[0], &c.Ends.Weights[1])
	c.Ends.Header = pick(r, headerWords...)
	if root && r.IntN(2) == 0 {
		c.User = "65534:65534"
	}
	s := &script{Seed: seed, Config: c}
	for range 2 * events { // they are quick
		d := endsDeeds[r.IntN(len(endsDeeds))]
		e := event{Do: d.name, Rest: time.Duration(r.IntN(600)) * time.Millisecond}
		d.draw(r, &c, &e)
		// What comes at once is what must find the daemon between two states.
		e.Close = (e.Do == "kill" || e.Do == "upgrade" || e.Do == "down" || e.Do == "up") && r.IntN(3) == 0
		s.Events = append(s.Events, e)
	}
	return s
}

// poolName is what a member of the group pool answers with.
func poolName(n int) string { return fmt.Sprintf("p%d", n) }

func (p *places) pool(n int) string    { return fmt.Sprintf("%s:%d", p.host, poolPort+n) }
func (p *places) part(i int) string    { return fmt.Sprintf("%s:%d", p.host, 23030+i) }
func (p *places) list() string         { return p.dir + "/drop.txt" }
func (p *places) ends(l string) string { return fmt.Sprintf("%s:%d", p.host, endsPorts[l]) }

// source returns an address that clients come from. That with the number 0 is never banned.
func (p *places) source(n int) string { return p.address(250 + n) }

// address returns one of the loopback addresses beside the daemon's.
func (p *places) address(n int) string {
	return fmt.Sprintf("%s.%d", p.host[:strings.LastIndexByte(p.host, '.')], n)
}

// endsPorts are the listeners' ports. pool and split have one group and two parts, and short is pool's first part with a life.
var endsPorts = map[string]int{"pool": 22101, "split": 22102, "short": 22103, "grams": 22104, "spread": 22105, "hashed": 22106}

// partNames are the parts of the listener split.
var partNames = [...]string{"blue", "green"}

func (c *endsConfig) lists(p *places) string {
	return fmt.Sprintf("lists: {drop: {file: %q, every: 1s}}\n", p.list())
}

func (c *endsConfig) groups(p *places) string {
	says := func(word string) string {
		if word == "drain" {
			return "{live-flows: drain, after: 1h}"
		}
		return "{live-flows: " + word + "}"
	}
	pool := func(name, network, more string) string {
		var members []string
		for n := 1; n <= poolMembers; n++ {
			more := fmt.Sprintf("check-port: %d", poolPort+n)
			if n == backup {
				more += ", backup: true"
			}
			members = append(members, fmt.Sprintf("{name: %s, to: \"%s://%s\", %s}", poolName(n), network, p.pool(n), more))
		}
		return fmt.Sprintf("  %s: {balance: round-robin, check: {tcp: {every: 100ms, timeout: 10s, rise: 1, fall: 2}}, down: %s, up: %s%s, members: [%s]}\n", name, says(c.Down), says(c.Up), more, strings.Join(members, ", "))
	}
	header := fmt.Sprintf(", proxy-protocol: {version: 2, datagrams: %s}", c.Header)
	text := pool("pool", "tcp", "") + pool("grams", "udp", header) + p.spreadGroup()
	for i, name := range partNames {
		text += fmt.Sprintf("  %s: {members: [\"tcp://%s\"]}\n", name, p.part(i))
	}
	return text
}

func (c *endsConfig) listeners(p *places) string {
	parts := fmt.Sprintf("to: [{group: %s, weight: %d}, {group: %s, weight: %d}]", partNames[0], c.Weights[0], partNames[1], c.Weights[1])
	return fmt.Sprintf("  pool: {listen: \"tcp://%s\", deny: [\"list:drop\"], to: pool}\n", p.ends("pool")) +
		fmt.Sprintf("  grams: {listen: \"udp://%s\", to: grams, timeouts: {idle: 1h}}\n", p.ends("grams")) +
		fmt.Sprintf("  spread: {listen: \"tcp://%s\", to: spread}\n", p.ends("spread")) +
		fmt.Sprintf("  split: {listen: \"tcp://%s\", %s}\n", p.ends("split"), parts) +
		fmt.Sprintf("  hashed: {listen: \"tcp://%s\", split-by: source, %s}\n", p.ends("hashed"), parts) +
		fmt.Sprintf("  short: {listen: \"tcp://%s\", to: %s, timeouts: {life: %v, life-jitter: %v}}\n", p.ends("short"), partNames[0], shortLife, shortJitter)
}
