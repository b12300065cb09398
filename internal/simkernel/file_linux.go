package simkernel

import "github.com/penstock/penstock/internal/sys"

// file is an open file description: several descriptors, of several processes, may refer to it.
type file struct {
	refs    int
	watched []*watch // in epoll instances
	socket  socket
	gram    *gram
	pipe    *pipe // one of its ends
	writes  bool  // the one that is written to
	epoll   *epoll
	event   *uint64 // eventfd(2)
	pair    *pair
	world   *World // of shared memory
	shared  []byte
}

// poll returns what is ready, as epoll has it.
func (f *file) poll() uint32 {
	switch {
	case f.socket != nil:
		return f.socket.poll()
	case f.gram != nil:
		return f.gram.poll()
	case f.pair != nil:
		return f.pair.poll()
	case f.event != nil && *f.event > 0:
		return sys.In
	case f.pipe != nil && !f.writes && f.pipe.queued() > 0:
		return sys.In
	}
	return 0
}

// wake is __wake_up_common with ep_poll_callback: of the instances that watch it exclusively, those before the first in which somebody
// waits are told, and that one.
func (f *file) wake(key uint32) {
	enough := false
	for _, w := range f.watched {
		exclusive := w.events&sys.Exclusive != 0
		if key != wakeAll && key&(w.events|sys.Err|sys.Hup) == 0 || exclusive && enough {
			continue
		}
		enough = enough || exclusive && key != wakeAll && w.epoll.sleeps
		w.makeReady()
	}
}

// release is called when a descriptor has gone. With the last one the file is closed.
func (f *file) release() {
	if f.refs--; f.refs > 0 {
		return
	}
	for _, w := range f.watched {
		w.epoll.forget(w)
	}
	f.watched = nil
	switch {
	case f.socket != nil:
		f.socket.close()
	case f.gram != nil:
		f.gram.close()
	case f.pair != nil:
		f.pair.close()
	case f.epoll != nil:
		f.epoll.close()
	case f.shared != nil:
		f.world.freeRegion(f.shared)
		f.shared = nil
	}
}

// pipe is a pipe of slots: pipe(7), fs/pipe.c.
type pipe struct {
	memory *memory
	slots  []pipeSlot
	most   int
}

type pipeSlot struct {
	b     []byte
	whole []byte // b, before any of it was read
}

const pageSize = 4096

func (p *pipe) queued() (n int) {
	for _, s := range p.slots {
		n += len(s.b)
	}
	return n
}

// put puts bytes into free slots, fragment bytes into each. With fill, the last slot is filled first.
func (p *pipe) put(b []byte, fragment int, fill bool) {
	if last := len(p.slots) - 1; fill && last >= 0 {
		s := &p.slots[last]
		n := min(fragment-len(s.whole), len(b))
		s.whole = append(s.whole, b[:n]...)
		s.b = s.whole[len(s.whole)-len(s.b)-n:]
		b = b[n:]
	}
	for len(b) > 0 {
		n := min(fragment, len(b))
		whole := append(p.memory.get(fragment)[:0], b[:n]...)
		p.slots = append(p.slots, pipeSlot{whole, whole})
		b = b[n:]
	}
}

// take takes n bytes, which are there.
func (p *pipe) take(n int, to func([]byte)) {
	for n > 0 {
		s := &p.slots[0]
		m := min(n, len(s.b))
		to(s.b[:m])
		n -= m
		if s.b = s.b[m:]; len(s.b) == 0 {
			p.memory.put(s.whole)
			p.slots = p.slots[:copy(p.slots, p.slots[1:])]
		}
	}
}
