package admin

import (
	"container/heap"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// top keeps the first few flows of an order, whatever the order in which they are
// offered. Its memory is bounded by how many it keeps.
type top struct {
	most    int
	less    func(a, b *api.Flow) int
	kept    []api.Flow // a heap: the last one of the order is at its root
	refused bool       // something was offered that is not among them
}

func newTop(most int, order func(a, b *api.Flow) int) *top { return &top{most: most, less: order} }

func (t *top) offer(f *api.Flow) {
	if len(t.kept) < t.most {
		heap.Push(t, *f)
		return
	}
	t.refused = true
	if t.less(f, &t.kept[0]) < 0 {
		t.kept[0] = *f
		heap.Fix(t, 0)
	}
}

// sorted ends the collection.
func (t *top) sorted() []api.Flow {
	slices.SortFunc(t.kept, func(a, b api.Flow) int { return t.less(&a, &b) })
	return some(t.kept)
}

// The methods of heap.Interface.

func (t *top) Len() int           { return len(t.kept) }
func (t *top) Less(i, j int) bool { return t.less(&t.kept[i], &t.kept[j]) > 0 }
func (t *top) Swap(i, j int)      { t.kept[i], t.kept[j] = t.kept[j], t.kept[i] }
func (t *top) Push(x any)         { t.kept = append(t.kept, x.(api.Flow)) }
func (t *top) Pop() any {
	last := t.kept[len(t.kept)-1]
	t.kept = t.kept[:len(t.kept)-1]
	return last
}
