package relay

import (
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/stats"
)

// A flow whose client is sniffed has no upstream yet. Its datagrams are shown to Hooks.Sniff one by one, and held in
// datagramFlow.held until the hook knows enough; nothing is sent to anybody before. Then they leave in their order. Such
// flows are the first to give way, as a client that has said little so far may be a forged address: see evict.

const (
	// sniffTotal is how many bytes the flows of a loop hold that are sniffed.
	sniffTotal = 8 << 20
	// sniffLeast is the smallest buffer of such a flow: for one datagram, as it travels in most networks.
	sniffLeast = 2 << 10
)

func (d *datagrams) startSniff(fl *Flow, most int, patience time.Duration) error {
	f := d.of(fl)
	if d.watching == f {
		f.watched, f.answering = true, f.cfg.Hooks.Answered != nil
		return nil
	}
	if d.admitting != f {
		return stageError("StartSniff", "of a datagram flow that was admitted", admitOnly)
	}
	if !f.sniffed {
		d.ageList(f).remove(f)
		f.sniffed = true
		d.undecided.add(f)
	}
	if d.sniffs == nil {
		d.sniffs = make(map[uint32]*datagramSniff)
	}
	d.sniffs[f.slot] = &datagramSniff{most: most, until: after(f.start, patience)}
	return nil
}

// decided ends the sniffing of a flow, which has been sent nowhere so far. Where its client is not sniffed, it does nothing.
func (d *datagrams) decided(f *datagramFlow) {
	if !f.sniffed {
		return
	}
	d.undecidedBytes -= int64(cap(f.held))
	d.undecided.remove(f)
	f.sniffed = false
	delete(d.sniffs, f.slot)
	d.silent.add(f)
}

// show shows a flow's messages of the batch to Hooks.Sniff, from message i on. It returns the first one that goes to the upstream,
// behind what was held; -1: none. A message of several datagrams may be decided about in its middle, and is then only the rest.
func (d *datagrams) show(f *datagramFlow, i int16) int16 {
	start := d.loop.Clock()
	defer func() { d.beginning += d.loop.Clock() - start }() // it is a part of what new clients cost
	s := d.sniffs[f.slot]
	for ; i >= 0; i = d.batch[i].next {
		m := &d.batch[i]
		for {
			b := m.b
			if m.seg > 0 {
				b = b[:min(m.seg, len(b))]
			}
			last := s.held+max(1, len(b)) >= s.most
			switch take, next := d.sniff(f, b, last); {
			case next == SniffDone:
				return d.forwardSniffed(f, i)
			case next != SniffMore, last && take == 0:
				d.turnAway(f, i, stats.DropRefused, CauseRefused)
				return -1
			case take > 0:
				d.drop(f, up, stats.DropRefused, len(b), 1)
			default:
				d.holdSniffed(f, s, b, m.tos)
			}
			if m.b = m.b[len(b):]; len(m.b) == 0 {
				break
			}
			if len(m.b) <= m.seg {
				m.seg = 0 // it is the last one
			}
		}
	}
	return -1
}

// sniff calls Hooks.Sniff of a flow that has no upstream yet.
func (d *datagrams) sniff(f *datagramFlow, b []byte, last bool) (take int, next SniffNext) {
	d.watching = f
	take, next = f.cfg.Hooks.Sniff(&f.Flow, b, last)
	d.watching = nil
	return take, next
}

// showWatched shows Hooks.Sniff the first datagram of what a watched client has sent: message i of the batch.
func (d *datagrams) showWatched(f *datagramFlow, i int16) {
	m := &d.batch[i]
	b := m.b
	if m.seg > 0 {
		b = b[:min(m.seg, len(b))]
	}
	_, next := f.cfg.Hooks.Sniff(&f.Flow, b, false)
	f.watched = next == SniffMore
}

// showAnswer shows Hooks.Answered a message from the upstream of a watched flow, datagram by datagram, until it has seen enough.
func (d *datagrams) showAnswer(f *datagramFlow, b []byte, seg int) {
	for one := range segment.All(b, seg) {
		if f.answering = f.cfg.Hooks.Answered(&f.Flow, one, 0, nil); !f.answering {
			return
		}
	}
}

// showEnd tells Hooks.Sniff that nothing more will come in time.
func (d *datagrams) showEnd(f *datagramFlow) {
	if _, next := d.sniff(f, nil, true); next != SniffDone {
		d.turnAway(f, -1, stats.DropRefused, CauseRefused)
		return
	}
	d.forwardSniffed(f, -1)
}

// forwardSniffed connects a flow to an upstream and sends it what was held. It returns i, the first of its messages at hand, or -1
// if the flow has ended.
func (d *datagrams) forwardSniffed(f *datagramFlow, i int16) int16 {
	d.decided(f)
	if why, c := d.open(f); c != CauseNone {
		d.turnAway(f, i, why, c)
		return -1
	}
	if f.held == nil {
		return i
	}
	gen := f.gen
	if d.release(f); f.alive(gen) {
		return i
	}
	d.dropFrom(nil, i, stats.DropEnded)
	return -1
}

// turnAway ends a flow that was sniffed and gets no upstream. Message i is the first of those at hand; -1: there is none.
func (d *datagrams) turnAway(f *datagramFlow, i int16, why stats.Drop, c Cause) {
	d.dropFrom(f, i, why)
	d.decided(f)
	d.dropHeld(f, why)
	d.end(f, c, f.err)
}

// dropFrom drops messages of one flow, from message i of the batch on.
func (d *datagrams) dropFrom(f *datagramFlow, i int16, why stats.Drop) {
	for ; i >= 0; i = d.batch[i].next {
		m := &d.batch[i]
		d.drop(f, up, why, len(m.b), segment.Count(len(m.b), m.seg))
	}
}

// holdSniffed holds a datagram until the flow has an upstream. If there is no room, the datagram is lost, as if the network had
// lost it.
func (d *datagrams) holdSniffed(f *datagramFlow, s *datagramSniff, b []byte, tos uint8) {
	if need := len(f.held) + holdHeader + len(b); need > cap(f.held) && !d.growHeld(f, max(need, sniffLeast)) {
		d.drop(f, up, stats.DropFull, len(b), 1)
		return
	}
	f.held = appendHeld(f.held, b, 0, tos)
	s.held += max(1, len(b)) // one without a byte takes memory, too
}

// growHeld gives a flow a buffer of at least n bytes. If all flows that are sniffed hold too much, the one that was silent for
// longest makes room, unless it is in use.
func (d *datagrams) growHeld(f *datagramFlow, n int) bool {
	if d.share.less.Load() {
		return false
	}
	if n > pool.MaxBuffer {
		n = max(n, cap(f.held)+cap(f.held)/4) // no pool rounds it up, and each growth copies all
	}
	for !d.mayHold(n) || d.undecidedBytes+int64(n) > sniffTotal {
		if !d.evictOldest(&d.undecided, f) {
			return false
		}
	}
	old := f.held
	f.held = append(d.takeHold(n), old...)
	d.undecidedBytes += int64(cap(f.held) - cap(old))
	if old != nil {
		d.giveHold(old)
	}
	return true
}
