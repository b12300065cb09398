package simkernel

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// epoll is an epoll instance: epoll(7), fs/eventpoll.c.
type epoll struct {
	watches map[watchKey]*watch
	ready   []*watch
	until   time.Duration // when the process has said last that it waits no longer; negative: never
	sleeps  bool          // it waits, and nothing has woken it since
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
	w.epoll.sleeps = false
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

// EpollCreate implements [sys.Kernel].
func (p *Process) EpollCreate() (int, error) {
	return p.made(&file{refs: 1, epoll: &epoll{watches: make(map[watchKey]*watch)}})
}

// Eventfd implements [sys.Kernel].
func (p *Process) Eventfd() (int, error) { return p.made(&file{refs: 1, event: new(uint64)}) }

func (p *Process) made(f *file) (int, error) {
	fd, e := p.install(f)
	if e != 0 {
		return -1, e
	}
	return fd, nil
}

// EventfdSignal implements [sys.Kernel].
func (p *Process) EventfdSignal(fd int) sys.Errno {
	f := p.file(fd)
	if f == nil || f.event == nil {
		return syscall.EBADF
	}
	*f.event++
	f.wake(wakeRead)
	return 0
}

// EventfdClear implements [sys.Kernel].
func (p *Process) EventfdClear(fd int) sys.Errno {
	f := p.file(fd)
	if f == nil || f.event == nil {
		return syscall.EBADF
	}
	*f.event = 0
	return 0
}

// EpollAdd implements [sys.Kernel].
func (p *Process) EpollAdd(ep, fd int, events uint32, data uint64) sys.Errno {
	if _, e := p.begin("epoll-add", 0); e != 0 {
		return e
	}
	e, f := p.file(ep), p.file(fd)
	switch {
	case e == nil || f == nil:
		return syscall.EBADF
	case e.epoll == nil:
		return sys.EINVAL
	case e.epoll.watches[watchKey{f, fd}] != nil:
		return syscall.EEXIST
	}
	w := &watch{watchKey: watchKey{f, fd}, epoll: e.epoll, events: events, data: data}
	e.epoll.watches[w.watchKey] = w
	f.watched = append(f.watched, w)
	if w.now() != 0 {
		w.makeReady()
	}
	return 0
}

// EpollMod implements [sys.Kernel].
func (p *Process) EpollMod(ep, fd int, events uint32, data uint64) sys.Errno {
	e := p.file(ep)
	if e == nil || e.epoll == nil || p.file(fd) == nil {
		return syscall.EBADF
	}
	p.calls++
	w := e.epoll.watches[watchKey{p.file(fd), fd}]
	if w == nil {
		return syscall.ENOENT
	}
	w.events, w.data = events, data
	if w.now() != 0 {
		w.makeReady()
	}
	return 0
}

// EpollDel implements [sys.Kernel].
func (p *Process) EpollDel(ep, fd int) sys.Errno {
	e := p.file(ep)
	if e == nil || e.epoll == nil || p.file(fd) == nil {
		return syscall.EBADF
	}
	p.calls++
	w := e.epoll.watches[watchKey{p.file(fd), fd}]
	if w == nil {
		return syscall.ENOENT
	}
	for i, other := range w.file.watched {
		if other == w {
			w.file.watched = append(w.file.watched[:i:i], w.file.watched[i+1:]...)
			break
		}
	}
	e.epoll.forget(w)
	return 0
}

// EpollWait implements [sys.Kernel], but does not wait: see [Process.WaitsUntil].
func (p *Process) EpollWait(ep int, evs []sys.Event, timeout time.Duration) (int, sys.Errno) {
	e := p.file(ep)
	if e == nil || e.epoll == nil {
		return 0, syscall.EBADF
	}
	p.w.now += time.Microsecond // a turn takes time
	e.epoll.until = -1
	if timeout >= 0 {
		e.epoll.until = p.w.now + timeout
	}
	most, err := p.begin("epoll-wait", len(evs))
	if err != 0 {
		return 0, err
	}
	n := e.epoll.wait(evs[:max(1, most)])
	e.epoll.sleeps = n == 0 && timeout != 0
	return n, 0
}

// EpollWaitRaw implements [sys.Kernel].
func (p *Process) EpollWaitRaw(ep int, evs []sys.Event, timeout time.Duration) (int, sys.Errno) {
	return p.EpollWait(ep, evs, timeout)
}
