package app

import (
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

// removals are members that were removed and whose flows are to be looked for. To look for them goes
// through all flows, so that members that are removed within a moment are looked for together, and
// those that have no flows never.
type removals struct {
	mu      sync.Mutex
	members []*upstream.Member
	wake    chan struct{} // receives after the first of members
}

// Times of looking for the flows of members that were removed. After a look the next one waits
// removalShare times what it took.
const (
	removalDelay = 50 * time.Millisecond
	removalShare = 50
	removalWait  = 5 * time.Second // at most
)

// memberRemoved is called after the configuration, or discovery, has removed a member.
func (d *daemon) memberRemoved(m *upstream.Member) {
	r := &d.removals
	r.mu.Lock()
	r.members = append(r.members, m)
	first := len(r.members) == 1
	r.mu.Unlock()
	if first {
		r.wake <- struct{}{} // which has room: nobody else sends before the members were taken
	}
}

// lookForRemoved looks for the flows of members that were removed, until the daemon closes.
func (d *daemon) lookForRemoved() {
	wait := removalDelay
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-d.removals.wake:
		case <-d.closing:
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
			wait = max(removalDelay, min(removalShare*d.endFlowsOfRemoved(), removalWait))
		case <-d.closing:
			return
		}
	}
}

// endFlowsOfRemoved looks for the flows of those members that were removed and have any. It returns
// how long that took.
func (d *daemon) endFlowsOfRemoved() time.Duration {
	r := &d.removals
	r.mu.Lock()
	members := r.members
	r.members = nil
	r.mu.Unlock()
	flows := 0
	for _, m := range members {
		flows += m.Active()
	}
	if flows == 0 {
		return 0
	}
	start := time.Now()
	d.endRemovedFlows()
	return time.Since(start)
}
