package keeper

import "hash/maphash"

// table has the items that the keeper holds. An item with up to two descriptors and no label, which most
// are, takes 32 bytes and 5 to 11 in the index.
type table struct {
	seed   maphash.Seed
	index  []int32  // open addressing by key: place of the item, plus 1; 0: nothing
	chunks [][]slot // all of chunkSize, so that growing copies nothing
	size   int32    // places that were ever used
	items  int
	vacant int32 // first place that is not in use, plus 1
	labels map[int32]string
	more   map[int32][]int32 // descriptors of items that have more than two

	descriptors int
	labelBytes  int // of labels
}

type slot struct {
	key      [2]uint64
	fds      [2]int32
	next     int32 // the next vacant place, plus 1
	n        uint8 // number of descriptors
	used     bool
	labelled bool
}

const chunkSize = 256

func newTable() *table {
	return &table{seed: maphash.MakeSeed(), index: make([]int32, 64), labels: make(map[int32]string), more: make(map[int32][]int32)}
}

func (t *table) len() int { return t.items }

func (t *table) slot(at int32) *slot { return &t.chunks[at/chunkSize][at%chunkSize] }

// home is where the search for a key begins.
func (t *table) home(key [2]uint64) int {
	return int(maphash.Comparable(t.seed, key) & uint64(len(t.index)-1))
}

// find returns where in the index a key is, or would be added, and whether it is there.
func (t *table) find(key [2]uint64) (i int, ok bool) {
	for i = t.home(key); t.index[i] != 0; i = (i + 1) & (len(t.index) - 1) {
		if t.slot(t.index[i]-1).key == key {
			return i, true
		}
	}
	return i, false
}

// grow makes the index twice as large.
func (t *table) grow() {
	old := t.index
	t.index = make([]int32, 2*len(old))
	for _, n := range old {
		if n != 0 {
			i, _ := t.find(t.slot(n - 1).key)
			t.index[i] = n
		}
	}
}

// forget empties a place of the index, and moves up those that are behind it because it was taken.
func (t *table) forget(i int) {
	mask := len(t.index) - 1
	for j := (i + 1) & mask; t.index[j] != 0; j = (j + 1) & mask {
		home := t.home(t.slot(t.index[j] - 1).key)
		if (j-home)&mask >= (j-i)&mask {
			t.index[i] = t.index[j]
			i = j
		}
	}
	t.index[i] = 0
}

// add adds an item, whose descriptors belong to the table from then on. It returns false if the key is in
// use.
func (t *table) add(key [2]uint64, label string, fds []int) bool {
	if 4*(t.items+1) > 3*len(t.index) {
		t.grow()
	}
	i, taken := t.find(key)
	if taken {
		return false
	}
	at := t.vacant - 1
	if at < 0 {
		at = t.size
		t.size++
		if int(at/chunkSize) == len(t.chunks) {
			t.chunks = append(t.chunks, make([]slot, chunkSize))
		}
	}
	s := t.slot(at)
	t.vacant = s.next
	*s = slot{key: key, n: uint8(len(fds)), used: true, labelled: label != ""}
	if len(fds) <= len(s.fds) {
		for i, fd := range fds {
			s.fds[i] = int32(fd)
		}
	} else {
		list := make([]int32, len(fds))
		for i, fd := range fds {
			list[i] = int32(fd)
		}
		t.more[at] = list
	}
	if label != "" {
		t.labels[at] = label
		t.labelBytes += len(label)
	}
	t.index[i] = at + 1
	t.items++
	t.descriptors += len(fds)
	return true
}

// remove removes an item and appends its descriptors, which belong to the caller, to fds.
func (t *table) remove(key [2]uint64, fds []int) ([]int, bool) {
	i, ok := t.find(key)
	if !ok {
		return fds, false
	}
	at := t.index[i] - 1
	fds = t.appendFDs(at, fds)
	t.forget(i)
	s := t.slot(at)
	t.descriptors -= int(s.n)
	t.items--
	delete(t.more, at)
	t.labelBytes -= len(t.labels[at])
	delete(t.labels, at)
	*s = slot{next: t.vacant}
	t.vacant = at + 1
	return fds, true
}

// labelled calls yield for each item with a label, until it returns false.
func (t *table) labelled(yield func(label string, fds []int) bool) {
	for at, label := range t.labels {
		if !yield(label, t.appendFDs(at, nil)) {
			return
		}
	}
}

func (t *table) appendFDs(at int32, fds []int) []int {
	s := t.slot(at)
	if list, ok := t.more[at]; ok {
		for _, fd := range list {
			fds = append(fds, int(fd))
		}
		return fds
	}
	for _, fd := range s.fds[:s.n] {
		fds = append(fds, int(fd))
	}
	return fds
}

// order is the order in which items are handed out: first those with labels of Config.Standby, then the
// others with labels, then those without, of which there are many. If a worker runs out of
// descriptors, what it cannot do without has come first.
type order struct {
	pass int   // 0, 1, 2; 3: no more
	at   int32 // next place
}

const passes = 3

// next returns the next item in the order, from o on, and moves o behind it. ok is false at the end of the
// pass that o was in: o is then at the begin of the next one.
func (t *table) next(o *order, standby map[string]bool) (at int32, ok bool) {
	for ; o.at < t.size; o.at++ {
		s := t.slot(o.at)
		if !s.used {
			continue
		}
		pass := 2
		if s.labelled {
			pass = 1
			if standby[t.labels[o.at]] {
				pass = 0
			}
		}
		if pass == o.pass {
			o.at++
			return o.at - 1, true
		}
	}
	*o = order{pass: o.pass + 1}
	return 0, false
}

// each calls f with every item.
func (t *table) each(f func(key [2]uint64, label string, fds []int)) {
	var fds []int
	for at := range t.size {
		if s := t.slot(at); s.used {
			fds = t.appendFDs(at, fds[:0])
			f(s.key, t.labels[at], fds)
		}
	}
}
