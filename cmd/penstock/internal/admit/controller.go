package admit

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Controller decides which flows one listener accepts. Its rules never change. Its counts
// outlive it: the controller of the next configuration continues them, and an admission of either
// may be released after the change.
//
// Its methods are for event loops: they take no locks except, for a few instructions, that of a
// source's shard, and allocate nothing except the memory of a new source.
//
// A peer that must send a PROXY header is admitted so that it can send it, and counts for the
// listener and for the total; the client that it speaks for is checked once that is known:
//
//	Admit ──no PROXY header──▶ admitted ──────────────▶ Release
//	  └────PROXY header──▶ waiting ──Identify──▶ admitted ──▶ Release
type Controller struct {
	allow, deny, proxies *lists.Networks // nil: empty
	bans                 *lists.Bans
	total, listener      flowLimit
	source, client       sourceLimit
	counts               *counts
	clients              *sourceTable // of client; nil: no client was ever limited
}

// counts are shared by the successive controllers of a listener.
type counts struct {
	total, listener *flowCount
	sources         *sourceTable
}

// Total limits the flows of all listeners together.
type Total struct{ flowLimit }

// NewTotal returns the limit of all listeners. If old is not nil, its counts are continued.
func NewTotal(l spec.Limits, old *Total) *Total {
	var was *flowLimit
	if old != nil {
		was = &old.flowLimit
	}
	return &Total{newFlowLimit(l, spec.ReasonFlows, spec.ReasonRate, was)}
}

// Flows returns the number of open flows.
func (t *Total) Flows() int64 { return t.flows.Load() }

// NewController returns the controller of a listener, whose lists are in all. If old is not nil, its counts are continued;
// total must then be the one that old has, or made from it. Nothing of old changes, so that a
// configuration that is rejected later leaves no trace.
//
// Flows that were admitted while sources had no limits do not count for theirs.
func NewController(total *Total, l *spec.Listener, all *lists.Table, old *Controller) *Controller {
	g := &Controller{
		allow: lists.NewNetworks(l.Allow, all), deny: lists.NewNetworks(l.Deny, all), proxies: lists.NewNetworks(l.ProxyFrom, all), bans: all.Banned(),
		total:  total.flowLimit,
		source: newSourceLimit(l.Limits.Source), client: newSourceLimit(l.Limits.Client),
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
	if old != nil {
		g.clients = old.clients
	}
	if g.client.any() && g.clients == nil {
		g.clients = newSourceTable(MaxSources)
	}
	return g
}

// An Admission is held by a flow that was admitted. The zero value holds nothing.
type Admission struct {
	counts       *counts
	source       uint64
	counted      bool // counts for its source
	expectsProxy bool
}

// ExpectsProxy reports whether the flow must begin with a PROXY header. Identify must be called
// when it has arrived.
func (t *Admission) ExpectsProxy() bool { return t.expectsProxy }

// Admit admits a new flow, or returns the reason why not and no admission. peer is the address
// that connected, zero if it has none (a Unix socket): it is then in no prefix and has no source.
// now is the time, from time.Now.
//
// The limits of a source are checked first, so that one that asks for too much does not use up
// what is shared.
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

// Identify checks the client of a flow, once: the one that the PROXY header names, or the peer
// itself. If it returns a reason, the flow must end, and keeps its admission until then.
func (g *Controller) Identify(t *Admission, client netip.Addr, now time.Time) spec.Reason {
	client = spec.CanonicalAddr(client)
	if g.bans.Contains(client) {
		return spec.ReasonBanned
	}
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

// State returns the admission as two words, from which Controller.Restore makes it again in another
// process.
func (t *Admission) State() (source, flags uint64) {
	if t.counted {
		source, flags = t.source, flagCounted
	}
	if t.expectsProxy {
		flags |= flagExpectsProxy
	}
	return source, flags
}

// The flags of Admission.State. They are part of what one version tells another.
const (
	flagCounted      = 1
	flagExpectsProxy = 2
)

// Restore admits a flow that another process had admitted, without any check: it is open already.
// It counts for the listener, the total and its source again. source and flags are those that
// Admission.State returned there.
func (g *Controller) Restore(source, flags uint64) Admission {
	t := Admission{counts: g.counts, expectsProxy: flags&flagExpectsProxy != 0}
	if flags&flagCounted != 0 {
		t.source, t.counted = source, true
		t.counts.sources.restore(source)
	}
	g.listener.flows.Add(1)
	g.total.flows.Add(1)
	return t
}

// Release releases the admission. Further calls do nothing.
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

// Allows reports whether the access lists allow a client.
func (g *Controller) Allows(client netip.Addr) bool {
	client = spec.CanonicalAddr(client)
	return (g.deny == nil || !g.deny.Contains(client)) && (g.allow == nil || g.allow.Contains(client))
}

// ExpectsProxy reports whether a peer must begin with a PROXY header. On a Unix socket, where a
// peer has no address, every client must if any prefix is configured.
func (g *Controller) ExpectsProxy(peer netip.Addr) bool {
	return g.proxies != nil && (!peer.IsValid() || g.proxies.Contains(spec.CanonicalAddr(peer)))
}

// Flows returns the number of the listener's open flows.
func (g *Controller) Flows() int64 { return g.listener.flows.Load() }

// Sources returns the number of sources that are remembered: those that have flows, and those
// whose bucket is not full.
func (g *Controller) Sources() int { return g.counts.sources.len() }
