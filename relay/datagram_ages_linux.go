package relay

import (
	"cmp"
	"slices"
	"time"
)

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

// activeBits is how many bits of a time are not noted; see [ledger.Gram.Active].
const activeBits = 24

// noteTime returns a time of the loop as a record has it.
func (d *datagrams) noteTime(at time.Duration) uint32 {
	return max(1, uint32((d.keep.base+int64(at))>>activeBits))
}

// restoreAges gives the restored flows the ages that they had when the process before carried something
// last: for how long nobody relayed does not count. It is called when all flows are restored.
func (d *datagrams) restoreAges() {
	for _, a := range []*ages{&d.silent, &d.answered, &d.verified} {
		all := make([]*datagramFlow, 0, a.n)
		for f := a.oldest; f != nil; f = f.newer {
			all = append(all, f)
			if f.noting {
				continue // it has carried something since
			}
			r := d.record(f)
			if at := r.Gram().Active(); at != 0 {
				age := time.Duration(max(0, int32(d.keep.lastActive-at))) << activeBits
				f.active = d.loop.now - age
			}
			r.Gram().SetActive(d.noteTime(f.active))
			d.rearm(f)
		}
		slices.SortStableFunc(all, func(f, g *datagramFlow) int { return cmp.Compare(f.active, g.active) })
		*a = ages{}
		for _, f := range all {
			a.add(f)
		}
	}
}
