package account

import "sync/atomic"

// ring is a bounded queue of entries from many event loops to one writer. It takes no
// lock, and put returns false at once if it is full. It is Dmitry Vyukov's bounded
// queue: the sequence number of a slot tells who may use it.
//
//	slot i of n, after the ring has wrapped r times:
//	sequence r·n+i    empty: the producer that takes this position writes
//	sequence r·n+i+1  full: the writer reads
type ring struct {
	slots []slot
	tail  atomic.Uint64 // the next position to be written
	_     [56]byte      // keeps head off the cache line of tail
	head  uint64        // the next position to be read; used by the writer only
}

type slot struct {
	sequence atomic.Uint64
	entry    Entry
}

// newRing returns a ring of n slots. n is a power of two.
func newRing(n int) *ring {
	r := &ring{slots: make([]slot, n)}
	for i := range r.slots {
		r.slots[i].sequence.Store(uint64(i))
	}
	return r
}

// put copies e into the ring, or returns false if the ring is full.
func (r *ring) put(e *Entry) bool {
	pos := r.tail.Load()
	for {
		s := &r.slots[pos&uint64(len(r.slots)-1)]
		switch ahead := int64(s.sequence.Load() - pos); {
		case ahead == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.entry = *e
				s.sequence.Store(pos + 1)
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
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	if s.sequence.Load() != r.head+1 {
		return nil
	}
	return &s.entry
}

// drop frees the slot of the entry that next returned.
func (r *ring) drop() {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	s.entry = Entry{} // keep nothing of the flow alive
	s.sequence.Store(r.head + uint64(len(r.slots)))
	r.head++
}
