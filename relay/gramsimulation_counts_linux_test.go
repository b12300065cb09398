package relay

import (
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// gramKernel is the kernel of a process that relays datagrams. It counts the calls that its counters tell of.
type gramKernel struct {
	*simkernel.Process
	s       *gramSimulation
	watched map[int]gramWatch
	refused int // sockets that could not be made
}

// gramCalls are calls, of all processes.
type gramCalls struct{ reads, writes, supers, runs int64 }

// RecvBatch implements [sys.Kernel].
func (k *gramKernel) RecvBatch(fd int, family sys.Family, v *sys.Vector, from, n int) (int, sys.Errno) {
	k.lookAtNote(fd)
	m, e := k.Process.RecvBatch(fd, family, v, from, n)
	if e == 0 {
		k.s.calls.reads++
	}
	for i := from; i < from+m; i++ {
		size, _, _, control := v.Received(i)
		if seg := sys.ParseControl(control).Segment; seg > 0 && seg < size {
			k.s.calls.supers++
		}
	}
	return m, e
}

// SendBatch implements [sys.Kernel].
func (k *gramKernel) SendBatch(fd int, v *sys.Vector, from, n int) (int, sys.Errno) {
	k.s.calls.writes++
	k.lookAtNote(fd)
	k.lookAtFinal()
	k.lookAtRuns(v, from, n)
	k.lookAtLone(fd, v, from, n)
	m, e := k.Process.SendBatch(fd, v, from, n)
	for i := from; i < from+m; i++ {
		if _, run := v.Segmented(i); run {
			k.s.calls.runs++
		}
	}
	return m, e
}

// lookAtNote checks that the next process would know whose turn this one dies in, in a call to the upstream of a flow that is kept.
func (k *gramKernel) lookAtNote(fd int) {
	if k.s.core == nil || k.s.restoring {
		return
	}
	for _, d := range k.s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			if note := d.keep.turn.Note(); f.kept && int(f.fd) == fd && (note.Slot != f.slot || note.Generation != f.gen) {
				k.s.fail("the upstream of the flow in slot %d is read, or sent to, and the note names slot %d", f.slot, note.Slot)
			}
		})
	}
}

// lookAtFinal checks that a flow for which its hook has no upstream any more is noted as ended before anything is sent that waits with it: this process may die then.
func (k *gramKernel) lookAtFinal() {
	if k.s.core == nil || k.s.restoring || k.s.kind.routes == 0 {
		return
	}
	for _, d := range k.s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			if x := k.s.lifeOf(f.Value()); x != nil && x.route.nobody == k.s.ticks && f.kept && d.record(f).State() != recordFinal {
				k.s.fail("the flow in slot %d has no upstream any more, and its record does not say that it ends", f.slot)
			}
		})
	}
}

// lookAtRuns checks that two datagrams to one destination, one behind the other, are sent as one run if they can be. Those of two flows of an address are not.
func (k *gramKernel) lookAtRuns(v *sys.Vector, from, n int) {
	s := k.s
	if s.family() == sys.Unix || s.kind.noGSO || s.kind.preface != gramPrefaceNone || s.kind.named != gramNamedNone || s.kind.several || s.faulted {
		return
	}
	for i := from + 1; i < from+n; i++ {
		_, run := v.Segmented(i - 1)
		_, next := v.Segmented(i)
		if run || next || string(v.Destination(i-1)) != string(v.Destination(i)) || string(v.SentControl(i-1)) != string(v.SentControl(i)) {
			continue
		}
		if a, b := len(v.AppendPayload(nil, i-1)), len(v.AppendPayload(nil, i)); a > 0 && b > 0 && b <= a && a+b <= segment.MaxBytes6 {
			s.fail("two datagrams of %d and %d bytes go to the same address, one by one", a, b)
		}
	}
}

// Send implements [sys.Kernel].
func (k *gramKernel) Send(fd int, b []byte) (int, sys.Errno) {
	k.s.calls.writes++
	k.lookAtNote(fd)
	return k.Process.Send(fd, b)
}

// Datagram implements [sys.Kernel].
func (k *gramKernel) Datagram(family sys.Family) (int, sys.Errno) {
	if family == sys.IPv6 && k.s.kind.noIPv6 {
		return -1, syscall.EAFNOSUPPORT
	}
	fd, e := k.Process.Datagram(family)
	if e != 0 {
		k.refused++
	}
	return fd, e
}

// gramWatch is what a descriptor is watched for, and what its events say.
type gramWatch struct {
	events uint32
	data   uint64
}

// EpollAdd implements [sys.Kernel].
func (k *gramKernel) EpollAdd(ep, fd int, events uint32, data uint64) sys.Errno {
	e := k.Process.EpollAdd(ep, fd, events, data)
	if e == 0 {
		k.watched[fd] = gramWatch{events, data}
	}
	return e
}

// EpollMod implements [sys.Kernel].
func (k *gramKernel) EpollMod(ep, fd int, events uint32, data uint64) sys.Errno {
	if was, ok := k.watched[fd]; ok && was == (gramWatch{events, data}) {
		k.s.fail("descriptor %d is watched for %#x, as it was", fd, events)
	}
	k.watched[fd] = gramWatch{events, data}
	return k.Process.EpollMod(ep, fd, events, data)
}

