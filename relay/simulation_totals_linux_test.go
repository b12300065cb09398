package relay

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// simTotals are the sums of what all loops have counted, by simCounters, at the end of a process. The next one goes on with them.
type simTotals []int64

// simCounter is a counter of a loop.
type simCounter struct {
	name  string
	field []int // its place in loopCounters
	index int   // of the number in an array; -1: the field is the number
}

// simCounters are the counters of a loop, but for those of what there is at present, which begin at 0 in each process.
var simCounters = sync.OnceValue(func() []simCounter { return countersOf(reflect.TypeFor[loopCounters](), "", nil) })

// countersOf returns the counters of a type, which is that of the field at this place.
func countersOf(t reflect.Type, prefix string, place []int) (all []simCounter) {
	for i := range t.NumField() {
		name, field := prefix+t.Field(i).Name, append(slices.Clip(place), i)
		switch f := t.Field(i).Type; f.Kind() {
		case reflect.Struct:
			all = append(all, countersOf(f, name+".", field)...)
		case reflect.Array:
			for j := range f.Len() {
				all = append(all, simCounter{fmt.Sprint(name, " ", j), field, j})
			}
		default:
			if !slices.Contains([]string{"Flows", "Kept", "LongestTurn", "Datagrams.Flows", "Datagrams.BytesHeld", "Datagrams.Resting"}, name) {
				all = append(all, simCounter{name, field, -1})
			}
		}
	}
	return all
}

// of returns the counter's number.
func (c *simCounter) of(v reflect.Value) int64 {
	for _, i := range c.field {
		v = v.Field(i)
	}
	if c.index >= 0 {
		v = v.Index(c.index)
	}
	return v.Int()
}

// totalsOf adds the counters of all loops.
func totalsOf(all []*loopCounters) simTotals {
	counters := simCounters()
	sum := make(simTotals, len(counters))
	for _, l := range all {
		v := reflect.ValueOf(l).Elem()
		for i := range counters {
			sum[i] += counters[i].of(v)
		}
	}
	return sum
}

// lookAtTotals checks that no counter is less than at the end of the process before.
func (s *simulation) lookAtTotals() {
	if s.totals == nil {
		return
	}
	for i, n := range totalsOf(s.core.stats) {
		if n < s.totals[i] {
			s.fail("%d were counted as %s in the process before, and now it is %d", s.totals[i], simCounters()[i].name, n)
		}
	}
}

// failedAccepts counts an accept that has failed, as a loop does.
func (s *simulation) failedAccepts(e sys.Errno) {
	if e != 0 && e != sys.EAGAIN {
		s.acceptErrors++
	}
}
