package upstream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A fleet is a source of many members, some of which change from answer to answer.
type fleet struct {
	r    *rand.Rand
	list []Target
	next int
}

func newFleet(n int, seed uint64) *fleet {
	f := &fleet{r: rand.New(rand.NewPCG(seed, 1)), next: n}
	for i := range n {
		f.list = append(f.list, foundAt(i))
	}
	return f
}

// change returns the next answer: half of the changes replace members, and the other half change
// weights.
func (f *fleet) change(n int) []Target {
	f.list = slices.Clone(f.list)
	for i := range n {
		at := f.r.IntN(len(f.list))
		if i%2 == 0 {
			f.list = append(slices.Delete(f.list, at, at+1), foundAt(f.next))
			f.next++
		} else {
			f.list[at].Weight = 1 + f.r.IntN(4)
		}
	}
	return f.list
}

// BenchmarkChange measures one answer of a source with 10 changes. At 10 answers a second, these are
// 100 changes a second.
func BenchmarkChange(b *testing.B) {
	for _, members := range []int{100, 1000, 10000} {
		for _, balance := range balancerNames() {
			b.Run(fmt.Sprintf("members=%d/balance=%s", members, balance), func(b *testing.B) {
				f := newFleet(members, 1)
				_, _, tell := startSource(b, &spec.Group{Balance: balance}, Options{})
				tell(f.list, nil)
				answers := make([][]Target, min(b.N, 200))
				for i := range answers {
					answers[i] = f.change(10)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					tell(answers[i%len(answers)], nil)
				}
			})
		}
	}
}
