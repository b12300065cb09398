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
	lazy    bool             // they are not closed at the next Flush
	dropped map[holdKey]bool // ledgers, by this process: the next one of a loop has another key, since the keeper may learn of a drop later
	real    *simKeeper       // nil: none; else held is the model of what that has to hold, and late is not used
}

// simRelay is the simulation of streams or that of datagrams, to the keeper: what it has the process do that works.
type simRelay interface {
	call(do func()) // in the process; if it dies, the next one begins
	kill()
	// handOver hands over to the next process, unless the holder fails. What came of it, said is told in the process.
	handOver(said func(err error)) bool
	// refuses is called when a process has died, with what it had given to the keeper, which has refused it, and which it thought was held.
	refuses(key holdKey)
}

// newSimHolder returns the holder of a simulation. s is the part of it that both simulations have.
func newSimHolder(s *simulation, of simRelay) *simHolder {
	h := &simHolder{s: s, process: s.world.NewProcess(), held: make(map[holdKey]hold.Held), dropped: make(map[holdKey]bool)}
	if s.real > 0 {
		h.real = newSimKeeper(h, of)
	}
	return h
}

// upgrade has a process hand over to the next one, or asks the keeper for that.
func (h *simHolder) upgrade(how int, of simRelay) bool {
	if h.real != nil {
		return h.real.ask(how)
	}
	return of.handOver(func(err error) {
		if err != nil { // a holder that is busy is asked again
			h.s.fail("hand over: %v", err)
		}
	})
}

func (h *simHolder) Hold(key [2]uint64, label string, fds []int) error {
	h.s.process.Point("hold")
	defer h.s.process.Point("hold")
	x := hold.Held{Key: key, Label: label}
	if h.real != nil {
		if err := h.real.hold(key, label, fds); err != nil {
			return err
		}
		x.FDs, fds = slices.Clone(fds), nil
	}
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
	if h.real != nil {
		h.real.drop(key)
	}
	h.drop(key)
	h.s.process.Point("drop")
}

func (h *simHolder) drop(key [2]uint64) {
	if x, ok := h.held[key]; ok {
		delete(h.held, key)
		if kindOf(key) == holdLedger {
			h.dropped[key] = true
		}
		if h.real == nil {
			h.late = append(h.late, x)
		}
	}
}

func (h *simHolder) Flush() error {
	h.s.process.Point("flush")
	if h.real != nil {
		return h.real.flush()
	}
	if !h.lazy {
		h.closeDropped()
	}
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
	if h.real != nil {
		h.real.closeDropped()
		return
	}
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
	if h.real != nil {
		return h.real.give()
	}
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

// next returns the next process.
func (h *simHolder) next() *simkernel.Process {
	if h.real != nil {
		return h.real.next()
	}
	return h.s.world.NewProcess()
}

// begun is called when a process works, and ended when one has ended.
func (h *simHolder) begun() {
	if h.real != nil {
		h.real.begun()
	}
}

func (h *simHolder) ended() {
	if h.real != nil {
		h.real.ended()
	}
}

// full reports whether the keeper may hold no more at some time.
func (h *simHolder) full() bool { return h.real != nil && h.real.full() }

// refused reports whether the keeper has refused what it was given, of which the engine does not know.
func (h *simHolder) refused(key holdKey) bool { return h.real != nil && h.real.refused(key) }

// fd returns the keeper's first descriptor of what is held.
func (h *simHolder) fd(key holdKey) int {
	if h.real != nil {
		return h.real.fd(key)
	}
	return h.held[key].FDs[0]
}

// kinds returns how many of each kind are held, with the sockets of listeners that an engine asks its holder for again, by the clock.
func (h *simHolder) kinds(of *holding) map[holdKind]int {
	n := make(map[holdKind]int)
	for key := range h.held {
		n[kindOf(key)]++
	}
	for key := range of.unheld {
		if _, ok := h.held[key]; !ok {
			n[holdListener]++
		}
	}
	return n
}

// connections is how many descriptors a process has for its keeper.
func (h *simHolder) connections() int {
	if h.real != nil {
		return 1
	}
	return 0
}

// close closes what is held, when all is over.
func (h *simHolder) close() {
	if h.real != nil {
		h.real.close()
		return
	}
	h.closeDropped()
	for _, x := range h.held {
		for _, fd := range x.FDs {
			h.process.Close(fd)
		}
	}
}
