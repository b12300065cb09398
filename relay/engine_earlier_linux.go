package relay

import (
	"cmp"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
)

// newPipes returns the engine's budget of pipes, or nil if nothing is spliced.
func (e *core) newPipes() *pump.Pipes {
	switch {
	case e.holding != nil && (e.cfg.MaxPipes >= 0 || len(e.earlier.pipes) > 0):
		return pump.NewKeptPipes(e.kernel, e.cfg.PipeSize, e.cfg.MaxPipes, e.holding, e.earlier.pipes)
	case e.cfg.MaxPipes >= 0:
		return pump.NewPipes(e.kernel, e.cfg.PipeSize, e.cfg.MaxPipes)
	}
	return nil
}

// releaseEarlier closes what is left of an earlier process when its flows are restored, or the engine
// is closed before.
func (e *core) releaseEarlier() {
	h := e.holding
	for _, x := range slices.Concat(e.earlier.flows, e.earlier.ledgers) {
		h.release(x)
	}
	e.earlier = earlierHeld{}
	h.releaseSockets()
	if e.streams.pipes != nil {
		e.streams.pipes.Settle()
	}
}

// startListeners lets the listeners take clients that waited for Restore.
func (e *core) startListeners() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaitsRestore = false
	for _, l := range e.sortedListeners() {
		if l.paused && !l.cfg.Load().Paused {
			l.paused = false
			l.start()
		}
	}
}

// sortedListeners returns the listeners in an order that does not change from run to run. Engine.mu is held.
func (e *core) sortedListeners() []*Listener {
	return slices.SortedFunc(maps.Keys(e.listeners), func(a, b *Listener) int { return cmp.Compare(a.label, b.label) })
}

// attachPorts has the datagram ports of all listeners ready for the flows of an earlier process. They
// do not receive before startListeners.
func (e *core) attachPorts() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for l := range e.listeners {
		if l.paused && l.addr.Network.Datagrams() {
			l.attached = true
			for _, p := range l.ports {
				p.(*datagramPort).prepare()
			}
		}
	}
}

// takeCounters continues the counters of loops that this process does not have as those of its first one, and lets go of their ledgers.
// A process that dies before leaves them to the next one. The holder may learn of the drop too late: so the counters are 0 then.
func (e *core) takeCounters() {
	for _, l := range e.surplus {
		if s, err := ledger.StatsOf[loopCounters](l.ledger); err == nil {
			s.resetGauges()
			e.stats[0].add(s)
			*s = loopCounters{}
		}
		l.ledger.Close()
		e.holding.drop(l.key)
	}
	e.surplus = nil
}

// findOlder finds the datagram flows of an earlier process whose client has a newer one at the same listener, on whichever
// loop. The newer one goes on, because what the client sends reaches that one: it has begun because the kernel gave the client
// another socket, of a listener that was removed and added again, which does not know the older one.
//
// The sockets of such a listener are gone, or are beside those of the one that has the address now, and the kernel chooses among those
// that are left by their number. So it may give the clients of that listener to other loops than those of their flows.
//
// Where a client may have several flows at one listener, none is older: Hooks.Choose chooses.
//
// It is called before the loops run.
func (e *core) findOlder() {
	type place struct {
		of   *tenant
		slot uint32
	}
	newest := make(map[uint64]place) // by a hash, which is smaller
	seed := maphash.MakeSeed()
	held := e.holding.datagramSockets()
	e.datagrams.regrouped = e.holding.regrouped()
	for _, s := range e.streams.all {
		for slot, r := range s.keep.ledger.All() {
			c, ok := s.clientOf(r)
			if !ok {
				continue
			}
			e.datagrams.setHome(c.listener, s.loop.Index)
			if n := r.Gram().Socket(); n > 0 && !held[uint64(n-1)] {
				e.datagrams.regrouped[c.listener] = true
			}
			if r.Flags()&recordDivided != 0 {
				continue // its client may have several
			}
			hash := maphash.Comparable(seed, c)
			other, taken := newest[hash]
			if !taken {
				newest[hash] = place{&s.tenant, slot}
				continue
			}
			before := other.of.keep.ledger.Record(other.slot)
			if its, _ := other.of.clientOf(before); its != c {
				continue
			}
			older := place{&s.tenant, slot}
			if r.Start() > before.Start() {
				newest[hash], older = older, other
			}
			older.of.keep.markOlder(older.slot)
		}
	}
}

// recordClient is who the client of a datagram flow of an earlier process is.
type recordClient struct {
	listener      string
	client, local ledger.Addr
	named, to     netip.AddrPort // of one that shares the address of a proxy
}

// clientOf returns the client of a UDP flow that may go on.
func (t *tenant) clientOf(r ledger.Record) (c recordClient, ok bool) {
	const unfit, fit = recordDamaged | recordStale, recordHeld | recordEcho | recordDiscard
	if flags := r.Flags(); r.Kind() != ledger.KindDatagram || r.State() == recordFinal || flags&unfit != 0 || flags&fit == 0 {
		return c, false
	}
	c.client, c.local = r.Gram().Client(), r.Gram().Local()
	if r.Flags()&recordShares != 0 {
		m, err := t.readRecord(new(Flow), r)
		if err != nil {
			return c, false
		}
		c.named, c.to = m.flowName.client, m.to
	}
	c.listener, ok = t.keep.ledger.String(r.Listener())
	return c, ok && c.client.Len > 0
}

// markOlder notes that the client of the flow in a slot has a newer one.
func (k *keeping) markOlder(slot uint32) {
	if k.older == nil {
		k.older = make(map[uint32]bool)
	}
	k.older[slot] = true
}
