package relay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock/penstock/relay/hold"
)

// damage kills the process and makes one of its ledgers unreadable. The flows that are held there are lost: their peers' connections are
// reset, and Restore counts them. Those of other loops go on. An ID may be given again.
func (s *simulation) damage(n int) bool {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(s.keeper.held)), func(k holdKey) bool { return kindOf(k) != holdLedger })
	slices.SortFunc(keys, func(a, b holdKey) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	if len(keys) == 0 || s.core == nil {
		return false
	}
	key := keys[n%len(keys)]
	index := loopOf(key)
	gone := loopCounters{}
	if index < len(s.core.stats) {
		gone = *s.core.stats[index]
	}
	s.died()
	for i, n := range totalsOf([]*loopCounters{&gone}) {
		s.totals[i] -= n
	}
	s.vanished.add(&gone)
	if st := s.begun.byLoop; index < len(st) {
		s.begun.flows -= st[index]
	}
	for _, f := range s.flows {
		f.lost = f.lost || f.kept && f.loop == index
		if _, held := s.keeper.held[newHoldKey(holdFlow, f.loop, uint64(f.ref.Slot), uint64(f.ref.Gen))]; held && f.loop == index && f.records > 0 {
			f.timedOut = true // it has ended, which the keeper has not heard, and the record that said so cannot be read
		}
	}
	s.damaged, s.keeper.fails = true, 0 // an engine needs its ledgers held
	s.spoil(s.keeper.held[key])
	s.begin()
	return true
}

// countUnread counts the flows that are held for a loop whose ledger cannot be read, or is held no more: a process that died while it
// dropped them may or may not have told so.
func (s *simulation) countUnread(held []hold.Held) {
	readable := make(map[int]bool)
	for _, x := range held {
		if kindOf(x.Key) == holdLedger && !s.isSpoiled(x.Key) {
			readable[loopOf(x.Key)] = true
		}
	}
	s.begun.unread = 0
	for _, x := range held {
		if kindOf(x.Key) == holdFlow && !readable[loopOf(x.Key)] {
			s.begun.unread++
		}
	}
}

// spoil makes a ledger unreadable.
func (s *simulation) spoil(x hold.Held) {
	s.onLedger(x.Key, func(mem []byte) {
		mem[0] ^= 0xff
		if s.spoiled == nil {
			s.spoiled = make(map[*byte]bool)
		}
		s.spoiled[&mem[0]] = !s.spoiled[&mem[0]]
	})
}

// isSpoiled reports whether a ledger that is held cannot be read.
func (s *simulation) isSpoiled(key holdKey) (is bool) {
	if len(s.spoiled) > 0 {
		s.onLedger(key, func(mem []byte) { is = s.spoiled[&mem[0]] })
	}
	return is
}

// onLedger calls do with the memory of a ledger that is held.
func (s *simulation) onLedger(key holdKey, do func(mem []byte)) {
	p, fd := s.keeper.process, s.keeper.fd(key)
	size, e := p.SealedSize(fd)
	if e != 0 {
		s.fail("the size of a ledger: %v", e)
		return
	}
	mem, e := p.Map(fd, size)
	if e != 0 {
		s.fail("map a ledger: %v", e)
		return
	}
	do(mem)
	p.Unmap(mem)
}

// lookAtGenerations checks that new flows have other keys than those that are held, whose ledgers may not be readable: a process may die before the keeper has
// heard that they are dropped, and the sockets of one flow must not be taken for those of another.
func (s *simulation) lookAtGenerations(held []hold.Held) {
	for _, x := range held {
		if i := loopOf(x.Key); kindOf(x.Key) == holdFlow && i < len(s.core.loops) && uint64(s.core.streams.all[i].keep.newest) < x.Key[1] {
			s.fail("a flow of loop %d with generation %d is held, and the next one has %d", i, x.Key[1], s.core.streams.all[i].keep.newest+1)
		}
	}
}
