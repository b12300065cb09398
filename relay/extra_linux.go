package relay

import "time"

// extra is what a flow needs only for a while, or seldom: so a flow that just
// relays pays for a pointer. Flow.extra has it on lease from Engine.extras.
type extra struct {
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

// more gives the flow's extra, for it to be written to.
func (f *Flow) more() *extra {
	x := &f.extra
	if f.session != nil {
		x = &f.session.extra
	}
	if *x == nil {
		*x = f.loop.engine.extras.Get()
	}
	return *x
}

// resize makes room for n bytes in held, at least; what is there stays.
func (l *loop) resize(x *extra, n int) {
	if n <= cap(x.held) {
		return
	}
	b := l.env.Buffers.Get(n)
	n = copy(b, x.held)
	l.putHeld(x)
	x.held = b[:n]
}

func (l *loop) putHeld(x *extra) {
	if x.held != nil {
		l.env.Buffers.Put(x.held)
		x.held = nil
	}
}

// deliver hands what is held to the half that goes to the upstream. What it
// reads comes after it.
func (l *loop) deliver(f *Flow) {
	x := f.extra
	if x == nil {
		return
	}
	if x.held != nil {
		l.stats.BytesRead += int64(len(x.held) - x.own)
		f.half[sideA].Give(&l.env, x.held, x.own)
		x.held, x.own = nil, 0
	}
	if x.pace.rate > 0 {
		x.pace.start(l.now, f.half[sideA].Held())
		return
	}
	l.freeExtra(f)
}

// freeExtra gives the flow's extra home. What is still held was read, and
// nobody will get it.
func (l *loop) freeExtra(f *Flow) {
	x := f.extra
	if x == nil {
		return
	}
	f.extra = nil
	n := int64(len(x.held) - x.own)
	f.half[sideA].In += n
	l.stats.BytesRead += n
	l.putHeld(x)
	*x = extra{}
	l.engine.extras.Put(x)
}
