package relay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

// holdKind is what a key of [hold.Holder] stands for. It is the highest byte of the key's first word; the
// loop's index and a number follow:
//
//	kind 8 bits | loop 8 bits | number 48 bits, generation 64 bits
type holdKind uint8

const (
	holdLedger   holdKind = ledger.KeyKind
	holdListener holdKind = 2 // a listener's socket; the label is the address
	holdPipe     holdKind = 3 // both ends of a pipe
	holdFlow     holdKind = 4 // the sockets of a flow
	// Keys of this kind and higher ones are for the engine's owner.
	holdOwner holdKind = 128
)

type holdKey = [2]uint64

func newHoldKey(kind holdKind, loop int, number, generation uint64) holdKey {
	return holdKey{uint64(kind)<<56 | uint64(loop)<<48 | number&(1<<48-1), generation}
}

func kindOf(k holdKey) holdKind { return holdKind(k[0] >> 56) }
func loopOf(k holdKey) int      { return int(k[0] >> 48 & 0xff) }
func numberOf(k holdKey) uint64 { return k[0] & (1<<48 - 1) }

// holding is the engine's access to its Holder. A Flush tells whether everything is held that was
// given to Hold before, whoever gave it; so the lock is held from the first Hold to the Flush.
type holding struct {
	kernel   sys.Kernel
	holder   hold.Holder
	fastOpen bool // the system lets every listener accept data with the SYN

	mu      sync.Mutex
	sockets uint64                     // keys of listeners' sockets that were given out
	earlier map[string][]*listenSocket // listeners' sockets of an earlier process that nobody has taken yet, by address
	unheld  map[holdKey]unheldSocket
	again   *time.Timer // nil: nothing is to be held again
	closed  bool
}

// listenSocket is a socket of a listener.
type listenSocket struct {
	fd  int
	key holdKey // that it is held under; zero: it is not
}

// unheldSocket is a listener's socket that could not be held yet.
type unheldSocket struct {
	fd    int
	label string
}

// earlierHeld is what was held for an engine that is gone, by kind.
type earlierHeld struct {
	ledgers, flows []hold.Held
	pipes          []pump.HeldPipe
}

// newHolding returns the access to k.Holder, and what k.Held has for others than listeners. The engine
// owns the descriptors from now on.
func newHolding(kernel sys.Kernel, k *hold.Keep) (*holding, earlierHeld) {
	h := &holding{kernel: kernel, holder: k.Holder, fastOpen: kernel.FastOpenAlways(), earlier: make(map[string][]*listenSocket), unheld: make(map[holdKey]unheldSocket)}
	var e earlierHeld
	for _, x := range k.Held {
		switch kind := kindOf(x.Key); {
		case kind == holdLedger && len(x.FDs) == 1:
			e.ledgers = append(e.ledgers, x)
		case kind == holdFlow && len(x.FDs) > 0:
			e.flows = append(e.flows, x)
		case kind == holdListener && len(x.FDs) == 1:
			h.sockets = max(h.sockets, numberOf(x.Key)+1)
			h.earlier[x.Label] = append(h.earlier[x.Label], &listenSocket{x.FDs[0], x.Key})
		case kind == holdPipe && len(x.FDs) == 2 && numberOf(x.Key) <= pump.MaxPipeNumber && x.Key[1] < 1<<32:
			key := pump.PipeKey{Number: uint32(numberOf(x.Key)), Generation: uint32(x.Key[1])}
			e.pipes = append(e.pipes, pump.HeldPipe{Key: key, R: x.FDs[0], W: x.FDs[1]})
		default:
			h.release(x)
		}
	}
	for label, s := range h.earlier {
		slices.SortFunc(s, func(a, b *listenSocket) int { return cmp.Compare(numberOf(a.key), numberOf(b.key)) })
		h.earlier[label] = h.unique(s)
	}
	return h, e
}

// datagramSockets returns the numbers of the sockets of datagram listeners that were held, and receive.
func (h *holding) datagramSockets() map[uint64]bool {
	numbers := make(map[uint64]bool)
	for _, sockets := range h.earlier {
		for _, s := range sockets {
			if _, kind, _, e := sys.SocketKind(h.kernel, s.fd); e == 0 && kind == sys.SockDgram && !sys.Connected(h.kernel, s.fd) {
				numbers[numberOf(s.key)] = true
			}
		}
	}
	return numbers
}

// regrouped returns the datagram listeners of an earlier process whose sockets are not those that they had together: one that was being
// removed while another one was added at its address, of which there are two sockets of a loop, and one that was closing, on some loops earlier
// than on others.
func (h *holding) regrouped() map[string]bool {
	listeners := make(map[string]bool)
	for label, sockets := range h.earlier {
		for i, s := range sockets {
			if slices.ContainsFunc(sockets[:i], func(other *listenSocket) bool { return loopOf(other.key) == loopOf(s.key) }) {
				listeners[label] = true
			}
			if s.key[1] != uint64(len(sockets)) {
				listeners[label] = true
			}
		}
	}
	return listeners
}

