package relay

import (
	"net/netip"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// letter is what others ask of a loop.
type letter struct {
	kind    letterKind
	cause   Cause
	fd      [2]int           // adopt, accepted (the first): the loop owns them from now on
	tcp     [2]bool          // adopt
	read    [2][]byte        // adopt: already read, to be delivered first
	options PairConfig       // adopt
	port    *port            // listen, unlisten
	from    *Listener        // accepted: by it
	peer    netip.AddrPort   // accepted: the client's address on TCP
	dgram   *dgramPort       // the same of datagrams
	match   func(*Flow) bool // end: which
	ref     ref              // resume: which
	stats   *LoopStats
	list    *listing        // list: what to fill
	id      uint64          // detail, kill: which flow
	detail  *FlowDetail     // detail: what to fill
	found   *bool           // detail, kill: there is such a flow; drain: clients are still accepted
	wg      *sync.WaitGroup // told when what the letter asks for is done
}

type letterKind uint8

const (
	letterAdopt         letterKind = iota // take a pair over
	letterAccepted                        // take a client over that another loop has accepted
	letterListen                          // accept from a port
	letterUnlisten                        // let go of a port
	letterDgramListen                     // receive from a datagram port
	letterDgramUnlisten                   // let go of one
	letterDgramDrain                      // begin no flow by it any more
	letterResume                          // ask a parked flow's hook again
	letterStats                           // tell the numbers
	letterList                            // tell of some flows
	letterDetail                          // tell all about a flow
	letterKill                            // end a flow
	letterDrain                           // say whether clients are still accepted, and when nothing is left
	letterWake                            // a descriptor is free: accept again
	letterEnd                             // end all flows
	letterClose                           // end all flows and the loop
)

// mailbox is how others reach a loop: a slice under a mutex, and an eventfd
// that wakes it.
type mailbox struct {
	mu       sync.Mutex
	letters  []letter
	reserved int       // letters that will certainly come
	settled  sync.Cond // reserved is 0
	shut     bool
	wake     int // eventfd
}

// post puts a letter in; false says that the loop has ended or is about to,
// and will not read it.
func (m *mailbox) post(x letter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.put(x)
	return true
}

func (m *mailbox) put(x letter) {
	m.letters = append(m.letters, x)
	if len(m.letters) == 1 {
		sys.EventfdSignal(m.wake)
	}
}

// reserve makes sure that one letter will be read: the loop does not end before
// postReserved, which must follow. False is post's.
func (m *mailbox) reserve() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shut {
		return false
	}
	m.reserved++
	return true
}

// postReserved puts in the letter that reserve made room for; nil: none comes.
func (m *mailbox) postReserved(x *letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x != nil {
		m.put(*x)
	}
	if m.reserved--; m.reserved == 0 {
		m.settled.Broadcast()
	}
}

// take empties the box into spare and gives the box spare's memory.
func (m *mailbox) take(spare []letter) []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	full := m.letters
	m.letters = spare[:0]
	sys.EventfdClear(m.wake)
	return full
}

// shutdown takes what is left, when all that is reserved has come; no letter gets
// in any more.
func (m *mailbox) shutdown() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shut = true
	for m.reserved > 0 {
		m.settled.Wait()
	}
	full := m.letters
	m.letters = nil
	return full
}
