package upstream

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// table is what Pick reads: immutable, but for the heaps, which have a lock.
type table struct {
	cfg     *spec.Group
	members int // of the group, well or not
	// Backups serve when no primary can, because all are down or at their caps.
	primary, backup balance
}

// share is a member and its weight among the others.
type weightedMember struct {
	m      *Member
	weight int
}

// balance spreads flows over members. Each balancer searches a wheel, where a
// member stands as often as it is heavy, from a place of its own choice; only
// least-connections has a heap instead.
type balance struct {
	kind      string
	shares    []weightedMember
	wheel     []int32 // indices of shares
	heap      *heap
	slowStart []int // of maglev, by share, while one is in slow start: of so many warmSteps it takes flows
}

// newBalance makes the balancer of a group for those members. steps are of those
// in slow start. What old has that is the same is taken over.
//
// Maglev's table has members that take no flows too, and all with their full
// weight: who is down leaves only his own flows to others, spread over all of
// them, and gets the same ones back. The table changes with the configuration only.
func newBalance(cfg *spec.Group, all []weightedMember, steps map[*Member]int, old *balance) balance {
	b := balance{kind: cfg.Balance}
	for _, s := range all {
		if s.m.acceptsFlows.Load() {
			b.shares = append(b.shares, s)
		}
	}
	if len(b.shares) == 0 {
		return b
	}
	switch {
	case steps == nil:
	case b.kind == "maglev":
		for _, s := range all {
			b.slowStart = append(b.slowStart, slowStartStepOf(steps, s.m))
		}
	default: // weights in smaller units
		for i := range b.shares {
			b.shares[i].weight *= slowStartStepOf(steps, b.shares[i].m)
		}
	}
	if b.kind == "maglev" {
		b.shares = all
	}
	if b.kind == old.kind && slices.Equal(b.shares, old.shares) {
		b.wheel = old.wheel
	}
	switch {
	case b.kind == "least-connections":
		b.heap = &heap{}
	case b.wheel != nil:
	case b.kind == "maglev":
		b.wheel = maglev(b.shares, maglevSize)
	case b.kind == "first":
		b.wheel = make([]int32, len(b.shares))
		for i := range b.wheel {
			b.wheel[i] = int32(i)
		}
	default:
		b.wheel = wheel(b.shares)
	}
	return b
}

func slowStartStepOf(steps map[*Member]int, m *Member) int {
	if step, ok := steps[m]; ok {
		return step
	}
	return slowStartSteps
}

// begin chooses where the search of a new flow begins. What is tried after a
// failure follows from it.
func (t *table) begin(g *Group, client, local netip.AddrPort) uint64 {
	switch t.cfg.Balance {
	case "round-robin":
		return g.turn.Add(1) - 1
	case "random", "p2c":
		return rand.Uint64()
	case "maglev":
		return hash(t.cfg.Hash, client, local)
	}
	return 0
}

// hash is the same in every process, so that relays side by side agree. The port
// is left out of "source".
func hash(what string, client, local netip.AddrPort) uint64 {
	var b [36]byte
	ip := client.Addr().As16()
	copy(b[:], ip[:])
	if what != "4-tuple" {
		return xxhash.Sum64(b[:16])
	}
	ip = local.Addr().As16()
	copy(b[16:], ip[:])
	binary.BigEndian.PutUint16(b[32:], client.Port())
	binary.BigEndian.PutUint16(b[34:], local.Port())
	return xxhash.Sum64(b[:])
}

// pick takes a slot of a member for l. full says that a member is there, but at
// its cap.
func (t *table) pick(g *Group, l *Lease) (m *Member, full bool) {
	if m, full = t.primary.pick(g, l); m != nil {
		return m, false
	}
	m, fullToo := t.backup.pick(g, l)
	return m, m == nil && (full || fullToo)
}

// Draws before the search goes along the wheel.
const (
	draws   = 8
	maxWalk = 64 // places of the wheel, before each member is asked once
)

func (b *balance) pick(g *Group, l *Lease) (m *Member, full bool) {
	if len(b.shares) == 0 {
		return nil, false
	}
	switch b.kind {
	case "least-connections":
		return b.heap.pick(g, l)
	case "p2c":
		if m := b.ofTwo(l); m != nil {
			return m, false
		}
	case "random":
		for range draws {
			s := b.draw()
			if ok, _ := l.take(s.m); ok {
				return s.m, false
			}
		}
	}
	return b.walk(l)
}

// walk searches the wheel from the lease's place, and when that takes long, all
// members from there.
func (b *balance) walk(l *Lease) (m *Member, full bool) {
	n := len(b.wheel)
	at := int(l.seed % uint64(n))
	first := int(b.wheel[at])
	for range min(n, maxWalk) {
		i := b.wheel[at]
		if b.slowStart == nil || l.seed>>32%slowStartSteps < uint64(b.slowStart[i]) {
			ok, f := l.take(b.shares[i].m)
			if ok {
				return b.shares[i].m, false
			}
			full = full || f
		}
		if at++; at == n {
			at = 0
		}
	}
	if n <= maxWalk {
		return nil, full
	}
	for i := range b.shares {
		s := b.shares[(first+i)%len(b.shares)]
		ok, f := l.take(s.m)
		if ok {
			return s.m, false
		}
		full = full || f
	}
	return nil, full
}

// ofTwo draws two members by weight and takes the one with fewer flows for its
// weight (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing",
// 2001). Nil if it draws only such as cannot be taken.
func (b *balance) ofTwo(l *Lease) *Member {
	for range draws {
		s, other := b.draw(), b.draw()
		if !l.canUse(s.m) || s.m.full() || l.canUse(other.m) && lighter(other, s) {
			s, other = other, s
		}
		for _, s := range [2]weightedMember{s, other} {
			if ok, _ := l.take(s.m); ok {
				return s.m
			}
		}
	}
	return nil
}

func (b *balance) draw() weightedMember { return b.shares[b.wheel[rand.IntN(len(b.wheel))]] }

// lighter compares flows for each unit of weight. A full member is not lighter. Of equal
// ones the one that was drawn first, by weight, is taken.
func lighter(a, b weightedMember) bool {
	return !a.m.full() && int64(a.m.active.Load())*int64(b.weight) < int64(b.m.active.Load())*int64(a.weight)
}
