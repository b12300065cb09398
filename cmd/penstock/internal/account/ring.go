package account

import "sync/atomic"

// ring is a bounded queue of entries from many event loops to one writer. It takes no
// lock, and put returns false at once if it is full. It is Dmitry Vyukov's bounded
// queue: the turn of a slot tells who may use it.
//
//	after the ring has wrapped r times:
//	turn r·n    empty: the producer that takes this position writes
//	turn r·n+1  full: the writer reads
//
// A slot that was never used is zero, so that its memory is only touched then.
type ring struct {
	slots []slot
	tail  atomic.Uint64 // the next position to be written
	_     [56]byte      // keeps head off the cache line of tail
	head  uint64        // the next position to be read; used by the writer only
}

type slot struct {
	turn  atomic.Uint64
	entry Entry
}

// newRing returns a ring of n slots. n is a power of two.
func newRing(n int) *ring { return &ring{slots: make([]slot, n)} }

// at returns the slot of a position, and how often the ring has wrapped before it, in slots.
func (r *ring) at(pos uint64) (s *slot, wrapped uint64) {
	i := pos & uint64(len(r.slots)-1)
	return &r.slots[i], pos - i
}

// put copies e into the ring, or returns false if the ring is full.
func (r *ring) put(e *Entry) bool {
	pos := r.tail.Load()
	for {
		s, wrapped := r.at(pos)
		switch ahead := int64(s.turn.Load() - wrapped); {
		case ahead == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.entry = *e
				s.turn.Store(wrapped + 1)
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

// next returns the oldest entry, or nil if there is none. The entry is valid until drop.
func (r *ring) next() *Entry {
	s, wrapped := r.at(r.head)
	if s.turn.Load() != wrapped+1 {
		return nil
	}
	return &s.entry
}

// drop frees the slot of the entry that next returned.
func (r *ring) drop() {
	s, wrapped := r.at(r.head)
	s.entry = Entry{} // keep nothing of the flow alive
	s.turn.Store(wrapped + uint64(len(r.slots)))
	r.head++
}
