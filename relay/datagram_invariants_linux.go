//go:build penstock_invariants

package relay

import (
	"runtime"
	"time"
)

// checkInvariants checks, at the end of a turn, the lists by age, the timers, what is held, and the budget of descriptors. See
// internal/loop.
func (d *datagrams) checkInvariants() {
	l := d.loop
	if len(d.touched) > 0 || len(d.strangers) > 0 || d.admitting != nil {
		l.Violated(40, "%d flows and %d strangers of a batch are left between two turns", len(d.touched), len(d.strangers))
	}
	from, to, all := l.Looked()
	flows, undecided, held := 0, int64(0), int64(0)
	for i := from; i < to; i++ {
		if !d.slab.Has(i) {
			continue // of streams
		}
		f := d.slab.At(i)
		if l.Slots.Owner(i) == nil {
			if f.gen != 0 || f.held != nil || f.port != nil || f.settings != nil || f.newer != nil || f.older != nil || f.reserved != 0 {
				l.Violated(13, "slot %d is free, and has a datagram flow with sockets %d and %d, %d descriptors", i, f.fd, f.own, f.reserved)
			}
			continue
		}
		flows++
		held += int64(cap(f.held))
		if f.sniffed {
			undecided += int64(cap(f.held))
		}
		d.checkFlow(i, f)
	}
	if n := d.undecided.n + d.silent.n + d.answered.n + d.verified.n; n != d.slab.Live || len(d.sniffs) != d.undecided.n {
		l.Violated(15, "%d flows, %d on the lists by age, of these %d undecided, and %d sniffed", d.slab.Live, n, d.undecided.n, len(d.sniffs))
	}
	if n := d.descriptors.resting.Load(); n != int64(d.rests.len()) {
		l.Violated(15, "%d sockets rest, %d are counted", d.rests.len(), n)
	}
	if n := d.descriptors.promised.Load(); d.descriptors.ahead < 0 || n < d.descriptors.ahead {
		l.Violated(7, "%d descriptors are promised, %d of them ahead", n, d.descriptors.ahead)
	}
	if !all {
		return
	}
	if flows != d.slab.Live || undecided != d.undecidedBytes || held != d.stats.BytesHeld {
		l.Violated(15, "%d datagram flows hold %d bytes, of which the undecided %d; counted are %d, %d and %d", flows, held, undecided, d.slab.Live, d.stats.BytesHeld, d.undecidedBytes)
	}
	d.checkDescriptors()
}

// checkFlow checks that a flow is on its list, will be looked at again, and has nothing of a batch.
func (d *datagrams) checkFlow(slot uint32, f *datagramFlow) {
	l := d.loop
	if f.slot != slot || l.Slots.Find(f.ref()) != d {
		l.Violated(10, "the flow of slot %d says slot %d, generation %d", slot, f.slot, f.gen)
	}
	if f.sniffed != (d.sniffs[slot] != nil) {
		l.Violated(40, "slot %d: sniffed is %t, and otherwise known", slot, f.sniffed)
	}
	if f.kept && d.keep.ledger.Record(slot).Generation() != f.gen {
		l.Violated(29, "slot %d: a flow that is kept has no record", slot)
	}
	if v := d.violation(f); v != nil {
		l.Violated(v.Number, "slot %d: %s", slot, v.What)
	}
	d.checkAddress(slot, f)
	a := d.ageList(f)
	if f.older == nil && a.oldest != f || f.newer == nil && a.newest != f || f.older != nil && f.older.newer != f || f.newer != nil && f.newer.older != f {
		l.Violated(15, "slot %d is not on its list by age", slot)
	}
	if f.first >= 0 {
		l.Violated(5, "slot %d has messages of a batch between two turns", slot)
	}
}

// checkDescriptors checks that nothing was given back to the budget of an engine with one loop that somebody still has: flows, sockets
// that rest, pipes, and what the loop has taken ahead. What was never given back shows at the end, in the balance of each test: tests
// take descriptors, too.
func (d *datagrams) checkDescriptors() {
	b := d.descriptors.budget
	if len(b.all) > 1 {
		return
	}
	var want, taken int64
	// Others may be in the middle of a measurement, or of closing idle pipes, and without a CPU there for a while.
	for tries, end := 0, time.Now().Add(time.Second); tries < 1000 || time.Now().Before(end); tries++ {
		want = d.descriptors.ahead + int64(d.rests.len())
		for i := range d.loop.Slots.Len() {
			switch o := d.loop.Slots.Owner(i).(type) {
			case *streams:
				want += int64(o.slab.At(i).reserved)
			case *datagrams:
				f := o.slab.At(i)
				want += int64(f.reserved)
				if f.own >= 0 {
					want++
				}
			}
		}
		if b.pipes != nil {
			want += 2 * b.pipes.Stats().Open
		}
		if taken = b.taken(); taken >= want {
			return
		}
		runtime.Gosched()
	}
	d.loop.Violated(7, "%d descriptors are taken from the budget, and flows, pipes and sockets that rest have %d", taken, want)
}

// checkAddress checks that a port knows all flows of an address, each of them once.
func (d *datagrams) checkAddress(slot uint32, f *datagramFlow) {
	all, found := f.port.siblings(f), 0
	for _, s := range all {
		if s == &f.Flow {
			found++
		}
		if o := d.of(s); o.port != f.port || o.address != addressSeveral || !o.sentBy(f.name[:f.nameLen]) {
			d.loop.Violated(10, "slot %d is among the flows of the address of slot %d", o.slot, slot)
		}
	}
	if several := f.address == addressSeveral; several && (found != 1 || len(all) < 2) || f.port.get(f) != f {
		d.loop.Violated(10, "slot %d: its address has %d flows, among which it is %d times", slot, len(all), found)
	}
}
