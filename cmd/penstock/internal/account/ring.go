package account

import "sync/atomic"

// ring carries entries from many event loops to one writer, without a lock and
// without waiting: who finds it full is told so. (Dmitry Vyukov's bounded queue:
// a slot's turn says whose it is.)
//
//	slot i, in round r of the ring (n slots):
//	turn r·n+i    empty: the producer that takes this position writes
//	turn r·n+i+1  full: the writer reads
type ring struct {
	slots []slot
	tail  atomic.Uint64 // the next position to be written
	_     [56]byte      // the loops' line is not the writer's
	head  uint64        // the next position to be read; the writer's own
}

type slot struct {
	turn  atomic.Uint64
	entry Entry
}

// newRing makes a ring of n slots, a power of two.
func newRing(n int) *ring {
	r := &ring{slots: make([]slot, n)}
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
	return r
}

// put copies e; false says that there is no room.
func (r *ring) put(e *Entry) bool {
	pos := r.tail.Load()
	for {
		s := &r.slots[pos&uint64(len(r.slots)-1)]
		switch ahead := int64(s.turn.Load() - pos); {
		case ahead == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.entry = *e
				s.turn.Store(pos + 1)
				return true
			}
			pos = r.tail.Load()
		case ahead < 0:
			return false
		default:
			pos = r.tail.Load()
		}
	}
}

// next gives the oldest entry, nil if there is none. It stays the writer's until drop.
func (r *ring) next() *Entry {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	if s.turn.Load() != r.head+1 {
		return nil
	}
	return &s.entry
}

// drop gives the slot of the entry that next gave back to the loops.
func (r *ring) drop() {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	s.entry = Entry{} // nothing of a flow is kept alive
	s.turn.Store(r.head + uint64(len(r.slots)))
	r.head++
}
