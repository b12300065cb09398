package liveflows

import (
	"container/heap"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// rebalanceEvery is how often flows of groups to which a member has come are compared. The ends of a round are spread over it.
const rebalanceEvery = 5 * time.Second

// A balance is a group to which a member has come.
type balance struct {
	group *upstream.Group
	due   float64 // flows that may end, of those that a minute allows
}

// Rebalance is called when a member of a group has begun to accept flows: flows of others end, slowly, until each has its part.
func (f *Flows) Rebalance(g *upstream.Group) {
	select {
	case f.joined <- g:
	case <-f.closed:
	}
}

// FollowBalance ends flows of the groups that Rebalance was called with, until closing is closed.
func (f *Flows) FollowBalance(closing <-chan struct{}) {
	defer close(f.closed)
	groups := map[*upstream.Group]*balance{}
	timer := time.NewTicker(rebalanceEvery)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case g := <-f.joined:
			if len(groups) == 0 {
				timer.Reset(rebalanceEvery)
			}
			if groups[g] == nil {
				groups[g] = &balance{group: g}
			}
		case <-timer.C:
			for g, b := range groups {
				if !f.rebalance(b) {
					delete(groups, g)
				}
			}
			if len(groups) == 0 {
				timer.Stop()
			}
		case <-closing:
			return
		}
	}
}

// rebalance ends flows of a group, and reports whether there may be more to end later.
func (f *Flows) rebalance(b *balance) bool {
	s := b.group.Surplus()
	if s.Since.IsZero() {
		return false
	}
	b.due = min(b.due, 1) + s.Said.Share*float64(s.Flows)*float64(rebalanceEvery)/float64(time.Minute)
	most := int(b.due)
	longest := map[*upstream.Member]*idlest{}
	for _, m := range s.Members {
		if n := min(m.Flows, most); n > 0 {
			longest[m.Member] = &idlest{most: n}
			most -= n
		}
	}
	if len(longest) == 0 {
		return true
	}
	f.each(func(m *upstream.Member, flow *relay.FlowInfo, _ *hooks.State) {
		if l := longest[m]; l != nil && flow.State == stats.StateRelaying && flow.Start.Before(s.Since) && flow.Idle >= s.Said.Idle {
			l.offer(idleFlow{flow.ID, flow.Idle})
		}
	})
	var ends []uint64
	for _, m := range s.Members {
		if l := longest[m.Member]; l != nil {
			for _, i := range l.flows {
				ends = append(ends, i.id)
			}
		}
	}
	b.due -= float64(len(ends))
	now := time.Now()
	for i, id := range ends {
		f.ends.add(deadline{at: now.Add(rebalanceEvery * time.Duration(i) / time.Duration(len(ends))), id: id, end: rebalanced, idle: s.Said.Idle})
	}
	return true
}

// idlest are those flows of a member that have moved no data for longest: a heap, with the one that has moved some last on top.
type idlest struct {
	most  int
	flows []idleFlow
}

type idleFlow struct {
	id   uint64
	idle time.Duration
}

func (l *idlest) offer(i idleFlow) {
	switch {
	case len(l.flows) < l.most:
		heap.Push(l, i)
	case i.idle > l.flows[0].idle:
		l.flows[0] = i
		heap.Fix(l, 0)
	}
}

func (l *idlest) Len() int           { return len(l.flows) }
func (l *idlest) Less(i, j int) bool { return l.flows[i].idle < l.flows[j].idle }
func (l *idlest) Swap(i, j int)      { l.flows[i], l.flows[j] = l.flows[j], l.flows[i] }
func (l *idlest) Push(x any)         { l.flows = append(l.flows, x.(idleFlow)) }
func (l *idlest) Pop() any {
	last := len(l.flows) - 1
	x := l.flows[last]
	l.flows = l.flows[:last]
	return x
}
