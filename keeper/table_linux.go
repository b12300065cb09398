package keeper

// table has the items that the keeper holds. An item with up to two descriptors and no label, which most
// are, takes 32 bytes and its place in the index.
type table struct {
	index  map[[2]uint64]int32
	slots  []slot
	vacant int32 // first slot that is not in use, plus 1
	labels map[int32]string
	more   map[int32][]int32 // descriptors of items that have more than two

	descriptors int
}

type slot struct {
	key      [2]uint64
	fds      [2]int32
	next     int32 // the next vacant slot, plus 1
	n        uint8 // number of descriptors
	used     bool
	labelled bool
}

func newTable() *table {
	return &table{index: make(map[[2]uint64]int32), labels: make(map[int32]string), more: make(map[int32][]int32)}
}

func (t *table) len() int { return len(t.index) }

// add adds an item, whose descriptors belong to the table from then on. It returns false if the key is in
// use.
func (t *table) add(key [2]uint64, label string, fds []int) bool {
	if _, taken := t.index[key]; taken {
		return false
	}
	at := t.vacant - 1
	if at < 0 {
		at = int32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	s := &t.slots[at]
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
	}
	t.index[key] = at
	t.descriptors += len(fds)
	return true
}

// remove removes an item and appends its descriptors, which belong to the caller, to fds.
func (t *table) remove(key [2]uint64, fds []int) ([]int, bool) {
	at, ok := t.index[key]
	if !ok {
		return fds, false
	}
	fds = t.appendFDs(at, fds)
	s := &t.slots[at]
	t.descriptors -= int(s.n)
	delete(t.index, key)
	delete(t.more, at)
	delete(t.labels, at)
	*s = slot{next: t.vacant}
	t.vacant = at + 1
	return fds, true
}

func (t *table) appendFDs(at int32, fds []int) []int {
	s := &t.slots[at]
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
	pass int // 0, 1, 2; 3: no more
	at   int // next slot
}

const passes = 3

// next returns the next item in the order, from o on, and moves o behind it. ok is false at the end of the
// pass that o was in: o is then at the begin of the next one.
func (t *table) next(o *order, standby map[string]bool) (at int32, ok bool) {
	for ; o.at < len(t.slots); o.at++ {
		s := &t.slots[o.at]
		if !s.used {
			continue
		}
		pass := 2
		if s.labelled {
			pass = 1
			if standby[t.labels[int32(o.at)]] {
				pass = 0
			}
		}
		if pass == o.pass {
			o.at++
			return int32(o.at - 1), true
		}
	}
	*o = order{pass: o.pass + 1}
	return 0, false
}

// all calls f with every item.
func (t *table) all(f func(key [2]uint64, label string, fds []int)) {
	var fds []int
	for at := range t.slots {
		if t.slots[at].used {
			fds = t.appendFDs(int32(at), fds[:0])
			f(t.slots[at].key, t.labels[int32(at)], fds)
		}
	}
}
