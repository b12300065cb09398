package hooks

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A Sighting is what a watcher is told of a flow: where its sockets are, and once it has ended, why.
type Sighting struct {
	Names
	ID                         uint64
	Datagrams                  bool
	SNI                        string
	Client, Peer               relay.Addr
	Shared                     bool       // Peer is, by several clients
	Local                      relay.Addr // zero if nobody had asked for it before the flow ended
	Upstream, UpstreamLocal    relay.Addr
	ClientTLS, UpstreamTLS     bool // ends, or begins, at this relay
	ConnectBegan, Began, Ended time.Time
	Cause                      relay.Cause // once it has ended
	Reason                     spec.Reason
	Err                        error
}

// Watchers are told of flows when an attempt to connect to a member has ended, well or not, and when they end. The zero value has none.
type Watchers struct {
	mu  sync.Mutex // serializes changes
	all atomic.Pointer[[]*Watcher]
}

// A Watcher is told of the flows that it wants.
type Watcher struct {
	// Seen receives them. What does not fit is counted instead: an event loop never waits.
	Seen    chan Sighting
	Dropped atomic.Int64
	wants   func(id uint64, listener string, client netip.Addr) bool
}

// watched is how many sightings wait for their watcher.
const watched = 1024

// Add returns a watcher of the flows that wants wants, which is called on event loops.
func (w *Watchers) Add(wants func(id uint64, listener string, client netip.Addr) bool) *Watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &Watcher{Seen: make(chan Sighting, watched), wants: wants}
	var next []*Watcher
	if now := w.all.Load(); now != nil {
		next = slices.Clone(*now)
	}
	next = append(next, n)
	w.all.Store(&next)
	return n
}

// Remove removes a watcher. It may still be told of a flow.
func (w *Watchers) Remove(n *Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(*w.all.Load()), func(other *Watcher) bool { return other == n })
	if len(next) == 0 {
		w.all.Store(nil)
		return
	}
	w.all.Store(&next)
}

// tell tells those of a flow that want it; of makes the sighting, which may take system calls.
func (w *Watchers) tell(id uint64, listener string, client netip.Addr, of func() Sighting) {
	all := w.all.Load()
	if all == nil {
		return
	}
	for _, n := range *all {
		if !n.wants(id, listener, client.Unmap()) {
			continue
		}
		select {
		case n.Seen <- of():
		default:
			n.Dropped.Add(1)
		}
	}
}

// connected tells of a flow after an attempt to connect to a member, which took so long.
func (w *Watchers) connected(f *relay.Flow, p *State, took time.Duration, tls bool) {
	w.tell(f.ID(), p.plan.Spec.Name, clientAddr(f), func() Sighting {
		return Sighting{
			ID: f.ID(), Names: p.Names(), Datagrams: p.plan.Spec.Datagrams, SNI: p.clientTLS().ServerName,
			Client: f.Client(), Peer: f.Peer(), Shared: p.SharesPeer(f.Peer()), Local: f.Local(), Upstream: *f.Upstream(), UpstreamLocal: f.UpstreamLocal(),
			ClientTLS: p.terminated(), UpstreamTLS: tls, ConnectBegan: time.Now().Add(-took),
		}
	})
}

// ended tells of a flow that has ended.
func (w *Watchers) ended(e *account.Entry, p *State) {
	w.tell(e.ID, e.ListenerName, e.Client.AddrPort.Addr(), func() Sighting {
		now := time.Now()
		return Sighting{
			ID: e.ID, Names: Names{e.ListenerName, e.Route, e.Group, e.Member}, Datagrams: e.Datagrams, SNI: e.SNI,
			Client: e.Client, Peer: e.Peer, Shared: p.SharesPeer(e.Peer), Local: e.Local, Upstream: e.Upstream, ClientTLS: e.ClientTLS != nil, UpstreamTLS: e.UpstreamTLS != nil,
			Began: now.Add(-now.Sub(e.Start)), Ended: now, Cause: e.Cause, Reason: e.Reason, Err: e.Err,
		}
	})
}
