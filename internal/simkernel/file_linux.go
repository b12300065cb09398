package simkernel

import "github.com/penstock/penstock/internal/sys"

// file is an open file description: several descriptors, of several processes, may refer to it.
type file struct {
	refs    int
	watched []*watch // in epoll instances
	socket  *socket
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
	case f.event != nil && *f.event > 0:
		return sys.In
	case f.pipe != nil && !f.writes && f.pipe.queued() > 0:
		return sys.In
	}
	return 0
}

func (f *file) wake(key uint32) {
	for _, w := range f.watched {
		if key == wakeAll || key&w.events != 0 {
			w.makeReady()
		}
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
	case f.epoll != nil:
		f.epoll.close()
	}
}

// epoll is an epoll instance: epoll(7), fs/eventpoll.c.
type epoll struct {
	watches map[watchKey]*watch
	ready   []*watch
}

// watchKey is what an instance knows a file by: a descriptor may be another file's before the first has gone from the instance.
type watchKey struct {
	file *file
	fd   int
}

// watch is what one descriptor is watched for.
type watch struct {
	watchKey
	epoll  *epoll
	events uint32
	data   uint64
	ready  bool // in epoll.ready
}

func (w *watch) makeReady() {
	if !w.ready {
		w.ready = true
		w.epoll.ready = append(w.epoll.ready, w)
	}
}

// now returns the events that are there and wanted.
func (w *watch) now() uint32 { return w.file.poll() & (w.events | sys.Err | sys.Hup) }

func (ep *epoll) forget(w *watch) {
	delete(ep.watches, w.watchKey)
	if w.ready {
		for i, other := range ep.ready {
			if other == w {
				ep.ready = append(ep.ready[:i:i], ep.ready[i+1:]...)
				break
			}
		}
	}
}

func (ep *epoll) close() {
	for _, w := range ep.watches {
		f := w.file
		for i, other := range f.watched {
			if other == w {
				f.watched = append(f.watched[:i:i], f.watched[i+1:]...)
				break
			}
		}
	}
	ep.watches, ep.ready = nil, nil
}

// wait takes events.
func (ep *epoll) wait(evs []sys.Event) (n int) {
	all := ep.ready
	ep.ready = nil
	for i, w := range all {
		if n == len(evs) {
			ep.ready = append(all[i:len(all):len(all)], ep.ready...)
			break
		}
		w.ready = false
		if mask := w.now(); mask != 0 {
			evs[n] = sys.Event{Events: mask, Fd: int32(w.data), Pad: int32(w.data >> 32)}
			n++
			if w.events&sys.Edge == 0 {
				w.makeReady()
			}
		}
	}
	return n
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
