package liveflows

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Flows end at their times, whatever the order in which they were given.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type end struct {
			id    uint64
			after time.Duration
		}
		var mu sync.Mutex
		var ends []end
		start := time.Now()
		s := newSchedule(func(d deadline) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, end{d.id, time.Since(start)})
		})
		for id, after := range map[uint64]time.Duration{1: 3 * time.Second, 2: 0, 3: time.Second, 4: 2 * time.Hour} {
			s.add(deadline{at: start.Add(after), id: id})
		}
		time.Sleep(2 * time.Second)
		s.add(deadline{at: start.Add(time.Second), id: 5}) // which has passed
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := []end{{2, 0}, {3, time.Second}, {5, 2 * time.Second}, {1, 3 * time.Second}, {4, 2 * time.Hour}}
		if !slices.Equal(ends, want) {
			t.Errorf("%v, want %v", ends, want)
		}
		s.close()
	})
}
