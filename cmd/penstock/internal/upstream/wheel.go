package upstream

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// maxWheel bounds a wheel. Weights that need a larger one are rounded.
const maxWheel = 1 << 20

// wheel puts each member on so many places as it is heavy, spread evenly: with
// equal weights they are in turn. Weights are divided by what they have in
// common first.
//
// A member of weight w has its places where w equal parts of the circle begin,
// moved a little by its index. What falls on one place stays in order.
func wheel(shares []weightedMember) []int32 {
	weights, sum := reduceWeights(shares)
	n := len(shares)
	counts := make([]int32, sum+1)
	place := func(i, k int) int { return int(int64(2*k*n+2*i+1) * int64(sum) / int64(2*n*weights[i])) }
	for i, w := range weights {
		for k := range w {
			counts[place(i, k)+1]++
		}
	}
	for i := range sum {
		counts[i+1] += counts[i]
	}
	wheel := make([]int32, sum)
	for i, w := range weights {
		for k := range w {
			p := place(i, k)
			wheel[counts[p]] = int32(i)
			counts[p]++
		}
	}
	return wheel
}

// reduce gives weights in the smallest whole numbers, and their sum, at most
// maxWheel as long as there are not more members.
func reduceWeights(shares []weightedMember) (weights []int, sum int) {
	common := 0
	for _, s := range shares {
		common = gcd(common, s.weight)
		sum += s.weight
	}
	for _, s := range shares {
		w := s.weight / max(common, 1)
		if all := sum / max(common, 1); all > maxWheel {
			w = max(1, w*maxWheel/all)
		}
		weights = append(weights, w)
	}
	sum = 0
	for _, w := range weights {
		sum += w
	}
	return weights, sum
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maglevSize is the prime that Eisenbud et al. use for the smaller of their
// tables ("Maglev: A Fast and Reliable Software Network Load Balancer", NSDI
// 2016, section 5.3).
const maglevSize = 65537

// maglev fills a table of a prime size: each member in turn takes the next free
// place of its own permutation (section 3.4 of the paper), a member of less than
// the greatest weight only as often as its share of it. Members are ordered by a
// hash of name and address, so that all relays with the same members have the same table.
func maglev(shares []weightedMember, size int) []int32 {
	if len(shares) == 0 {
		return nil
	}
	type permutation struct {
		id           uint64
		index        int32
		weight, owed int
		next, skip   int
	}
	ps := make([]permutation, len(shares))
	most := 0
	for i, s := range shares {
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
	wheel := make([]int32, size)
	for i := range wheel {
		wheel[i] = -1
	}
	for filled := 0; ; {
		for i := range ps {
			p := &ps[i]
			if p.owed += p.weight; p.owed < most {
				continue
			}
			p.owed -= most
			for wheel[p.next] >= 0 {
				p.next = (p.next + p.skip) % size
			}
			wheel[p.next] = p.index
			if filled++; filled == size {
				return wheel
			}
		}
	}
}
