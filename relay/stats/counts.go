package stats

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/penstock/penstock/internal/enum"
)

// Counts has a number for each value of K, such as [Drop]. The zero Counts has 0 for all of them.
type Counts[K kind] struct {
	n [room]int64
}

// kind is a type whose values are small numbers from 0 on, and have names.
type kind interface {
	~uint8
	fmt.Stringer
}

// room is for the values that there are, and for those that later versions add.
const room = 64

// CountsOf returns Counts of numbers by value.
func CountsOf[K kind](numbers []int64) (c Counts[K]) {
	copy(c.n[:], numbers)
	return c
}

// Get returns the number of k.
func (c Counts[K]) Get(k K) int64 {
	if int(k) < len(c.n) {
		return c.n[k]
	}
	return 0
}

// Add adds n to the number of k, which must be a value of its type.
func (c *Counts[K]) Add(k K, n int64) { c.n[k] += n }

// AddAll adds the numbers of o.
func (c *Counts[K]) AddAll(o *Counts[K]) {
	for k, n := range o.n {
		c.n[k] += n
	}
}

// All returns an iterator over the values of K in their order, with their numbers, 0 included.
func (c Counts[K]) All() iter.Seq2[K, int64] {
	return func(yield func(K, int64) bool) {
		for k := range len(c.n) {
			if K(k).String() == enum.Unknown || !yield(K(k), c.n[k]) {
				return
			}
		}
	}
}

// Total returns the sum.
func (c Counts[K]) Total() (n int64) {
	for _, m := range c.n {
		n += m
	}
	return n
}

// String returns the numbers that are not 0 with the names of their values, such as "full 12, refused 1".
func (c Counts[K]) String() string {
	var text []string
	for k, n := range c.All() {
		if n != 0 {
			text = append(text, fmt.Sprintf("%v %d", k, n))
		}
	}
	return strings.Join(text, ", ")
}

// MarshalJSON returns an array of the numbers in the order of the values.
func (c Counts[K]) MarshalJSON() ([]byte, error) { return json.Marshal(c.n) }

// UnmarshalJSON sets c to what MarshalJSON has returned.
func (c *Counts[K]) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &c.n) }
