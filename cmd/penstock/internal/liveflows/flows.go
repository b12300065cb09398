package liveflows

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// Flows ends the flows of an engine. Its methods may be called by anybody, until Close. Use New to make one.
type Flows struct {
	each    func(func(*upstream.Member, *relay.FlowInfo, *hooks.State)) // calls it with each flow, and the member that it is at, or nil
	flow    func(id uint64) (relay.FlowInfo, bool)
	kill    func(id uint64, c relay.Cause) bool
	running func() Config
	seed    maphash.Seed // of each flow's share of a jitter, which stays the same
	ends    *schedule

	mu      sync.Mutex
	members []*upstream.Member // whose flows are to be looked for
	wake    chan struct{}      // receives after the first of members

	joined chan *upstream.Group // to FollowBalance
	closed chan struct{}        // closed when nobody receives from it any more
}

// A Config is a configuration that flows are held against.
type Config interface {
	// IsRemoved reports whether a flow's listener, route or member was removed. It also returns what its route said, when
	// the flow took it, about such flows.
	IsRemoved(*hooks.State) (spec.LiveFlows, bool)
}

// The occasions that belong to no member.
var (
	removed  = &upstream.End{Cause: relay.CauseRemoved} // a listener, route or member was
	disabled = &upstream.End{Cause: relay.CauseRemoved} // a member was, by an operator

	rebalanced = &upstream.End{Cause: relay.CauseRebalanced}
)

// New returns the flows of an engine. running returns the running configuration.
func New(engine *relay.Engine, running func() Config) *Flows {
	each := func(do func(*upstream.Member, *relay.FlowInfo, *hooks.State)) {
		hooks.EachFlow(engine, func(flow *relay.FlowInfo, p *hooks.State) { do(p.Member(), flow, p) })
	}
	f := &Flows{each: each, flow: engine.Flow, kill: engine.Kill, running: running, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), joined: make(chan *upstream.Group), closed: make(chan struct{})}
	f.ends = newSchedule(f.end)
	return f
}

// end ends a flow that is due, unless it was chosen because it had moved no data, and has moved some since.
func (f *Flows) end(d deadline) {
	if d.idle > 0 {
		if flow, ok := f.flow(d.id); !ok || flow.Idle < d.idle {
			return
		}
	}
	f.kill(d.id, d.end.Cause)
}

// EndMemberFlows ends the flows of a member that an operator has disabled.
func (f *Flows) EndMemberFlows(group, name string) {
	f.each(func(m *upstream.Member, flow *relay.FlowInfo, _ *hooks.State) {
		if m != nil && m.Group().Name() == group && m.Is(name) {
			f.ends.add(deadline{at: time.Now(), id: flow.ID, end: disabled})
		}
	})
}

// share returns a flow's share of a jitter, from 0 to 1.
func (f *Flows) share(id uint64) float64 {
	return float64(maphash.Comparable(f.seed, id)>>11) / (1 << 53)
}

// ScheduleEnds looks for flows for which there is an occasion to end, and schedules their end if the configuration says so, or moves it to when
// the configuration says now. The ends of drained flows are spread over the jitter.
func (f *Flows) ScheduleEnds() {
	running, now := f.running(), time.Now()
	unconnected := map[*upstream.Member]bool{}
	f.each(func(m *upstream.Member, flow *relay.FlowInfo, p *hooks.State) {
		if said, gone := running.IsRemoved(p); gone && !said.Keeps() {
			f.ends.add(deadline{at: endOf(said, now, f.share(flow.ID)), id: flow.ID, end: removed})
		}
		if m == nil {
			return
		}
		end, said := m.End()
		switch {
		case end == nil || !flow.Start.Before(end.Since):
		case flow.State != stats.StateRelaying: // it goes on to another member if it fails to connect, and ends if it connects
			unconnected[m] = true
		default:
			p.EndFor(end.Reason)
			f.ends.add(deadline{at: endOf(said, end.Since, f.share(flow.ID)), id: flow.ID, end: end, member: m})
		}
	})
	for m := range unconnected {
		f.Look(m)
	}
}

// endOf returns when a flow ends. share is its share of the jitter, from 0 to 1.
func endOf(said spec.LiveFlows, since time.Time, share float64) time.Time {
	if said.What != "drain" {
		return since
	}
	return since.Add(said.After - time.Duration(share*float64(said.Jitter)))
}

// Times of looking for the flows of members. To look for them goes through all flows, so that members to which something happens
// within a moment are looked for together, and those that have no flows never. After a look the next one waits
// lookShare times what it took.
const (
	lookDelay = 50 * time.Millisecond
	lookShare = 50
	lookWait  = 5 * time.Second // at most
)

// Look is called after the configuration, or discovery, has removed a member, or when its flows are to end for another reason.
func (f *Flows) Look(m *upstream.Member) {
	f.mu.Lock()
	f.members = append(f.members, m)
	first := len(f.members) == 1
	f.mu.Unlock()
	if first {
		f.wake <- struct{}{} // which has room: nobody else sends before the members were taken
	}
}

// FollowMembers looks for the flows of members that Look was called with, until closing is closed.
func (f *Flows) FollowMembers(closing <-chan struct{}) {
	wait := lookDelay
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-f.wake:
		case <-closing:
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
			wait = max(lookDelay, min(lookShare*f.lookForMembers(), lookWait))
		case <-closing:
			return
		}
	}
}

// lookForMembers looks for the flows of those members that Look was called with, and that have any. It returns how long that took.
func (f *Flows) lookForMembers() time.Duration {
	f.mu.Lock()
	members := f.members
	f.members = nil
	f.mu.Unlock()
	flows := 0
	for _, m := range members {
		flows += m.Active()
	}
	if flows == 0 {
		return 0
	}
	start := time.Now()
	f.ScheduleEnds()
	return time.Since(start)
}

// Close stops the schedule. Flows whose end is not due yet continue.
func (f *Flows) Close() { f.ends.close() }