// Close implements [sys.Kernel].
func (k *gramKernel) Close(fd int) sys.Errno {
	delete(k.watched, fd)
	return k.Process.Close(fd)
}

// gramClosing is a listener that was closed, whose process waits until its ports are.
type gramClosing struct {
	processes int // when that began
	wg        sync.WaitGroup
}

// waits reports whether somebody who waited would still do so. The group is of no use afterwards: its count is one less, which it cannot be
// if it was 0.
func waits(wg *sync.WaitGroup) (is bool) {
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	wg.Done()
	return true
}

// lookAtGram checks what must be true of a flow between two turns, beside its record.
func (s *gramSimulation) lookAtGram(f *datagramFlow, x *gramLife) {
	in, replied := f.moved[up].read, f.moved[down].datagrams > 0
	switch {
	case f.verified && !replied:
		s.fail("the client of flow %d is verified, and nothing was sent to it", x.number)
	case !f.verified && x.replied && in > x.in && !f.suspect:
		s.fail("the client of flow %d has sent something since it got a reply, and is not verified", x.number)
	}
	if limit := s.kind.config.Amplification; limit > 0 && (!f.verified || s.kind.config.AmplificationAlways) && f.moved[down].written > in*int64(limit) {
		s.fail("flow %d has sent %d bytes to a client that is not verified and has sent %d, and the limit is %d", x.number, f.moved[down].written, in, limit)
	}
	x.in, x.replied = in, replied
}

// lookAtWatches checks that epoll tells a flow what it waits for, and nothing else.
func (s *gramSimulation) lookAtWatches(f *datagramFlow) {
	if got, ok := s.kernel.watched[int(f.fd)]; ok && got.events != f.events() && s.core.state != closed {
		s.fail("the socket of the flow in slot %d is watched for %#x, and it waits for %#x", f.slot, got.events, f.events())
	}
}

// lookAtEviction checks that a flow has ended for want of a place, and that none was there that is worth less: one without an answer that
// has waited long enough for it.
func (s *gramSimulation) lookAtEviction(x *gramLife, r *Record) {
	if d := s.core.datagrams.all[x.loop]; d.rests.len() > 0 && d.rests.first().until < d.loop.Now+d.share.restTime && // or it may be the flow's own
		s.kind.maxFlows == 0 && s.process.Fault == nil && !s.restoring {
		s.fail("flow %d was evicted, and on its loop %d sockets rest", x.number, d.rests.len())
	}
	if s.kind.maxFlows == 0 || s.kind.limit > 0 || s.process.Fault != nil {
		return
	}
	live := 1
	for _, d := range s.core.datagrams.all {
		live += d.slab.Live
	}
	if live < s.kind.maxFlows {
		s.fail("flow %d was evicted, as one of %d, and there are places for %d", x.number, live, s.kind.maxFlows)
	}
	if r.Down.Read == 0 {
		return
	}
	d := s.core.datagrams.all[x.loop]
	d.slab.Each(func(f *datagramFlow) {
		if !f.answered && f.upstreamReady() && f.evictable(nil) && !d.inUse(f) {
			s.fail("flow %d was evicted, which had an answer, and the one in slot %d waits in vain", x.number, f.slot)
		}
	})
}

// lookAtPlaces checks that a loop which has refused a new client a place has no flow that is worth less than a new one.
func (s *gramSimulation) lookAtPlaces(i int, last *gramDrops) {
	d := s.core.datagrams.all[i]
	if s.kind.maxFlows == 0 || s.kind.limit > 0 || s.process.Fault != nil || s.kind.busy > 0 || s.kind.sniff > 0 { // or flows come to the lists and leave them within a batch
		return
	}
	worthless := func(a *ages) *datagramFlow {
		for f := a.oldest; f != nil; f = f.newer {
			place := max(s.drops.patience[f.port.fd], last.patience[f.port.fd]) // an answer may have come after that
			switch {
			case f.verified || f.answers > f.requests:
				place = inUseTime
			case f.answered:
				place = patienceAfter(f.firstByte)
			}
			unread := sys.Readable(s.process, f.port.fd) || f.fd >= 0 && sys.Readable(s.process, int(f.fd))
			if d.loop.Seen-f.active > place && !unread && f.evictable(nil) {
				return f
			}
		}
		return nil
	}
	all := []*ages{&d.silent}
	if last.answered[i] && s.drops.answered[i] { // the first answer may have come after that
		all = append(all, &d.answered)
	}
	for _, a := range all {
		if f := worthless(a); f != nil {
			s.fail("a new client of loop %d was refused a place, and the flow in slot %d has been silent for %v\n%s", d.loop.Index, f.slot, d.loop.Now-f.active, s.describeGrams())
		}
	}
}

// upstreamReady reports whether the flow has an upstream.
func (f *datagramFlow) upstreamReady() bool { return f.fd >= 0 }

