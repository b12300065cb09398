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

// simCounters are the names of the counters of a loop, but for those of what there is at present, which begin at 0 in each process.
var simCounters = sync.OnceValue(func() (names []string) {
	eachCounter(reflect.ValueOf(loopCounters{}), "", func(name string, _ int64) { names = append(names, name) })
	return names
})

// eachCounter calls do with each counter and its name.
func eachCounter(v reflect.Value, prefix string, do func(name string, n int64)) {
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Name
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			eachCounter(f, name+".", do)
		case reflect.Array:
			for j := range f.Len() {
				do(fmt.Sprint(name, " ", j), f.Index(j).Int())
			}
		default:
			if !slices.Contains([]string{"Flows", "Kept", "LongestTurn", "Datagrams.Flows", "Datagrams.BytesHeld", "Datagrams.Resting"}, name) {
				do(name, f.Int())
			}
		}
	}
}

// totalsOf adds the counters of all loops.
func totalsOf(all []*loopCounters) simTotals {
	sum := make(simTotals, len(simCounters()))
	for _, c := range all {
		i := 0
		eachCounter(reflect.ValueOf(*c), "", func(_ string, n int64) { sum[i] += n; i++ })
	}
	return sum
}

// lookAtTotals checks that no counter is less than at the end of the process before.
func (s *simulation) lookAtTotals() {
	if s.totals == nil || s.damaged {
		return
	}
	for i, n := range totalsOf(s.core.stats) {
		if n < s.totals[i] {
			s.fail("%d were counted as %s in the process before, and now it is %d", s.totals[i], simCounters()[i], n)
		}
	}
}

// failedAccepts counts an accept that has failed, as a loop does.
func (s *simulation) failedAccepts(e sys.Errno) {
	if e != 0 && e != sys.EAGAIN {
		s.acceptErrors++
	}
}
