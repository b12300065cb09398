package relay

import (
	"errors"
	"slices"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/relay/hold"
)

// simHolder is a keeper: it has duplicates of what it was given, in another process.
type simHolder struct {
	s       *simulation
	process *simkernel.Process
	held    map[holdKey]hold.Held
	new     []holdKey        // since the last Flush that succeeded
	fails   int              // the next calls of Flush
	late    []hold.Held      // dropped, and not closed yet
	dropped map[holdKey]bool // ledgers, by this process: the next one of a loop has another key, since the keeper may learn of a drop later
}

func (h *simHolder) Hold(key [2]uint64, label string, fds []int) error {
	h.s.process.Point("hold")
	defer h.s.process.Point("hold")
	x := hold.Held{Key: key, Label: label}
	for _, fd := range fds {
		n, e := h.s.process.Pass(fd, h.process)
		if e != 0 {
			return e
		}
		x.FDs = append(x.FDs, n)
	}
	if _, taken := h.held[key]; taken || h.dropped[key] {
		h.s.fail("key %v is held twice", key)
	}
	h.held[key] = x
	h.new = append(h.new, key)
	return nil
}

func (h *simHolder) Drop(key [2]uint64) {
	h.s.process.Point("drop")
	h.drop(key)
	h.s.process.Point("drop")
}

func (h *simHolder) drop(key [2]uint64) {
	if x, ok := h.held[key]; ok {
		delete(h.held, key)
		if kindOf(key) == holdLedger {
			h.dropped[key] = true
		}
		h.late = append(h.late, x)
	}
}

func (h *simHolder) Flush() error {
	h.s.process.Point("flush")
	h.closeDropped()
	if h.fails > 0 {
		h.fails--
		for _, key := range h.new {
			h.drop(key)
		}
		h.new = nil
		return errSimHolder
	}
	h.new = nil
	return nil
}

var errSimHolder = errors.New("the holder fails")

// closeDropped closes what was dropped, which happens soon, but not at once.
func (h *simHolder) closeDropped() {
	for _, x := range h.late {
		for _, fd := range x.FDs {
			h.process.Close(fd)
		}
	}
	h.late = nil
}

// give gives the next process what is held.
func (h *simHolder) give() (all []hold.Held) {
	clear(h.dropped)
	h.closeDropped()
	h.new = nil
	for _, x := range h.held {
		next := hold.Held{Key: x.Key, Label: x.Label}
		for _, fd := range x.FDs {
			n, e := h.process.Pass(fd, h.s.process)
			if e != 0 {
				h.s.fail("the holder gives %d: %v", fd, e)
			}
			next.FDs = append(next.FDs, n)
		}
		all = append(all, next)
	}
	slices.SortFunc(all, func(a, b hold.Held) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return all
}
