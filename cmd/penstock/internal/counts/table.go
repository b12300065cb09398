package counts

import (
	"fmt"
	"hash/crc32"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// A Table is a set of rows with the same words. Its methods are safe for concurrent use.
type Table struct {
	layout Layout
	place  place
	mem    []atomic.Int64 // nil: all rows are in the heap

	mu    sync.Mutex
	free  []int                     // rows below the ones never used
	found map[string]*Row           // those of the process before that were neither taken nor removed
	first map[string][]atomic.Int64 // see First
	heap  int                       // rows ever that had to be in the heap, because the table was full or the key too long
}

// The states of a row, in its first word, with the length and a checksum of its key:
//
//	free ──New──▶ inUse ──Remove──▶ removed ──nobody has it any more──▶ free
const (
	free    = iota
	inUse   // has a key and counts
	removed // counts nothing that matters, but somebody may still hold it
)

func rowState(state int, key string) int64 {
	return int64(state) | int64(len(key))<<8 | int64(crc32.ChecksumIEEE([]byte(key)))<<32
}

// Heap returns a table of any number of rows in the heap.
func Heap(l Layout) *Table { return &Table{layout: l} }

// A Row has a key and words.
type Row struct {
	table *Table
	key   string
	slot  int // in the table's memory; -1: in the heap
	words []atomic.Int64
}

// Key returns the key of the row.
func (r *Row) Key() string { return r.key }

// Words returns the words of the row, in the order of the layout's names; there may be further
// ones. They may be used as long as the row is reachable.
func (r *Row) Words() []atomic.Int64 { return r.words }

// Rows returns the rows that the table had when its memory was opened, apart from those that Take
// has returned or that were removed since, in no particular order.
func (t *Table) Rows() []*Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.found))
}

// Full reports whether a new row would be in the heap.
func (t *Table) Full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fullLocked()
}

func (t *Table) fullLocked() bool {
	return t.mem != nil && len(t.free) == 0 && t.used() >= t.place.Rows
}

// NotKept returns the number of rows that were ever in the heap, because the table was full or their
// key too long.
func (t *Table) NotKept() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heap
}

// Take returns the row with that key: one of Rows, which is then no longer among them, or else a new
// one. If the table is full, the others of Rows are given up, because nobody has asked for them so far.
func (t *Table) Take(key string) *Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.found[key]; r != nil {
		delete(t.found, key)
		return r
	}
	if t.fullLocked() {
		for key, r := range t.found {
			t.clear(r.slot)
			t.free = append(t.free, r.slot)
			delete(t.found, key)
		}
	}
	return t.newLocked(key)
}

// New adds a row with that key, whose words are 0. No other row may have the key. If the table's
// memory has no room for it, the row is in the heap, and ends with the process.
func (t *Table) New(key string) *Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newLocked(key)
}

// inherit adds a row that is among Rows, as if another process had left it, unless it is in the heap.
func (t *Table) inherit(key string) *Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.newLocked(key)
	if r.slot >= 0 {
		t.found[key] = r
	}
	return r
}

func (t *Table) newLocked(key string) *Row {
	r := &Row{table: t, key: key, slot: -1}
	if t.mem != nil && len(key) <= t.place.Key {
		r.slot = t.takeLocked()
	}
	if r.slot < 0 {
		if t.mem != nil {
			t.heap++
		}
		r.words = make([]atomic.Int64, len(t.layout.Words))
		return r
	}
	row := t.row(r.slot)
	pack(row[1:], key)
	r.words = t.wordsOf(row)
	row[0].Store(rowState(inUse, key)) // last: from here on the row exists
	return r
}

// Remove removes the row from the table: whatever is counted in it from now on is lost. Its memory
// is used again only once the row is unreachable, so that whoever still has it counts in no other
// row.
func (r *Row) Remove() {
	t := r.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found[r.key] == r {
		delete(t.found, r.key)
	}
	if r.slot < 0 || t.row(r.slot)[0].Load()&0xff == removed {
		return
	}
	t.row(r.slot)[0].Store(rowState(removed, r.key))
	runtime.AddCleanup(r, t.reuse, r.slot)
}

// reuse makes a removed row free.
func (t *Table) reuse(slot int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear(slot)
	t.free = append(t.free, slot)
}

func (t *Table) clear(slot int) {
	row := t.row(slot)
	words := t.wordsOf(row)
	for i := range words {
		words[i].Store(0)
	}
	row[0].Store(free)
}

// takeLocked returns a free row, -1 if there is none.
func (t *Table) takeLocked() int {
	if n := len(t.free); n > 0 {
		slot := t.free[n-1]
		t.free = t.free[:n-1]
		return slot
	}
	n := t.used()
	if n >= t.place.Rows {
		return -1
	}
	t.mem[usedAt].Store(int64(n + 1))
	return n
}

func (t *Table) used() int { return int(t.mem[usedAt].Load()) }

func (t *Table) row(slot int) []atomic.Int64 {
	at := tableWords + slot*t.place.Stride
	return t.mem[at : at+t.place.Stride]
}

func (t *Table) wordsOf(row []atomic.Int64) []atomic.Int64 {
	first := t.place.first()
	return row[first : first+len(t.layout.Words) : first+len(t.layout.Words)]
}

// read finds the rows in memory that another process wrote.
func (t *Table) read() error {
	used := t.mem[usedAt].Load()
	if used < 0 || used > int64(t.place.Rows) {
		return fmt.Errorf("%d of %d rows", used, t.place.Rows)
	}
	t.found = make(map[string]*Row)
	var unused []int
	var again []*Row // with the key of another one: versions before did not find the rows that they had copied
	for slot := range int(used) {
		row := t.row(slot)
		w := row[0].Load()
		switch state, n := w&0xff, int(w>>8&0xffff); state {
		case free, removed:
			unused = append(unused, slot)
		case inUse:
			if n > t.place.Key {
				return fmt.Errorf("row %d has a key of %d bytes", slot, n)
			}
			key := string(unpack(row[1:], n))
			if w != rowState(inUse, key) {
				return fmt.Errorf("the key of row %d is damaged", slot)
			}
			r := &Row{table: t, key: key, slot: slot, words: t.wordsOf(row)}
			if t.found[key] != nil {
				again = append(again, r)
			} else {
				t.found[key] = r
			}
		default:
			return fmt.Errorf("row %d has state %d", slot, state)
		}
	}
	if err := t.finishMove(); err != nil {
		return err
	}
	for _, r := range again {
		if t.first[r.key] == nil {
			t.setFirst(r.key, t.found[r.key].words)
		}
		r.MoveTo(t.found[r.key])
		unused = append(unused, r.slot)
	}
	for _, slot := range unused { // once nothing can be wrong any more
		t.clear(slot)
	}
	t.free = unused
	return nil
}

// First returns the words of the first of several rows that had the key when the memory was opened, and of which Rows has the sum; nil if there
// was one. Versions before have left such rows: they copied what the process before them had counted, and went on from 0 in others.
func (t *Table) First(key string) []atomic.Int64 { return t.first[key] }

func (t *Table) setFirst(key string, words []atomic.Int64) {
	if t.first == nil {
		t.first = make(map[string][]atomic.Int64)
	}
	first := make([]atomic.Int64, len(words))
	for i := range words {
		first[i].Store(words[i].Load())
	}
	t.first[key] = first
}
