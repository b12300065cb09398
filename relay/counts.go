package relay

import (
	"fmt"
	"iter"
	"strings"
)

// Counts has a number for each value of K, which is its index: stats.Ended[relay.CauseIdle]. K is
// [Cause], [Drop] or [Loss]. There is room for values that later versions add, so len says nothing;
// All has the values that there are.
type Counts[K enumeration] [64]int64

// enumeration is a type whose values have names.
type enumeration interface {
	~uint8
	fmt.Stringer
	values() int // from 0 on
}

func (Cause) values() int { return NumCauses }
func (Drop) values() int  { return NumDrops }
func (Loss) values() int  { return NumLosses }

// All returns an iterator over the values of K in their order, with their numbers, 0 included.
func (c Counts[K]) All() iter.Seq2[K, int64] {
	return func(yield func(K, int64) bool) {
		for k := range K.values(0) {
			if !yield(K(k), c[k]) {
				return
			}
		}
	}
}

// Total returns the sum.
func (c Counts[K]) Total() (n int64) {
	for _, m := range c {
		n += m
	}
	return n
}

func (c *Counts[K]) add(o *Counts[K]) {
	for k, n := range o {
		c[k] += n
	}
}

// String returns the numbers that are not 0 with the names of their values, such as "end 12, idle 1".
func (c Counts[K]) String() string {
	var text []string
	for k, n := range c.All() {
		if n != 0 {
			text = append(text, fmt.Sprintf("%v %d", k, n))
		}
	}
	return strings.Join(text, ", ")
}