// lookAtPort checks that nobody is said to wait for a port that has room.
func (s *gramSimulation) lookAtPort(p *datagramPort) {
	if len(p.blocked) > 0 && !p.out.blocked {
		s.fail("%d flows wait for a port that has room", len(p.blocked))
	}
	if p.state == portClosed && p.family != sys.Unix && !sys.Connected(s.process, p.fd) {
		s.fail("a port is closed, and its socket takes datagrams from everybody\n%s", s.describeGrams())
	}
	want := uint32(sys.In)
	if p.out.blocked {
		want |= sys.Out
	}
	if got, ok := s.kernel.watched[p.fd]; ok && got.events != want {
		s.fail("a port is watched for %#x rather than %#x", got.events, want)
	}
}

// checkGramCounts checks what the loops have counted, if no process has died, and what the records say.
func (s *gramSimulation) checkGramCounts() {
	for _, x := range s.closings {
		if x.processes == s.processes && waits(&x.wg) {
			s.fail("a listener was closed, and whoever waits for that would wait for ever")
		}
	}
	var sum loopCounters
	for _, d := range s.core.datagrams.all {
		sum.add(d.loopStats)
	}
	unknown := int64(0) // flows without a record: how they have ended, they have not told
	for _, f := range s.flows {
		if f.records == 0 {
			unknown++
		}
	}
	for c, n := range s.seen.causes {
		if more := sum.Ended[c] - int64(n); more < 0 || more > unknown {
			s.fail("%d flows have told that they ended with %v, %d others have told nothing, and the loops have counted %d", n, c, unknown, sum.Ended[c])
		}
	}
	if s.deaths > 0 || unknown > 0 {
		return
	}
	var all [2]moved
	for _, f := range s.flows {
		for dir, t := range [2]Transfer{up: f.record.Up, down: f.record.Down} {
			m := &all[dir]
			m.read, m.written, m.datagrams, m.dropped = m.read+t.Read, m.written+t.Written, m.datagrams+t.Datagrams, m.dropped+t.DatagramsDropped
			if t.Written+t.Held > t.Read || t.Spliced != 0 || t.Held != 0 {
				s.fail("flow %d has read %d bytes, written %d, holds %d and has spliced %d", f.number, t.Read, t.Written, t.Held, t.Spliced)
			}
		}
	}
	var causes [64]int64
	for c, n := range s.seen.causes {
		causes[c] = int64(n)
	}
	switch {
	case sum.Ended != causes:
		s.fail("flows have ended with the causes %v, and the loops have counted %v", causes, sum.Ended)
	case sum.Accepted != int64(len(s.flows)) || sum.Datagrams.Begun != sum.Accepted:
		s.fail("there were %d flows, and %d and %d are counted", len(s.flows), sum.Accepted, sum.Datagrams.Begun)
	case sum.Datagrams.ReadCalls != s.calls.reads:
		s.fail("%d calls have received something, and %d are counted", s.calls.reads, sum.Datagrams.ReadCalls)
	case sum.Datagrams.WriteCalls != s.calls.writes || sum.Datagrams.SuperPackets != s.calls.supers || sum.Datagrams.Runs != s.calls.runs:
		s.fail("%+v were made, and the loops have counted %+v", s.calls, sum.Datagrams)
	case all[up].written+all[down].written != sum.BytesWritten || all[up].datagrams+all[down].datagrams != sum.Datagrams.Sent:
		s.fail("records say that %d and %d bytes were written, in %d and %d datagrams, and the loops have counted %d and %d", all[up].written, all[down].written, all[up].datagrams, all[down].datagrams,
			sum.BytesWritten, sum.Datagrams.Sent)
	case all[up].read+all[down].read > sum.BytesRead:
		s.fail("records say that %d and %d bytes were read, and the loops have counted %d", all[up].read, all[down].read, sum.BytesRead)
	}
	if n := sum.Datagrams.ICMPErrors; n > s.routes.count && s.kind.network != 3 && !s.faulted {
		s.fail("flows were told of %d ICMP messages, and %d are counted", s.routes.count, n)
	}
	s.checkDirections()
	lost := int64(0)
	for _, n := range sum.Datagrams.Dropped {
		lost += n
	}
	if n := all[up].dropped + all[down].dropped; n > lost {
		s.fail("records say that %d datagrams were dropped, and the loops have counted %d", n, lost)
	}
}

// checkDirections checks that no more datagrams of a client are counted in a direction than were sent in it.
func (s *gramSimulation) checkDirections() {
	if s.kind.builtins > 0 {
		return
	}
	var sent, counted [256][2]int64
	for id := range s.sent {
		sent[id.client][id.dir]++
	}
	for _, f := range s.flows {
		n := &counted[s.clientIs(f)]
		n[up] += f.record.Up.Datagrams + f.record.Up.DatagramsDropped
		n[down] += f.record.Down.Datagrams + f.record.Down.DatagramsDropped
	}
	for i := range s.clients {
		if counted[i][up] > sent[i][up] || counted[i][down] > sent[i][down] {
			s.fail("client %d has sent %d datagrams and was sent %d, and the records of its flows say %v", i, sent[i][up], sent[i][down], counted[i])
		}
	}
}
