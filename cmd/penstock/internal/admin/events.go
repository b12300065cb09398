package admin

import (
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// keptEvents is the number of events that are kept.
const keptEvents = 512

// Events keeps the latest events. The zero value is ready to use. It may be used by
// several goroutines at once.
type Events struct {
	mu   sync.Mutex
	ring [keptEvents]api.Event
	last uint64
}

// Add adds an event. It sets the ID of the event, and its Time if that is zero.
func (e *Events) Add(v api.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	v.ID = e.last
	if v.Time.IsZero() {
		v.Time = time.Now()
	}
	e.ring[e.last%keptEvents] = v
}

// After returns the events with IDs greater than id, oldest first.
func (e *Events) After(id uint64) api.Events {
	out := api.Events{Events: []api.Event{}}
	if e == nil {
		return out
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if oldest := e.last - min(e.last, keptEvents); id < oldest {
		out.Dropped = oldest - id
		id = oldest
	}
	for id < e.last {
		id++
		if v := &e.ring[id%keptEvents]; v.ID == id { // it may not have been restored
			out.Events = append(out.Events, *v)
		}
	}
	return out
}

// Last returns the ID of the latest event, or 0 if there is none.
func (e *Events) Last() uint64 {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// Latest returns the latest events, n at most, oldest first.
func (e *Events) Latest(n int) []api.Event {
	return e.After(e.Last() - min(e.Last(), uint64(n))).Events
}

// Restore adds events of the process before, whose IDs ascend. It is called before Add.
func (e *Events) Restore(list []api.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range list {
		if v.ID > e.last && v.ID < 1<<62 {
			e.last = v.ID
			e.ring[e.last%keptEvents] = v
		}
	}
}
