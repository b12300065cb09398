package admin

import (
	"container/heap"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// topFlows keeps the first max flows of an order, whatever the order in which they are
// offered.
type topFlows struct {
	max     int
	compare func(a, b *api.Flow) int
	kept    []api.Flow // a heap with the last flow of the order at its root
	more    bool       // more flows were offered than are kept
}

func newTopFlows(max int, order func(a, b *api.Flow) int) *topFlows {
	return &topFlows{max: max, compare: order}
}

func (t *topFlows) offer(f *api.Flow) {
	if len(t.kept) < t.max {
		heap.Push(t, *f)
		return
	}
	t.more = true
	if t.compare(f, &t.kept[0]) < 0 {
		t.kept[0] = *f
		heap.Fix(t, 0)
	}
}

// sorted returns the kept flows in order. Nothing can be offered afterwards.
func (t *topFlows) sorted() []api.Flow {
	slices.SortFunc(t.kept, func(a, b api.Flow) int { return t.compare(&a, &b) })
	return nonNil(t.kept)
}

// The methods of heap.Interface.

func (t *topFlows) Len() int           { return len(t.kept) }
func (t *topFlows) Less(i, j int) bool { return t.compare(&t.kept[i], &t.kept[j]) > 0 }
func (t *topFlows) Swap(i, j int)      { t.kept[i], t.kept[j] = t.kept[j], t.kept[i] }
func (t *topFlows) Push(x any)         { t.kept = append(t.kept, x.(api.Flow)) }
func (t *topFlows) Pop() any {
	last := t.kept[len(t.kept)-1]
	t.kept = t.kept[:len(t.kept)-1]
	return last
}
