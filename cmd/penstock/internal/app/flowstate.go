package app

import (
	"net/netip"
	"sync/atomic"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A passage is what the daemon knows of one flow, from its arrival to its account.
// It belongs to the flow's loop. What is atomic others may look at.
type flowState struct {
	plan      *listenerPlan
	admission admit.Admission
	lease     upstream.Lease
	header    *admit.Header // of the PROXY protocol; nil: there was none
	local     *relay.Addr   // where the client came to; nil: nobody asked for it

	hello        atomic.Pointer[clienthello.Hello]
	target       atomic.Pointer[routeTarget]
	member       atomic.Pointer[upstream.Member]
	series       atomic.Pointer[account.Series] // that it is in; nil: in none yet
	reason       spec.Reason
	endScheduled atomic.Bool // the reaper has a date for it
}

// names are what a flow's account calls things.
type names struct{ listener, route, group, member string }

func (p *flowState) names() names {
	n := names{listener: p.plan.spec.Name}
	if w := p.target.Load(); w != nil {
		n.route, n.group = w.route.Name, w.route.To.Name
	}
	if m := p.member.Load(); m != nil {
		n.member = m.Name()
	}
	return n
}

func (n names) key() account.Key {
	return account.Key{Listener: n.listener, Route: n.route, Group: n.group, Member: n.member}
}

// passageOf is the passage that admit gave to a flow.
func stateOf(f *relay.Flow) *flowState { return f.Value().(*flowState) }

// standOf is what the flow's listener does with clients now.
func planOf(f *relay.Flow) *listenerPlan { return f.Listener().Value().(*boundListener).plan.Load() }

// client is a flow's client's address; zero for a Unix client.
func client(f *relay.Flow) netip.Addr { return f.Client().AddrPort.Addr() }

// enter puts a flow into a series: from its first step on it is in exactly one.
func (p *flowState) moveTo(s *account.Series) {
	switch was := p.series.Load(); was {
	case s:
		return
	case nil:
		s.Begin()
	default:
		was.Move(s)
	}
	p.series.Store(s)
}

// localOf is where the client came to. It is asked for once.
func (p *flowState) localOf(f *relay.Flow) *relay.Addr {
	if p.local == nil {
		at := f.Local()
		p.local = &at
	}
	return p.local
}
