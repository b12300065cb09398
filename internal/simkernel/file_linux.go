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
}

// poll returns what is ready, as epoll has it.
func (f *file) poll() uint32 {
	switch {
	case f.socket != nil:
		return f.socket.poll()
	case f.gram != nil:
		return f.gram.poll()
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
	case f.epoll != nil:
		f.epoll.close()
	}
}

// pipe is a pipe of slots: pipe(7), fs/pipe.c.
type pipe struct {
	slots [][]byte
	most  int
}

const pageSize = 4096

func (p *pipe) queued() (n int) {
	for _, b := range p.slots {
		n += len(b)
	}
	return n
}

// put puts bytes into free slots, fragment bytes into each.
func (p *pipe) put(b []byte, fragment int) {
	for len(b) > 0 {
		n := min(fragment, len(b))
		p.slots = append(p.slots, append([]byte(nil), b[:n]...))
		b = b[n:]
	}
}

// take takes n bytes, which are there.
func (p *pipe) take(n int, to func([]byte)) {
	for n > 0 {
		b := p.slots[0]
		m := min(n, len(b))
		to(b[:m])
		if n -= m; m == len(b) {
			p.slots = p.slots[1:]
		} else {
			p.slots[0] = b[m:]
		}
	}
}
