package quicid

import (
	"bytes"
	"encoding/hex"
	"sync"
	"time"
)

// MaxLen is the maximum length of a connection ID of QUIC 1 and 2, in bytes. RFC 9000, 17.2.
const MaxLen = 20

// An ID is a connection ID. It is comparable.
type ID struct {
	n uint8
	b [MaxLen]byte
}

// NewID returns b as an ID; false: it is empty, or too long for one.
func NewID(b []byte) (id ID, ok bool) {
	if len(b) == 0 || len(b) > MaxLen {
		return ID{}, false
	}
	id.n = uint8(copy(id.b[:], b))
	return id, true
}

// Len returns the length of the ID in bytes; 0: it is none.
func (id *ID) Len() int { return int(id.n) }

// Bytes returns the bytes of the ID, which it shares.
func (id *ID) Bytes() []byte { return id.b[:id.n] }

// Begins reports whether b begins with the ID, which is not empty.
func (id *ID) Begins(b []byte) bool { return id.n > 0 && bytes.HasPrefix(b, id.Bytes()) }

// String returns the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id.b[:id.n]) }

// A Table knows which IDs flows use, and where those flows lead. An ID stays for a while after its last flow has ended, because a
// client may have been silent for longer than its flow. Whoever has used an ID first says where it leads: nobody who has seen
// it can take it away, neither by the ID nor by longer ones. The methods are safe for concurrent use; the zero Table is ready.
type Table[V comparable] struct {
	mu      sync.Mutex
	ids     map[ID]*entry[V]
	lengths [MaxLen + 1]int // how many IDs have which length
	idle    list[V]         // those that no flow uses, the one first whose last flow ended first
	most    int             // 0: MaxIDs
}

const (
	// MaxIDs is how many IDs a Table has. Further ones are not learned, unless an idle one makes room.
	MaxIDs = 1 << 16
	// Keep is how long an ID stays that no flow uses.
	Keep = 5 * time.Minute
	// MinLen is the length of the shortest ID that is learned: a few that are shorter would be what many packets begin with.
	MinLen = 4
	// guesses is how many bytes behind an ID somebody can guess who has the table learn what may follow: they are encrypted, and of
	// four there are more than MaxIDs by far.
	guesses = 3
)

type entry[V comparable] struct {
	id           ID
	to           V
	flows        int
	since        time.Time // it is idle
	newer, older *entry[V]
}

// Use notes that a flow to to uses an ID. It reports whether the ID leads there, and Done is due: not if another flow had it
// first, or one that is shorter by a few bytes, and leads elsewhere, and not if it is too short, or there is no room.
func (t *Table[V]) Use(id ID, to V, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if e := t.ids[id]; e != nil {
		if e.to != to {
			return false
		}
		if e.flows == 0 {
			t.idle.remove(e)
		}
		e.flows++
		return true
	}
	if id.n < MinLen || t.guessed(id, to) {
		return false
	}
	most := t.most
	if most == 0 {
		most = MaxIDs
	}
	if len(t.ids) >= most {
		if t.idle.oldest == nil {
			return false
		}
		t.forget(t.idle.oldest)
	}
	if t.ids == nil {
		t.ids = make(map[ID]*entry[V])
	}
	t.ids[id] = &entry[V]{id: id, to: to, flows: 1}
	t.lengths[id.n]++
	return true
}

// guessed reports whether an ID may be the guess of somebody who knows the beginning of it, which leads elsewhere, and what is behind that
// in a packet. A beginning that is shorter by more says nothing: servers may have the same one in all of their IDs, and it takes nobody's
// place. The caller holds the lock.
func (t *Table[V]) guessed(id ID, to V) bool {
	for n := int(id.n) - guesses; n < int(id.n); n++ {
		if n < MinLen || t.lengths[n] == 0 {
			continue
		}
		known, _ := NewID(id.b[:n])
		if e := t.ids[known]; e != nil && e.to != to {
			return true
		}
	}
	return false
}

// Done notes that a flow for which Use has reported true has ended, or uses the ID no more.
func (t *Table[V]) Done(id ID, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.ids[id]
	if e == nil {
		return
	}
	if e.flows--; e.flows == 0 {
		e.since = now
		t.idle.add(e)
	}
}

// Find returns where the ID leads that b begins with, and the ID. If several do, which is next to impossible unless somebody has
// made them up, it is the longest. If whole is true, b is the ID.
func (t *Table[V]) Find(b []byte, whole bool, now time.Time) (to V, id ID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	for n := min(len(b), MaxLen); n >= MinLen && (n == len(b) || !whole); n-- {
		if t.lengths[n] == 0 {
			continue
		}
		id, _ = NewID(b[:n])
		if e := t.ids[id]; e != nil {
			return e.to, id, true
		}
	}
	return to, ID{}, false
}

// Len returns how many IDs the table has.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ids)
}

// expire forgets what has been idle for too long. The caller holds the lock.
func (t *Table[V]) expire(now time.Time) {
	for e := t.idle.oldest; e != nil && now.Sub(e.since) >= Keep; e = t.idle.oldest {
		t.forget(e)
	}
}

// forget removes an idle ID. The caller holds the lock.
func (t *Table[V]) forget(e *entry[V]) {
	t.idle.remove(e)
	delete(t.ids, e.id)
	t.lengths[e.id.n]--
}

// list is a list of entries, in the order in which they came.
type list[V comparable] struct{ oldest, newest *entry[V] }

func (l *list[V]) add(e *entry[V]) {
	e.newer, e.older = nil, l.newest
	if l.newest != nil {
		l.newest.newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
}

func (l *list[V]) remove(e *entry[V]) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		l.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		l.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}
