package upstream

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// maglevBalancer chooses by a hash of the client. Its table contains members that accept no flows
// too, and all with their full weights: a member that goes down leaves only its own flows to
// others, spread over all of them, and gets the same ones back. The table changes with the
// configuration only.
type maglevBalancer struct {
	sequence
	hash string
}

func newMaglev(c *candidates) balancer {
	var old *sequence
	if b, ok := c.old.(*maglevBalancer); ok {
		old = &b.sequence
	}
	b := &maglevBalancer{newSequence(c.all, old, func(all []weightedMember) []int32 { return maglevTable(all, maglevSize) }), c.cfg.Hash}
	if c.steps != nil {
		for _, w := range c.all {
			b.slowStart = append(b.slowStart, c.step(w.m))
		}
	}
	return b
}

func (b *maglevBalancer) seed(c Client) uint64 { return hash(b.hash, c) }

// UsesLocal reports whether a group needs Client.Local.
func UsesLocal(g *spec.Group) bool { return spec.BalancerNamed(g.Balance).Hash && g.Hash == "4-tuple" }

// hash is the same in every process, so that relays side by side agree. The port
// is left out of "source". Clients without a key are hashed by their source.
func hash(what string, c Client) uint64 {
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

// maglevTable fills a table of a prime size: each member in turn takes the next free place of its
// own permutation (section 3.4 of the paper), a member of less than the greatest weight only in
// proportion. Members are ordered by a hash of name and address, so that all relays with the same
// members have the same table.
func maglevTable(members []weightedMember, size int) []int32 {
	if len(members) == 0 {
		return nil
	}
	type permutation struct {
		id           uint64
		index        int32
		weight, owed int
		next, skip   int
	}
	ps := make([]permutation, len(members))
	most := 0
	for i, s := range members {
		key := s.m.name + "\x00" + s.m.addr.String()
		a, b := xxhash.Sum64String(key), xxhash.Sum64String(key+"\x00skip")
		ps[i] = permutation{id: a, index: int32(i), weight: s.weight,
			next: int(a % uint64(size)), skip: int(b%uint64(size-1)) + 1}
		most = max(most, s.weight)
	}
	slices.SortFunc(ps, func(a, b permutation) int {
		switch {
		case a.id < b.id:
			return -1
		case a.id > b.id:
			return 1
		}
		return int(a.index - b.index)
	})
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
				p.next = (p.next + p.skip) % size
			}
			places[p.next] = p.index
			if filled++; filled == size {
				return places
			}
		}
	}
}
