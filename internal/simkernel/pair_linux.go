package simkernel

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// pair is one of two connected Unix sockets of type SOCK_SEQPACKET: each send is one message, and descriptors go along. unix(7),
// net/unix/af_unix.c, net/core/scm.c.
type pair struct {
	w     *World
	peer  *pair
	queue []pairMessage
	sent  int // memory of what it has sent and the other end has not read
	shut  bool
	dead  bool
	err   sys.Errno
}

type pairMessage struct {
	b     []byte
	files []*file // which are nobody's until they arrive
}

func (m *pairMessage) memory() int { return (&packet{b: m.b}).memory() }

// release closes what was on its way with a message that nobody gets.
func (m *pairMessage) release() {
	for _, f := range m.files {
		f.release()
	}
}

// NewPair returns a socket of this process, and the other end of it, which another one has.
func (p *Process) NewPair(other *Process) (own, theirs int, errno sys.Errno) {
	a, b := &pair{w: p.w}, &pair{w: p.w}
	a.peer, b.peer = b, a
	if own, errno = p.install(&file{refs: 1, pair: a}); errno != 0 {
		return -1, -1, errno
	}
	if theirs, errno = other.install(&file{refs: 1, pair: b}); errno != 0 {
		p.Close(own)
		return -1, -1, errno
	}
	return own, theirs, 0
}

func (p *Process) pair(fd int) (*pair, sys.Errno) {
	f := p.file(fd)
	switch {
	case f == nil:
		return nil, syscall.EBADF
	case f.pair == nil:
		return nil, sys.ENOTSOCK
	}
	return f.pair, 0
}

// SendFDs sends a message with duplicates of descriptors, as [sys.FDBuffer.Send] does: unix_dgram_sendmsg.
func (p *Process) SendFDs(fd int, b []byte, fds []int) sys.Errno {
	if _, e := p.begin("send-fds", 0); e != 0 {
		return e
	}
	s, e := p.pair(fd)
	switch {
	case e != 0:
		return e
	case len(b) == 0 || len(fds) > sys.MaxFDs:
		return sys.EINVAL
	}
	if e := s.err; e != 0 { // unix_seqpacket_sendmsg
		s.err = 0
		return e
	}
	m := pairMessage{b: append([]byte(nil), b...)}
	for _, fd := range fds { // scm_fp_copy is before all else
		f := p.file(fd)
		if f == nil {
			return syscall.EBADF
		}
		m.files = append(m.files, f)
	}
	if e := s.room(len(b)); e != 0 {
		return e
	}
	if len(m.files) > 0 && s.w.FlyingMost > 0 && s.w.flying > s.w.FlyingMost { // unix_attach_fds
		return sys.ETOOMANYREFS
	}
	for _, f := range m.files {
		f.refs++
	}
	s.w.flying += len(m.files)
	s.sent += m.memory()
	s.peer.queue = append(s.peer.queue, m)
	p.point("send-fds")
	return 0
}

// room is sock_alloc_send_pskb.
func (s *pair) room(n int) sys.Errno {
	switch {
	case n > s.w.PairBuffer-32:
		return sys.EMSGSIZE
	case s.shut:
		return sys.EPIPE
	case s.sent >= s.w.PairBuffer:
		return sys.EAGAIN
	}
	return 0
}

// RecvFDs receives a message into b, and appends its descriptors to fds, as [sys.FDBuffer.Recv] does: unix_dgram_recvmsg. Those that the
// process may not have are closed.
func (p *Process) RecvFDs(fd int, b []byte, fds []int) (n int, got []int, lost bool, errno sys.Errno) {
	if _, e := p.begin("recv-fds", 0); e != 0 {
		return 0, fds, false, e
	}
	s, e := p.pair(fd)
	if e != 0 {
		return 0, fds, false, e
	}
	if e := s.err; e != 0 { // before what was received in front of it
		s.err = 0
		return 0, fds, false, e
	}
	if len(s.queue) == 0 {
		if s.shut {
			return 0, fds, false, 0
		}
		return 0, fds, false, sys.EAGAIN
	}
	m := s.take()
	n = copy(b, m.b)
	lost = n < len(m.b)
	for i, f := range m.files {
		fd, e := p.install(f)
		if e != 0 { // which has closed it
			(&pairMessage{files: m.files[i+1:]}).release()
			lost = true
			break
		}
		fds = append(fds, fd)
	}
	p.point("recv-fds")
	return n, fds, lost, 0
}

// take takes the first message out of the queue.
func (s *pair) take() pairMessage {
	m := s.queue[0]
	s.queue = s.queue[1:]
	s.peer.sent -= m.memory()
	s.w.flying -= len(m.files)
	return m
}

// Queued returns how many messages wait to be read from a socket.
func (p *Process) Queued(fd int) int {
	s, e := p.pair(fd)
	if e != 0 {
		return 0
	}
	return len(s.queue)
}

// First returns the first message that waits; nil: there is none.
func (p *Process) First(fd int) []byte {
	if s, e := p.pair(fd); e == 0 && len(s.queue) > 0 {
		return s.queue[0].b
	}
	return nil
}

// File returns what all descriptors of one open file have in common, in any process; nil: there is no such descriptor.
func (p *Process) File(fd int) any {
	if f := p.file(fd); f != nil {
		return f
	}
	return nil
}

// poll is unix_dgram_poll.
func (s *pair) poll() (mask uint32) {
	if s.err != 0 {
		mask |= sys.Err
	}
	if s.shut {
		mask |= sys.RdHup | sys.In | sys.Hup
	}
	if len(s.queue) > 0 {
		mask |= sys.In
	}
	if 4*s.sent <= s.w.PairBuffer {
		mask |= sys.Out
	}
	return mask
}

// close is unix_release_sock.
func (s *pair) close() {
	s.dead, s.shut = true, true
	if !s.peer.dead {
		s.peer.shut = true
		if len(s.queue) > 0 {
			s.peer.err = sys.ECONNRESET
		}
	}
	for len(s.queue) > 0 {
		m := s.take()
		m.release()
	}
}
