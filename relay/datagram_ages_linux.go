package relay

// ages is a list of flows by when they carried something last.
type ages struct {
	newest, oldest *datagramFlow
	n              int
}

func (a *ages) add(f *datagramFlow) {
	a.n++
	f.newer, f.older = nil, a.newest
	if a.newest != nil {
		a.newest.newer = f
	} else {
		a.oldest = f
	}
	a.newest = f
}

func (a *ages) remove(f *datagramFlow) {
	a.n--
	if f.newer != nil {
		f.newer.older = f.older
	} else {
		a.newest = f.older
	}
	if f.older != nil {
		f.older.newer = f.newer
	} else {
		a.oldest = f.newer
	}
	f.newer, f.older = nil, nil
}

// touch makes f the newest.
func (a *ages) touch(f *datagramFlow) {
	if a.newest != f {
		a.remove(f)
		a.add(f)
	}
}

// ageList returns the list that f is in.
func (d *datagrams) ageList(f *datagramFlow) *ages {
	switch {
	case f.sniffed:
		return &d.undecided
	case f.verified:
		return &d.verified
	case f.answered:
		return &d.answered
	}
	return &d.silent
}
