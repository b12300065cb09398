package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// earlyState is what a stream flow needs until it relays, and the bound on its bandwidth,
// which few flows have. A flow that just relays pays for a pointer. Early states come from
// streamShare.early and go back there.
type earlyState struct {
	// What was read from the client and not taken yet, in a buffer of Env.Buffers. Once
	// the upstream is connected its preface is in front, of own bytes.
	held []byte
	own  int
	// The sniff's bounds.
	most     int
	patience time.Duration
	showing  bool // Hooks.Sniff is being called
	again    bool // it has called StartSniff
	ended    bool // the client has ended its side
	replied  bool // it was sent a reply, and the flow has not gone on since; see Flow.Reply
	pace     pace
	reply    []byte    // what was not sent yet
	failed   sys.Errno // why the client cannot be sent its reply
	question []byte    // what was not sent yet of the preface of a flow that is asking
	answer   []byte    // what the upstream must say; nil: it is not asked
	answered int       // how much of it has come
}

// earlyOf returns the flow's early state, which it makes if there is none.
func (s *streams) earlyOf(f *streamFlow) *earlyState {
	if f.early == nil {
		f.straight = false // a hook may take bytes, or add some
		f.early = s.share.early.Get()
	}
	return f.early
}

// resize makes room for at least n bytes in held, and keeps what is in it.
func (s *streams) resize(x *earlyState, n int) {
	if n <= cap(x.held) {
		return
	}
	b := s.env.Buffers.Get(n)
	n = copy(b, x.held)
	s.putHeld(x)
	x.held = b[:n]
}

func (s *streams) putHeld(x *earlyState) {
	if x.held != nil {
		s.env.Buffers.Put(x.held)
		x.held = nil
	}
}

// freeEarly puts the flow's early state back into the pool. What is still held was read and
// is dropped.
func (s *streams) freeEarly(f *streamFlow) {
	x := f.early
	if x == nil {
		return
	}
	f.early = nil
	n := int64(len(x.held) - x.own)
	f.half[up].In += n
	s.loopStats.BytesRead += n
	s.putHeld(x)
	*x = earlyState{}
	s.share.early.Put(x)
}
