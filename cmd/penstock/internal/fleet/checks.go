package fleet

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// Checks shares the health checks of members among the relays of a fleet. Each member is checked by a few of
// them, which write what they found; all follow that.
//
//	KEY/checkers/NODE        which checks the relay takes part in, with its lease
//	KEY/checks/MEMBER/NODE   what the relay found of a member, with its lease; written when it changes
//
// Who checks a member is decided by rendezvous hashing of the relays over the member, by each relay for itself: a
// relay that comes or goes moves only the members that it checks. A relay that leaves a member to another one goes
// on until that one has written what it found. If too little is known of a member, because the others do
// not have it or etcd is away, the relay checks it for itself and says so to nobody.
type Checks struct {
	cfg ChecksConfig

	mu       sync.Mutex
	members  map[string]*sharedMember     // by id
	scopes   map[string]int               // how many members have it
	lease    etcd.LeaseID                 // 0: this relay is not present
	scoped   bool                         // scopes or nodes have changed
	rankedAt time.Time                    // when that was last taken into account
	stale    map[string]bool              // members to look at
	write    map[string]bool              // members whose result is to be written or removed
	wake     chan struct{}                // receives when there is something to decide
	writes   chan struct{}                // receives when there is something to write
	said     string                       // the scopes as they were written last; empty: they are to be written
	saidMod  int64                        // revision of that
	nodes    map[string]map[string]bool   // scopes, by node
	ranked   map[string][]rankedNode      // nodes, by scope
	results  map[string]map[string]Result // by member and node, also of members that this relay does not have
	listed   [2]bool                      // checkers, results: there was a list
	lost     [2]bool                      // checkers, results: there is no contact
	away     time.Time                    // since when the relay is not present, or there is no contact; zero: all is well
	alone    bool                         // this relay checks everything for itself
	joins    time.Time                    // when it stops to
}

// ChecksConfig configures Checks. Times are 0 for their defaults.
type ChecksConfig struct {
	Node  string
	Grace time.Duration // without contact, after which a relay checks for itself; 10 s
	Tell  func(level slog.Level, message string, err error)
}

type rankedNode struct {
	name string
	hash uint64
}

// A SharedCheck is a member whose checks are shared.
type SharedCheck struct {
	Scope    string        // says which group it is and how it is checked: what relays must agree in to believe each other
	Member   string        // in the scope
	Checkers int           // how many relays check it
	Patience time.Duration // how long the relay waits for what others find before it checks for itself
	// Update is called on another goroutine when what it is given has changed. It may block.
	Update func(Share)
}

// A Share is what a relay has to do with a member.
type Share struct {
	Check bool   // this relay checks the member
	Known bool   // what is found is known, by the majority of those who check
	Up    bool   // what is found
	Why   string // who found it
}

// A Result is what a relay found of a member.
type Result struct {
	Up  bool   `json:"up"`
	Why string `json:"why,omitempty"`
}

type sharedMember struct {
	SharedCheck
	id      string
	hash    uint64
	share   Share
	own     *Result   // nil: none yet
	written *Result   // what etcd has, with the present lease; nil: nothing
	mod     int64     // revision of the last write that was answered
	missing time.Time // since when too little is known; zero: enough
	publish bool      // this relay is one of those who check the member, or was
	left    bool
}

// NewChecks returns Checks. Until Run has contact, the relay checks for itself.
func NewChecks(cfg ChecksConfig) *Checks {
	if cfg.Grace <= 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Tell == nil {
		cfg.Tell = func(slog.Level, string, error) {}
	}
	return &Checks{
		cfg: cfg, members: map[string]*sharedMember{}, scopes: map[string]int{}, wake: make(chan struct{}, 1), writes: make(chan struct{}, 1),
		stale: map[string]bool{}, write: map[string]bool{}, nodes: map[string]map[string]bool{}, ranked: map[string][]rankedNode{}, results: map[string]map[string]Result{},
		away: time.Now(), alone: true,
	}
}

// firstContact is how long a relay that has just started waits for contact before it checks for itself.
const firstContact = 3 * time.Second

// Expect says that Run will be called soon, so that the relay does not check all members while it starts.
func (c *Checks) Expect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone, c.away = false, time.Now().Add(min(0, firstContact-c.cfg.Grace))
}

// A SharedMember is a member for as long as this relay has it.
type SharedMember struct {
	c *Checks
	m *sharedMember
}

