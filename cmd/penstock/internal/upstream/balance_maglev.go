package upstream

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// maglevBalancer chooses by a hash of the client. Its table contains members that accept no flows
// too, and all with their full weights: a member that goes down leaves only its own flows to
// others, spread over all of them, and gets the same ones back. The table changes with the
// configuration only.
type maglevBalancer struct {
	sequence
	order []int32 // of members, by their hashes
	hash  string
}

func newMaglev(c *candidates) balancer {
	var old *sequence
	if b, ok := c.old.(*maglevBalancer); ok {
		old = &b.sequence
	}
	b := &maglevBalancer{hash: c.cfg.Hash}
	if old, ok := c.old.(*maglevBalancer); ok && slices.Equal(old.members, c.all) {
		b.order = old.order
	} else {
		b.order = maglevOrder(c.all)
	}
	b.sequence = newSequence(c, c.all, old, func(all []weightedMember) []int32 { return maglevTable(all, b.order, maglevSize) })
	b.rest = make([]weightedMember, 0, len(c.all))
	for _, i := range b.order { // the same on all relays, too
		if w := c.all[i]; w.m.acceptsFlows.Load() {
			b.rest = append(b.rest, w)
		}
	}
	if c.slowStart {
		b.slowStart = make([]int, len(c.all))
		for i, w := range c.all {
			b.slowStart[i] = w.m.step()
		}
	}
	return b
}

func (b *maglevBalancer) seed(c Client) uint64 { return Hash(b.hash, c) }

// UsesLocal reports whether a group needs Client.Local.
func UsesLocal(g *spec.Group) bool { return spec.BalancerNamed(g.Balance).Hash && g.Hash == "4-tuple" }

// Hash returns the hash of what a value of spec.Group.Hash stands for. It is the same in every process, so that relays side by side agree. The port
// is left out of "source". Clients without a key are hashed by their source.
func Hash(what string, c Client) uint64 {
	if c.Key != "" && what != "source" && what != "4-tuple" {
		return xxhash.Sum64String(c.Key)
	}
	var b [36]byte
	ip := c.Addr.Addr().As16()
	copy(b[:], ip[:])
	if what != "4-tuple" {
		return xxhash.Sum64(b[:16])
	}
	ip = c.Local.Addr().As16()
	copy(b[16:], ip[:])
	binary.BigEndian.PutUint16(b[32:], c.Addr.Port())
	binary.BigEndian.PutUint16(b[34:], c.Local.Port())
	return xxhash.Sum64(b[:])
}

// maglevSize is the prime that Eisenbud et al. use for the smaller of their
// tables ("Maglev: A Fast and Reliable Software Network Load Balancer", NSDI
// 2016, section 5.3).
const maglevSize = 65537

// maglevHash returns the two hashes of a member's name and address that its permutation follows from.
func maglevHash(m *Member) [2]uint64 {
	if m.hash == ([2]uint64{}) {
		key := m.name + "\x00" + m.addr.String()
		m.hash = [2]uint64{xxhash.Sum64String(key), xxhash.Sum64String(key + "\x00skip")}
	}
	return m.hash
}

// maglevOrder returns the indexes of members in the order of their hashes, so that all relays with the
// same members have the same order, whatever the order in which they got to know them.
func maglevOrder(members []weightedMember) []int32 {
	order := make([]int32, len(members))
	for i, w := range members {
		order[i] = int32(i)
		maglevHash(w.m)
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := members[i].m, members[j].m
		if c := cmp.Compare(a.hash[0], b.hash[0]); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.addr.String(), b.addr.String()))
	})
	return order
}

// maglevTable fills a table of a prime size: each member in turn takes the next free place of its
// own permutation (section 3.4 of the paper), a member of less than the greatest weight only in
// proportion. It depends on the order, and not on the indexes of members.
func maglevTable(members []weightedMember, order []int32, size int) []int32 {
	if len(members) == 0 {
		return nil
	}
	type permutation struct {
		index, weight, owed, next, skip int32
	}
	ps := make([]permutation, len(members))
	most := int32(0)
	for i, index := range order {
		w := members[index]
		h := maglevHash(w.m)
		ps[i] = permutation{index: index, weight: int32(w.weight), next: int32(h[0] % uint64(size)), skip: int32(h[1]%uint64(size-1)) + 1}
		most = max(most, int32(w.weight))
	}
	places := make([]int32, size)
	for i := range places {
		places[i] = -1
	}
	for filled := 0; ; {
		for i := range ps {
			p := &ps[i]
			if p.owed += p.weight; p.owed < most {
				continue
			}
			p.owed -= most
			for places[p.next] >= 0 {
				if p.next += p.skip; p.next >= int32(size) {
					p.next -= int32(size)
				}
			}
			places[p.next] = p.index
			if filled++; filled == size {
				return places
			}
		}
	}
}
