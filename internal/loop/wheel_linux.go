package loop

import (
	"math/bits"
	"time"
)

// wheel is a hashed timer wheel over small integers, the slots of a loop.
// An entry says only at which tick to look at it again; what is then due the
// owner knows. So moving a deadline costs nothing until the old one comes up.
//
// The lists are intrusive: next and prev hold index+1, 0 is the end.
type wheel struct {
	head       [wheelSlots]uint32
	used       [wheelSlots / 64]uint64 // slots that are not empty
	next, prev []uint32
	slot       []uint16 // where an entry is, slot+1; 0: nowhere
	now        int64    // every tick up to this one has been looked at
}

const wheelSlots = 512

// add enters i, to be looked at after tick at; a tick further away than the
// wheel reaches comes up early. An entry that stands already is moved.
func (w *wheel) add(i uint32, at int64) {
	for int(i) >= len(w.slot) {
		w.next, w.prev, w.slot = append(w.next, 0), append(w.prev, 0), append(w.slot, 0)
	}
	w.remove(i)
	at = min(max(at, w.now+1), w.now+wheelSlots-1)
	s := uint16(at % wheelSlots)
	first := w.head[s]
	w.next[i], w.prev[i] = first, 0
	if first != 0 {
		w.prev[first-1] = i + 1
	}
	w.head[s] = i + 1
	w.slot[i] = s + 1
	w.used[s/64] |= 1 << (s % 64)
}

// remove takes i out, if it is in.
func (w *wheel) remove(i uint32) {
	if int(i) >= len(w.slot) || w.slot[i] == 0 {
		return
	}
	s := w.slot[i] - 1
	w.slot[i] = 0
	n, p := w.next[i], w.prev[i]
	if n != 0 {
		w.prev[n-1] = p
	}
	if p != 0 {
		w.next[p-1] = n
		return
	}
	w.head[s] = n
	if n == 0 {
		w.used[s/64] &^= 1 << (s % 64)
	}
}

// advance takes out each entry whose tick is not after now, and gives it to due,
// most of them at the most: what is left comes with the next call. due may add
// and remove entries.
func (w *wheel) advance(now int64, most int, due func(i uint32)) {
	if now-w.now > wheelSlots {
		w.now = now - wheelSlots
	}
	for { // the slot of w.now has what the last call left; nothing is added to it
		s := w.now % wheelSlots
		for w.head[s] != 0 {
			if most--; most < 0 {
				return
			}
			i := w.head[s] - 1
			w.remove(i)
			due(i)
		}
		if w.now >= now {
			return
		}
		w.now++
	}
}

// until returns in how many ticks the next entry comes up, or -1 if there is none.
func (w *wheel) until() int64 {
	if w.head[w.now%wheelSlots] != 0 {
		return 0
	}
	start := uint(w.now+1) % wheelSlots
	word := w.used[start/64] >> (start % 64) << (start % 64)
	for k := range uint(len(w.used) + 1) {
		at := (start/64 + k) % uint(len(w.used))
		if k > 0 {
			word = w.used[at]
		}
		if word != 0 {
			s := at*64 + uint(bits.TrailingZeros64(word))
			return int64((s-start+wheelSlots)%wheelSlots) + 1
		}
	}
	return -1
}

// Tick is the timers' grain.
const Tick = 64 * time.Millisecond

// tickAt returns the first tick that is not before t.
func tickAt(t time.Duration) int64 {
	n := int64(t / Tick)
	if t%Tick > 0 {
		n++
	}
	return n
}