// Share begins to share the checks of a member. It returns what holds at first.
func (c *Checks) Share(s SharedCheck) (*SharedMember, Share) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &sharedMember{SharedCheck: s, id: memberID(s.Scope, s.Member), missing: time.Now()}
	m.Scope = scopeID(s.Scope)
	m.hash = hash64(m.id)
	if c.members[m.id] != nil { // the same member twice in a group: the second one checks for itself
		m.share = Share{Check: true}
		m.left = true
		return &SharedMember{c, m}, m.share
	}
	c.members[m.id] = m
	if c.scopes[m.Scope]++; c.scopes[m.Scope] == 1 {
		c.scoped = true
	}
	c.decide(m, time.Now())
	poke(c.wake)
	poke(c.writes)
	return &SharedMember{c, m}, m.share
}

// Found says what this relay's own checks say of the member now.
func (s *SharedMember) Found(up bool, why string) {
	c, m := s.c, s.m
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.left || m.own != nil && m.own.Up == up {
		return
	}
	m.own = &Result{Up: up, Why: shorten(why)}
	if m.publish {
		c.write[m.id] = true
		poke(c.writes)
	}
}

// Leave ends it. Update may still be called once.
func (s *SharedMember) Leave() {
	c, m := s.c, s.m
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.left {
		return
	}
	m.left, m.own = true, nil
	delete(c.members, m.id)
	if c.scopes[m.Scope]--; c.scopes[m.Scope] == 0 {
		delete(c.scopes, m.Scope)
		c.scoped = true
	}
	c.write[m.id] = true
	poke(c.wake)
	poke(c.writes)
}

func scopeID(scope string) string          { return fmt.Sprintf("%016x", hash64(scope)) }
func memberID(scope, member string) string { return fmt.Sprintf("%016x", hash64(scope+"\x00"+member)) }

func hash64(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return mix(h.Sum64())
}

// mix is the last step of SplitMix64: each bit of x decides over all bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// rankOf returns how a node is ranked for a member: the greatest are first.
func rankOf(node, member uint64) uint64 { return mix(node ^ member) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// present says which lease the relay has; 0: it is not present.
func (c *Checks) present(lease etcd.LeaseID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == lease {
		return
	}
	c.lease = lease
	if lease != 0 {
		for id, m := range c.members {
			if m.written = nil; m.publish {
				c.write[id] = true
			}
		}
	}
	poke(c.wake)
	poke(c.writes)
}

// decide works out what the relay has to do with a member, and reports whether that has changed. The caller holds
// the lock.
func (c *Checks) decide(m *sharedMember, now time.Time) bool {
	was, published := m.share, m.publish
	next := Share{}
	if c.alone {
		next.Check, m.publish = true, false
		if m.missing.IsZero() {
			m.missing = now
		}
		if m.share = next; published {
			c.write[m.id] = true
		}
		return next != was
	}
	eligible := c.ranked[m.Scope]
	self := hash64(c.cfg.Node)
	mine := rankOf(self, m.hash)
	better, present := 0, false
	for _, n := range eligible {
		if n.name == c.cfg.Node {
			present = true
		} else if r := rankOf(n.hash, m.hash); r > mine || r == mine && n.name < c.cfg.Node {
			better++
		}
	}
	found := c.best(m, eligible)
	needed := min(m.Checkers, len(eligible))/2 + 1
	if len(found) >= needed {
		down := 0
		for _, f := range found {
			if !f.Up {
				down++
				next.Why = f.Why
			}
		}
		next.Known, next.Up = true, 2*down <= len(found)
		if next.Up {
			next.Why = ""
		}
		m.missing = time.Time{}
	} else if m.missing.IsZero() {
		m.missing = now
	}
	chosen := present && better < m.Checkers
	m.publish = chosen
	switch {
	case chosen, !next.Known && now.Sub(m.missing) > m.Patience:
		next.Check = true
	case was.Check: // until those who are to check have said something
		done := 0
		for node := range c.results[m.id] {
			r := rankOf(hash64(node), m.hash)
			if node != c.cfg.Node && (r > mine || r == mine && node < c.cfg.Node) && c.nodes[node][m.Scope] {
				done++
			}
		}
		next.Check = done < min(m.Checkers, max(1, len(eligible)))
		m.publish = next.Check && published
	}
	if m.publish != published {
		c.write[m.id] = true
	}
	m.share = next
	return next != was
}

// best returns the results of the relays that are ranked first, of those who have one. The caller holds the lock.
func (c *Checks) best(m *sharedMember, eligible []rankedNode) []Result {
	type ranked struct {
		rank uint64
		node string
		Result
	}
	var list []ranked
	for node, r := range c.results[m.id] {
		if c.nodes[node][m.Scope] {
			list = append(list, ranked{rankOf(hash64(node), m.hash), node, r})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		switch {
		case a.rank > b.rank:
			return -1
		case a.rank < b.rank:
			return 1
		}
		return compare(a.node, b.node)
	})
	var best []Result
	for _, r := range list[:min(len(list), m.Checkers)] {
		if r.Why != "" {
			r.Why += " (found by " + r.node + ")"
		}
		best = append(best, r.Result)
	}
	return best
}
