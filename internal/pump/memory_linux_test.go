package pump

import (
	"fmt"
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// memory is a kernel without sockets, for one half: its source, its destination and its pipes are memory, nothing
// happens but what the schedule says, and nothing depends on time. What it takes for granted is how Linux
// behaves: an error comes behind the bytes that came before it and is told once (recvmmsg tells it at once),
// splice(2) stops in front of urgent data, a pipe that is full or empty means EAGAIN.
type memory struct {
	sys.Kernel // nil: what a half never calls
	schedule   *schedule
	faults     bool // calls may be interrupted, cut short, or say EAGAIN although they could move bytes
	faulted    bool // EAGAIN was such a lie since this was set to false

	deadly int // the process dies at this call, counted down; 0: never

	sent      int64 // by the near end; this and consumed are offsets in the pattern
	consumed  int64
	mark      int64 // where urgent data is; -1: none
	fin       bool
	reset     sys.Errno // of the source, until it is told
	telling   bool      // the error was told by the call that goes on
	gone      bool      // the source was reset: after the error, or if it was told, it has ended
	noSplice  [2]bool   // the source, the destination refuses to be spliced
	accepted  int64
	room      int // of the destination
	dead      sys.Errno
	wrong     error
	lowat     int
	noLowat   bool
	noPipes   bool
	pipesSize int

	mu    sync.Mutex // a collection closes idle pipes
	next  int
	pipes map[int]*memoryPipe // by both ends
}

type memoryPipe struct {
	b    []byte
	size int
}

const (
	memorySrc   = 1<<29 + iota // no process has such descriptors
	memoryDst   = 1<<29 + iota
	memoryPipe0 = 1<<29 + iota
)

// died is what a process ends with.
type died struct{}

func newMemory(s *schedule) *memory {
	return &memory{schedule: s, mark: -1, room: 64 << 10, next: memoryPipe0, pipes: make(map[int]*memoryPipe)}
}

// point is a place where the process may die.
func (k *memory) point() {
	if k.deadly > 0 {
		if k.deadly--; k.deadly == 0 {
			panic(died{})
		}
	}
	k.telling = false
}

// call makes a call that can move up to n bytes: fault is its error, most what it moves.
func (k *memory) call(n int) (most int, fault sys.Errno) {
	if !k.faults {
		return n, 0
	}
	switch k.schedule.next() % 16 {
	case 1:
		return 0, sys.EINTR
	case 2:
		if k.gone { // who knows the error takes EAGAIN for the end
			return n, 0
		}
		k.faulted = true
		return 0, sys.EAGAIN
	case 3, 4:
		return min(n, 1), 0
	case 5, 6:
		return (n + 1) / 2, 0
	}
	return n, 0
}

// available returns how many bytes can be read before the mark or the end of what has come.
func (k *memory) available() int {
	end := k.sent
	if k.mark >= k.consumed {
		end = min(end, k.mark)
	}
	return int(end - k.consumed)
}

// empty is the result of a read that finds nothing.
func (k *memory) empty() (int, sys.Errno) {
	switch {
	case k.reset != 0:
		e := k.reset
		k.reset, k.telling = 0, true
		return 0, e
	case k.fin || k.gone:
		return 0, 0
	}
	return 0, sys.EAGAIN
}

func (k *memory) recv(p []byte, most int) (int, sys.Errno) {
	if k.mark == k.consumed {
		k.mark = -1 // recv(2) skips it
	}
	n := min(k.available(), most)
	if n == 0 {
		return k.empty()
	}
	for got := 0; got < n; {
		m := min(n-got, 1<<19)
		copy(p[got:], pattern().At(k.consumed, m))
		k.consumed += int64(m)
		got += m
	}
	return n, 0
}

func (k *memory) Recv(_ int, p []byte) (int, sys.Errno) {
	k.point()
	most, e := k.call(len(p))
	if e != 0 {
		return 0, e
	}
	n, e := k.recv(p, most)
	k.point()
	return n, e
}

func (k *memory) Discard(fd int, p []byte, _ bool) (int, sys.Errno) { return k.Recv(fd, p) }

func (k *memory) RecvOne(_ int, m *sys.Message, p []byte) (int, sys.Errno) {
	k.point() // what the last call has left there is still in m
	m.Clear()
	most, e := k.call(len(p))
	if e != 0 {
		return 0, e
	}
	if e := k.reset; e != 0 { // in front of the bytes
		k.reset, k.telling = 0, true
		k.point()
		return 0, e
	}
	n, e := k.recv(p, most)
	if e == 0 {
		m.SetMoved(n)
	}
	k.point()
	return n, e
}

// give gives bytes to the destination, which notices the first wrong one.
func (k *memory) give(p []byte) {
	if err := pattern().Check(k.accepted, p); err != nil && k.wrong == nil {
		k.wrong = fmt.Errorf("the destination got: %w", err)
	}
	k.accepted += int64(len(p))
	k.room -= len(p)
}

func (k *memory) send(p []byte) (int, sys.Errno) {
	most, e := k.call(len(p))
	switch {
	case e != 0:
		return 0, e
	case k.dead != 0:
		return 0, k.dead
	case k.room <= 0:
		return 0, sys.EAGAIN
	}
	n := min(most, k.room)
	k.give(p[:n])
	return n, 0
}

func (k *memory) Send(_ int, p []byte) (int, sys.Errno) {
	k.point()
	n, e := k.send(p)
	k.point()
	return n, e
}

func (k *memory) SendOne(_ int, m *sys.Message, p []byte) (int, sys.Errno) {
	k.point() // what the last call has left there is still in m
	m.Clear()
	n, e := k.send(p)
	if e == 0 {
		m.SetMoved(n)
	}
	k.point()
	return n, e
}

func (k *memory) Splice(rfd, wfd, n int) (int, sys.Errno) {
	k.point()
	n, e := k.splice(rfd, wfd, n)
	k.point()
	return n, e
}

func (k *memory) splice(rfd, wfd, n int) (int, sys.Errno) {
	most, e := k.call(n)
	if e != 0 {
		return 0, e
	}
	if rfd == memorySrc {
		p := k.pipe(wfd)
		switch {
		case k.noSplice[0]:
			return 0, sys.EINVAL
		case k.mark == k.consumed && k.fin:
			return 0, 0
		case k.mark == k.consumed, p.size == len(p.b):
			return 0, sys.EAGAIN
		}
		n := min(most, k.available(), p.size-len(p.b))
		if n == 0 {
			return k.empty()
		}
		at := len(p.b)
		p.b = append(p.b, make([]byte, n)...)
		return k.recv(p.b[at:], n)
	}
	p := k.pipe(rfd)
	switch {
	case wfd != memoryDst:
		return 0, sys.ENOTSOCK
	case k.noSplice[1]:
		return 0, sys.EINVAL
	case len(p.b) == 0:
		return 0, sys.EAGAIN
	case k.dead != 0:
		return 0, k.dead
	case k.room <= 0:
		return 0, sys.EAGAIN
	}
	n = min(most, k.room, len(p.b))
	k.give(p.b[:n])
	p.b = p.b[n:]
	return n, 0
}

func (k *memory) AtMark(int) bool { return k.mark == k.consumed }

// Poll tells of the source alone.
func (k *memory) Poll(_ int, events int16) int16 {
	if k.sent > k.consumed || k.fin || k.gone || k.reset != 0 {
		return events & sys.PollIn
	}
	return 0
}

// ReadQueued tells of a pipe.
func (k *memory) ReadQueued(fd int) (int, sys.Errno) { return len(k.pipe(fd).b), 0 }

func (k *memory) ReadPipe(fd int, b []byte) (int, sys.Errno) {
	k.point()
	p := k.pipe(fd)
	most, e := k.call(len(b))
	switch {
	case e == sys.EINTR:
		return 0, e
	case e != 0: // a pipe that holds bytes has them
		most = 1
	case len(p.b) == 0:
		return 0, sys.EAGAIN
	}
	n := copy(b[:most], p.b)
	p.b = p.b[n:]
	k.point()
	return n, 0
}

func (k *memory) pipe(fd int) *memoryPipe {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pipes[fd]
	if p == nil {
		k.wrong = fmt.Errorf("descriptor %d is used, which is no open pipe", fd-memorySrc)
		p = new(memoryPipe)
	}
	return p
}

// Pipe has no faults by the schedule, and is no place to die: when pipes are made depends on collections.
func (k *memory) Pipe(int) (r, w, got int, errno sys.Errno) {
	if k.noPipes {
		return -1, -1, 0, sys.EMFILE
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &memoryPipe{size: k.pipesSize}
	r, w = k.next, k.next+1
	k.next += 2
	k.pipes[r], k.pipes[w] = p, p
	return r, w, k.pipesSize, 0
}

func (k *memory) RcvLowat(_, n int) sys.Errno {
	if k.noLowat {
		return sys.EINVAL
	}
	k.lowat = n
	return 0
}

func (k *memory) Close(fd int) sys.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pipes[fd] == nil {
		k.wrong = fmt.Errorf("descriptor %d is closed, which is no open pipe", fd-memorySrc)
		return 0
	}
	delete(k.pipes, fd)
	return 0
}
