package simkernel

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// socket is a socket of any kind.
type socket interface {
	shared() *common
	poll() uint32
	family() sys.Family
	bind(sa *sys.Sockaddr) sys.Errno
	connect(sa *sys.Sockaddr, choose func(n int) int) sys.Errno
	local(sa *sys.Sockaddr) sys.Errno
	remote(sa *sys.Sockaddr) sys.Errno
	// readQueued and writeQueued are what SIOCINQ and SIOCOUTQ say.
	readQueued() (int, sys.Errno)
	// hasUnread is what recv(2) with MSG_PEEK says.
	hasUnread() (bool, sys.Errno)
	writeQueued() int
	// close is called when nobody has the socket any more.
	close()
}

// stream is a stream socket.
type stream interface {
	socket
	listen(backlog int) sys.Errno
	// accept returns the first client that waits. If short is set there is no descriptor for it.
	accept(short bool) (client stream, from sys.Sockaddr, errno sys.Errno)
	// recv takes up to n bytes, which it gives to put, part by part, and returns how many.
	recv(n int, put func([]byte)) (int, sys.Errno)
	// write accepts up to n bytes, as long as there is room for more. put is called for a part of them, and calls the socket's put.
	write(n int, put func(n int)) (done int, e sys.Errno)
	put(p []byte)
	shutdown(read, write bool) sys.Errno
	disconnect() sys.Errno
	setLowat(n int)
}

// common is what sockets of all kinds have.
type common struct {
	w                         *World
	file                      *file // nil: nobody has it any more, or nobody has accepted it yet
	number                    int   // of the sockets of this world
	sendBuffer, receiveBuffer int
	err                       sys.Errno
	options                   map[[2]int]int
}

func newCommon(w *World) common {
	w.sockets++
	return common{w: w, number: w.sockets, sendBuffer: w.SendBuffer, receiveBuffer: w.ReceiveBuffer}
}

func (c *common) shared() *common { return c }

// The masks of events that wake those who wait in epoll; 0 wakes all. include/net/sock.h.
const (
	wakeRead  = sys.In | sys.Pri
	wakeWrite = sys.Out
	wakeAll   = 0
)

func (c *common) wake(key uint32) {
	if c.file != nil {
		c.file.wake(key)
	}
}

// takeError is sock_error: an error is told once.
func (c *common) takeError() sys.Errno {
	e := c.err
	c.err = 0
	return e
}

func newFile(s socket) *file {
	f := &file{refs: 1, socket: s}
	s.shared().file = f
	return f
}

func (p *Process) socket(fd int) (socket, sys.Errno) {
	f := p.file(fd)
	switch {
	case f == nil:
		return nil, syscall.EBADF
	case f.socket == nil:
		return nil, sys.ENOTSOCK
	}
	return f.socket, 0
}

func (p *Process) stream(fd int) (stream, sys.Errno) {
	s, e := p.socket(fd)
	if e != 0 {
		return nil, e
	}
	if s, ok := s.(stream); ok {
		return s, 0
	}
	return nil, sys.EOPNOTSUPP
}

// tcp returns the TCP socket of a descriptor; other sockets do not have what it is asked for.
func (p *Process) tcp(fd int) (*tcpSocket, sys.Errno) {
	s, e := p.socket(fd)
	if e != 0 {
		return nil, e
	}
	if s, ok := s.(*tcpSocket); ok {
		return s, 0
	}
	return nil, sys.EOPNOTSUPP
}

// mover moves bytes between the memory of a process and its sockets, in one call after the other.
type mover struct {
	socket stream
	rest   []byte // of what the process gives, or of where it wants to have something
	take   func(n int)
	put    func(in []byte)
}

// sendFrom sends p.
func (m *mover) sendFrom(s stream, p []byte) (int, sys.Errno) {
	if m.take == nil {
		m.take = func(n int) {
			m.socket.put(m.rest[:n])
			m.rest = m.rest[n:]
		}
	}
	m.socket, m.rest = s, p
	return s.write(len(p), m.take)
}

// recvInto receives up to most bytes into b.
func (m *mover) recvInto(s stream, b []byte, most int) (int, sys.Errno) {
	if m.put == nil {
		m.put = func(in []byte) { m.rest = m.rest[copy(m.rest, in):] }
	}
	m.rest = b
	return s.recv(min(most, len(b)), m.put)
}

// spliceTo is tcp_splice_read and unix_stream_splice_read.
func spliceTo(in stream, w *World, p *pipe, n int) (int, sys.Errno) {
	room := (p.most - len(p.slots)) * w.PipeFragment
	if room <= 0 {
		return 0, sys.EAGAIN
	}
	s, tcp := in.(*tcpSocket)
	began := false
	put := func(b []byte) {
		p.put(b, w.PipeFragment, tcp && began) // a piece of a Unix socket has slots of its own
		began = true
	}
	if tcp {
		return s.spliceRecv(min(n, room), put)
	}
	return in.recv(min(n, room), put)
}

// spliceFrom is splice_to_socket.
func spliceFrom(s stream, p *pipe, n int) (int, sys.Errno) {
	n = min(n, p.queued())
	if n == 0 {
		return 0, sys.EAGAIN
	}
	return s.write(n, func(n int) { p.take(n, s.put) })
}
