package relay

import "time"

// earlyState is what a stream flow needs until it relays, and the bound on its
// bandwidth, which few have: so a flow that just relays pays for a pointer.
// streamFlow.early has it on lease from streamShare.early.
type earlyState struct {
	// What the client said first and nobody took yet, from Env.Buffers. Once the
	// upstream is connected its preface stands in front, which has own bytes.
	held []byte
	own  int
	// The sniff's bounds.
	most     int
	patience time.Duration
	ended    bool // the client has ended its side
	pace     pace
}

// more returns the flow's early state, for it to be written to.
func (s *streams) more(f *streamFlow) *earlyState {
	if f.early == nil {
		f.early = s.share.early.Get()
	}
	return f.early
}

// resize makes room for n bytes in held, at least; what is there stays.
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

// deliver hands what is held to the half that goes to the upstream. What it
// reads comes after it.
func (s *streams) deliver(f *streamFlow) {
	x := f.early
	if x == nil {
		return
	}
	if x.held != nil {
		s.loop.stats.BytesRead += int64(len(x.held) - x.own)
		f.half[up].Give(&s.env, x.held, x.own)
		x.held, x.own = nil, 0
	}
	if x.pace.rate > 0 {
		x.pace.start(s.loop.now, f.half[up].Held())
		return
	}
	s.freeEarly(f)
}

// freeEarly gives the flow's early state home. What is still held was read, and
// nobody will get it.
func (s *streams) freeEarly(f *streamFlow) {
	x := f.early
	if x == nil {
		return
	}
	f.early = nil
	n := int64(len(x.held) - x.own)
	f.half[up].In += n
	s.loop.stats.BytesRead += n
	s.putHeld(x)
	*x = earlyState{}
	s.share.early.Put(x)
}
