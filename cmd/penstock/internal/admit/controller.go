package admit

import (
	"net/netip"
	"time"

	"github.com/gaissmai/bart"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Gate decides who may come in at one listener. What it asks for never changes;
// what it counts outlives it: the gate of the next configuration goes on counting
// where this one is, and a ticket of either may come back after the change.
//
// Its methods are for event loops: none waits for anything but the few
// instructions that another loop needs, and none allocates, but for the memory of
// a source that was not there before.
//
// A peer that must begin with a PROXY header is let in for the header's sake, and
// counts for the listener and in all; who it speaks for is asked once that is known:
//
//	Enter ──not proxied──▶ in ──────────────▶ Leave
//	  └────proxied──▶ waits ──Identify──▶ in ──▶ Leave
type Controller struct {
	allow, deny, proxies *bart.Lite // nil: empty
	total, listener      flowLimit
	source               sourceLimit
	counts               *counts
}

// live is what a listener's gates share, one after the other.
type counts struct {
	total, listener *flowCount
	sources         *sourceTable
}

// Total bounds the flows of all listeners together.
type Total struct{ flowLimit }

// NewTotal makes the bound of all listeners. It goes on counting where old is, if
// that is not nil.
func NewTotal(l spec.Limits, old *Total) *Total {
	var was *flowLimit
	if old != nil {
		was = &old.flowLimit
	}
	return &Total{newFlowLimit(l, spec.ReasonFlows, spec.ReasonRate, was)}
}

// Flows is the number of flows that are in.
func (t *Total) Flows() int64 { return t.flows.Load() }

// NewGate makes the gate of a listener. It goes on counting where old is, if that
// is not nil; total is then the one that old has, or made from it. Nothing of old
// changes, so that a configuration that is not taken after all leaves no trace.
//
// Flows that came in while nothing was asked of sources do not count for theirs.
func NewController(total *Total, l *spec.Listener, old *Controller) *Controller {
	g := &Controller{
		allow: prefixSet(l.Allow), deny: prefixSet(l.Deny), proxies: prefixSet(l.ProxyFrom),
		total:  total.flowLimit,
		source: newSourceLimit(l.Limits.Source),
	}
	var was *flowLimit
	if old != nil {
		was = &old.listener
		g.counts = old.counts
	}
	g.listener = newFlowLimit(l.Limits, spec.ReasonListenerFlows, spec.ReasonListenerRate, was)
	if old == nil {
		g.counts = &counts{total.flowCount, g.listener.flowCount, newSourceTable(MaxSources)}
	}
	return g
}

func prefixSet(ps []netip.Prefix) *bart.Lite {
	if len(ps) == 0 {
		return nil
	}
	s := new(bart.Lite)
	for _, p := range ps {
		s.Insert(spec.CanonicalPrefix(p))
	}
	return s
}

// Ticket is held by a flow that is in. The zero value is nobody's.
type Admission struct {
	counts       *counts
	source       uint64
	counted      bool // for its source
	expectsProxy bool
}

// Proxied tells whether the flow must begin with a PROXY header, and Identify be
// called when it is there.
func (t *Admission) ExpectsProxy() bool { return t.expectsProxy }

// Enter lets a new flow in or gives the reason why not; then there is no ticket.
// The peer is who connected, zero if it has no address (a Unix socket): such a one
// is in no prefix and is no source. now is the time, from time.Now.
//
// What bounds a source is asked first, so that one that asks for too much does not
// use up what all have.
func (g *Controller) Admit(peer netip.Addr, now time.Time) (Admission, spec.Reason) {
	t := Admission{counts: g.counts, expectsProxy: g.ExpectsProxy(peer)}
	if !t.expectsProxy {
		if why := g.Identify(&t, peer, now); why != spec.ReasonNone {
			return Admission{}, why
		}
	}
	if why := g.listener.enter(now); why != spec.ReasonNone {
		t.releaseSource()
		return Admission{}, why
	}
	if why := g.total.enter(now); why != spec.ReasonNone {
		g.listener.flows.Add(-1)
		t.releaseSource()
		return Admission{}, why
	}
	return t, spec.ReasonNone
}

// Identify says who the client of a flow is, once: whom the PROXY header names, or
// the peer itself if that is a local one. The flow must end if it has a reason, and
// keeps its ticket until then.
func (g *Controller) Identify(t *Admission, client netip.Addr, now time.Time) spec.Reason {
	client = spec.CanonicalAddr(client)
	if !g.Allows(client) {
		return spec.ReasonDenied
	}
	if !client.IsValid() || !g.source.any() {
		return spec.ReasonNone
	}
	t.source = sourceKey(client)
	why := t.counts.sources.enter(t.source, g.source, now)
	t.counted = why == spec.ReasonNone
	return why
}

// Leave gives the ticket back. It does nothing the second time.
func (t *Admission) Release() {
	if t.counts == nil {
		return
	}
	t.releaseSource()
	t.counts.listener.flows.Add(-1)
	t.counts.total.flows.Add(-1)
	*t = Admission{}
}

func (t *Admission) releaseSource() {
	if t.counted {
		t.counts.sources.leave(t.source)
	}
}

// Allows tells whether a client may come in, by its address alone.
func (g *Controller) Allows(client netip.Addr) bool {
	client = spec.CanonicalAddr(client)
	return (g.deny == nil || !g.deny.Contains(client)) && (g.allow == nil || g.allow.Contains(client))
}

// Proxied tells whether a peer must begin with a PROXY header. On a Unix socket,
// where a peer has no address, everybody must if anybody must.
func (g *Controller) ExpectsProxy(peer netip.Addr) bool {
	return g.proxies != nil && (!peer.IsValid() || g.proxies.Contains(spec.CanonicalAddr(peer)))
}

// Flows is the number of the listener's flows that are in.
func (g *Controller) Flows() int64 { return g.listener.flows.Load() }

// Sources is the number of sources that are remembered: those that have flows, and
// those that lately had more than they may have all the time.
func (g *Controller) Sources() int { return g.counts.sources.len() }
