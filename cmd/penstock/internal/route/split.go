package route

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Split chooses one of the parts of a route by weight. Its methods may be called by anybody, take no lock and allocate nothing,
// except for SetWeights.
type Split struct {
	names   []uint64 // hashes of the parts' names
	weights atomic.Pointer[splitWeights]
}

// splitWeights are the weights of the parts, of which one at least is not 0.
type splitWeights struct {
	all   []int
	total uint32
}

// NewSplit returns the split of a route's parts, with the weights that they have.
func NewSplit(parts []spec.Part) *Split {
	s := &Split{}
	weights := make([]int, len(parts))
	for i := range parts {
		h := fnv.New64a()
		h.Write([]byte(parts[i].Name()))
		s.names = append(s.names, h.Sum64())
		weights[i] = parts[i].Weight
	}
	s.SetWeights(weights)
	return s
}

// SetWeights changes the weights of all parts, in their order. One at least must not be 0. The Split keeps the slice.
func (s *Split) SetWeights(all []int) {
	w := &splitWeights{all: all}
	for _, n := range all {
		w.total += uint32(n)
	}
	s.weights.Store(w)
}

// Weights returns the weights of all parts, which must not be changed.
func (s *Split) Weights() []int { return s.weights.Load().all }

// Random returns the index of a part, each with a probability of its share.
func (s *Split) Random() int {
	w := s.weights.Load()
	n := int(rand.Uint32N(w.total))
	for i, weight := range w.all {
		if n -= weight; n < 0 {
			return i
		}
	}
	panic("unreachable: the weights are less than their sum")
}

// ByHash returns the index of the part of a client with a hash. Each part has its share of all hashes. When the weight of one part rises, clients
// move to that part and to no other one, and when it falls, they leave that part and no other one: with two parts, who is in one whose share
// grows stays there. The order of the parts does not matter, and all relays agree.
//
// This is rendezvous hashing with weights: the parts race for a client, and the time of each is drawn by the client's hash from an exponential
// distribution whose rate is the weight (Schindelhauer and Schomaker, "Weighted Distributed Hash Tables", SPAA 2005, section 3.2).
func (s *Split) ByHash(hash uint64) int {
	best, least := 0, math.Inf(1)
	for i, weight := range s.weights.Load().all {
		if weight == 0 {
			continue
		}
		u := (float64(mix(hash^s.names[i])>>11) + 0.5) / (1 << 53) // in (0, 1)
		if t := -math.Log(u) / float64(weight); t < least {
			best, least = i, t
		}
	}
	return best
}

// mix returns x with its bits mixed: equal clients have unrelated draws for different parts. It is the finalizer of MurmurHash3 in the variant
// of Stafford (Mix13), which SplitMix64 uses, too.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