// unique drops all but the last of several keys of one socket: the process died before it had dropped
// the others.
func (h *holding) unique(all []*listenSocket) (u []*listenSocket) {
	for i, s := range all {
		if slices.ContainsFunc(all[i+1:], func(other *listenSocket) bool { return h.kernel.SameSocket(s.fd, other.fd) }) {
			h.release(hold.Held{Key: s.key, FDs: []int{s.fd}})
			continue
		}
		u = append(u, s)
	}
	return u
}

// release closes what nobody needs. The descriptors of the engine's owner stay the owner's.
func (h *holding) release(x hold.Held) {
	if kindOf(x.Key) >= holdOwner {
		return
	}
	for _, fd := range x.FDs {
		h.kernel.Close(fd)
	}
	h.holder.Drop(x.Key)
}

// hold has everything held, or nothing: then it returns the error, and the caller may try again.
func (h *holding) hold(all ...hold.Held) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holdLocked(all...)
}

func (h *holding) holdLocked(all ...hold.Held) error {
	var err error
	for i := range all {
		if err = h.holder.Hold(all[i].Key, all[i].Label, all[i].FDs); err != nil {
			break
		}
	}
	// Also after an error, so that the next caller is not told about what is queued now.
	if e := h.holder.Flush(); err == nil {
		err = e
	}
	if err != nil {
		for i := range all {
			h.holder.Drop(all[i].Key)
		}
	}
	return err
}

// flush reports whether the holder still holds. It may be busy for some time.
func (h *holding) flush(most time.Duration) (err error) {
	for last := h.kernel.Now().Add(most); ; h.kernel.Sleep(time.Millisecond) {
		h.mu.Lock()
		err = h.holder.Flush()
		h.mu.Unlock()
		if err == nil || h.kernel.Now().After(last) {
			return err
		}
	}
}

func (h *holding) drop(k holdKey) { h.holder.Drop(k) }

// HoldPipe implements [pump.PipeHolder].
func (h *holding) HoldPipe(k pump.PipeKey, r, w int) bool {
	return h.hold(hold.Held{Key: pipeKey(k), FDs: []int{r, w}}) == nil
}

// DropPipe implements [pump.PipeHolder].
func (h *holding) DropPipe(k pump.PipeKey) { h.drop(pipeKey(k)) }

func pipeKey(k pump.PipeKey) holdKey {
	return newHoldKey(holdPipe, 0, uint64(k.Number), uint64(k.Generation))
}

// take returns the sockets that a listener of an earlier process had at an address. They belong to
// the caller, who gives back those that it cannot use.
func (h *holding) take(label string) []*listenSocket {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.earlier[label]
	delete(h.earlier, label)
	return s
}

func (h *holding) giveBack(label string, s []*listenSocket) {
	if len(s) == 0 {
		return
	}
	h.mu.Lock()
	h.earlier[label] = append(s, h.earlier[label]...)
	h.mu.Unlock()
}

// releaseSockets closes the sockets that no listener has taken.
func (h *holding) releaseSockets() {
	h.mu.Lock()
	earlier := h.earlier
	h.earlier = make(map[string][]*listenSocket)
	h.mu.Unlock()
	for _, sockets := range earlier {
		for _, s := range sockets {
			h.release(hold.Held{Key: s.key, FDs: []int{s.fd}})
		}
	}
}

// holdSocket has a new socket of a listener held, now or later. A listener works without being held:
// only the next process cannot go on with it.
//
// The key has how many sockets the listener has, so that the next process notices if it does not get all of them.
func (h *holding) holdSocket(loop int, s *listenSocket, label string, all int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.key = newHoldKey(holdListener, loop, h.sockets, uint64(all))
	h.sockets++
	if h.holdLocked(hold.Held{Key: s.key, Label: label, FDs: []int{s.fd}}) != nil {
		h.unheld[s.key] = unheldSocket{s.fd, label}
		h.laterLocked()
	}
}

// holdAgainAfter is how long it takes until sockets that could not be held are tried again.
const holdAgainAfter = time.Second

func (h *holding) laterLocked() {
	if h.again == nil && !h.closed {
		h.again = time.AfterFunc(holdAgainAfter, h.holdAgain)
	}
}

// holdAgain asks for sockets again that could not be held before.
func (h *holding) holdAgain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.again = nil
	for k, s := range h.unheld {
		if h.closed || h.holdLocked(hold.Held{Key: k, Label: s.label, FDs: []int{s.fd}}) != nil {
			h.laterLocked()
			return
		}
		delete(h.unheld, k)
	}
}

// close ends the attempts to hold what could not be held.
func (h *holding) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.again != nil {
		h.again.Stop()
		h.again = nil
	}
}

// dropSocket is called when a listener's socket is about to be closed.
func (h *holding) dropSocket(s *listenSocket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unheld, s.key)
	h.drop(s.key)
	h.holder.Flush() // at once, if the holder can: the address is in use until then
}
