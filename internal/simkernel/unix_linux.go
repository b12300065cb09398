package simkernel

import (
	"math"
	"slices"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// unixSocket is a Unix stream socket: unix(7), net/unix/af_unix.c. What one end sends is in the other's queue at once, and counts
// against the sender's buffer until it is read.
type unixSocket struct {
	common
	path  string // "": it has none
	state unixState
	peer  *unixSocket

	in       []unixPiece
	unread   int // bytes in it
	lowat    int
	charged  int // what the sent pieces cost that the other end has not read
	outgoing []byte

	shutRead, shutWrite bool
	dead                bool // nobody has it any more

	clients []*unixSocket // that nobody has accepted yet
	backlog int
}

type unixState uint8

const (
	unixNew unixState = iota
	unixListening
	unixEstablished
)

// unixPiece is a socket buffer: what one send has sent, or a part of it.
type unixPiece struct {
	b     []byte
	oob   bool // it is the last byte that was sent out of band, and nobody has passed it: oob_skb
	cost  int
	whole []byte // b, before any of it was read
}

const (
	// unixPieceMost is the most that a piece has: SKB_MAX_ALLOC and UNIX_SKB_FRAGS_SZ.
	unixPieceMost = 48832
	// unixPieceCost is what a piece costs beside its bytes: SKB_TRUESIZE, about.
	unixPieceCost = 576
	unixBuffer    = 212992 // SK_WMEM_DEFAULT
	somaxconn     = 4096
)

func newUnix(w *World) *unixSocket {
	s := &unixSocket{common: newCommon(w), lowat: 1}
	s.sendBuffer = unixBuffer
	return s
}

func (s *unixSocket) numberOf() int {
	if s == nil {
		return 0
	}
	return s.number
}

func (s *unixSocket) family() sys.Family { return sys.Unix }

// writable is unix_writable.
func (s *unixSocket) writable() bool { return s.state != unixListening && 4*s.charged <= s.sendBuffer }

// poll is unix_poll.
func (s *unixSocket) poll() (mask uint32) {
	if s.err != 0 {
		mask |= sys.Err
	}
	if s.shutRead && s.shutWrite || s.state == unixNew {
		mask |= sys.Hup
	}
	if s.shutRead {
		mask |= sys.RdHup | sys.In
	}
	if len(s.in) > 0 || len(s.clients) > 0 {
		mask |= sys.In
	}
	if slices.ContainsFunc(s.in, func(p unixPiece) bool { return p.oob }) {
		mask |= sys.Pri
	}
	if s.writable() {
		mask |= sys.Out
	}
	return mask
}

func (s *unixSocket) bind(sa *sys.Sockaddr) sys.Errno {
	path := sa.UnixPath()
	if s.path != "" {
		return sys.EINVAL
	}
	if s.w.paths[path] != nil {
		return sys.EADDRINUSE
	}
	s.path = path
	s.w.paths[path] = s
	return 0
}

func (s *unixSocket) listen(backlog int) sys.Errno {
	if s.path == "" || s.state != unixNew && s.state != unixListening {
		return sys.EINVAL
	}
	if backlog <= 0 {
		backlog = somaxconn
	}
	s.state, s.backlog = unixListening, backlog
	return 0
}

// connect is unix_stream_connect.
func (s *unixSocket) connect(sa *sys.Sockaddr, _ func(int) int) sys.Errno {
	if sa.Family() != sys.Unix {
		return sys.EINVAL
	}
	l := s.w.paths[sa.UnixPath()]
	switch {
	case l == nil || l.state != unixListening || l.shutRead:
		return sys.ECONNREFUSED
	case len(l.clients) > l.backlog:
		return sys.EAGAIN
	case s.state == unixEstablished:
		return syscall.EISCONN
	case s.state != unixNew:
		return sys.EINVAL
	}
	c := newUnix(s.w)
	c.path, c.state, c.peer = l.path, unixEstablished, s
	s.state, s.peer = unixEstablished, c
	l.clients = append(l.clients, c)
	l.wake(wakeRead)
	return 0
}

func (s *unixSocket) accept(short bool) (client stream, from sys.Sockaddr, errno sys.Errno) {
	switch {
	case short: // the kernel takes the descriptor first
		return nil, from, sys.EMFILE
	case s.state != unixListening:
		return nil, from, sys.EINVAL
	case len(s.clients) == 0:
		return nil, from, sys.EAGAIN
	}
	c := s.clients[0]
	s.clients = s.clients[1:]
	return c, from, unixAddr(&from, c.peer.path)
}

// recv is unix_stream_read_generic.
func (s *unixSocket) recv(n int, put func([]byte)) (int, sys.Errno) {
	if s.state != unixEstablished {
		return 0, sys.EINVAL
	}
	if s.atMark() { // manage_oob: it is skipped, and SIOCINQ goes on to count it, which Linux 6.18.44 does
		s.drop()
	}
	if len(s.in) == 0 {
		switch {
		case s.err != 0:
			return 0, s.takeError()
		case s.shutRead:
			return 0, 0
		}
		return 0, sys.EAGAIN
	}
	done := 0
	for done < n && len(s.in) > 0 {
		if s.atMark() {
			s.unread -= done
			return done, 0
		}
		piece := &s.in[0]
		m := min(n-done, len(piece.b))
		put(piece.b[:m])
		done += m
		if m < len(piece.b) {
			piece.b = piece.b[m:]
			break
		}
		s.drop()
	}
	s.unread -= done
	if done < min(n, s.lowat) { // it goes on, and an error that it finds is lost
		s.takeError()
	}
	return done, 0
}

// atMark is what SIOCATMARK says.
func (s *unixSocket) atMark() bool { return len(s.in) > 0 && s.in[0].oob }

// sendUrgent sends a byte out of band: queue_oob. An earlier one that nobody has passed is part of the stream from then on.
func (s *unixSocket) sendUrgent(b byte) sys.Errno {
	if _, e := s.write(1, func(int) { s.put([]byte{b}) }); e != 0 {
		return e
	}
	in := s.peer.in
	for i := range in {
		in[i].oob = i == len(in)-1
	}
	return 0
}

// drop frees the first piece, which tells its sender that it can send more: unix_write_space.
func (s *unixSocket) drop() {
	p := s.peer
	p.charged -= s.in[0].cost
	s.w.memory.put(s.in[0].whole)
	s.in = s.in[1:]
	if p.writable() {
		p.wake(wakeWrite)
	}
}

// write is unix_stream_sendmsg.
func (s *unixSocket) write(n int, put func(n int)) (done int, e sys.Errno) {
	if s.shutWrite {
		return 0, sys.EPIPE
	}
	if s.peer == nil {
		return 0, syscall.ENOTCONN
	}
	for done < n && e == 0 {
		switch p := s.peer; {
		case s.err != 0:
			e = s.takeError()
		case s.shutWrite, p.dead, p.shutRead:
			e = sys.EPIPE
		case s.charged >= s.sendBuffer:
			e = sys.EAGAIN
		default:
			m := min(n-done, s.sendBuffer/2-64, unixPieceMost)
			s.outgoing = s.w.memory.get(m)[:0]
			put(m)
			p.in = append(p.in, unixPiece{b: s.outgoing, cost: m + unixPieceCost, whole: s.outgoing})
			p.unread += m
			s.charged += m + unixPieceCost
			done += m
			p.wake(wakeRead)
		}
	}
	if done > 0 {
		e = 0
	}
	return done, e
}

func (s *unixSocket) put(p []byte) { s.outgoing = append(s.outgoing, p...) }

// shutdown is unix_shutdown.
func (s *unixSocket) shutdown(read, write bool) sys.Errno {
	s.shutRead = s.shutRead || read
	s.shutWrite = s.shutWrite || write
	s.wake(wakeAll)
	if p := s.peer; p != nil {
		p.shutRead = p.shutRead || write
		p.shutWrite = p.shutWrite || read
		p.wake(wakeAll)
	}
	return 0
}

func (s *unixSocket) disconnect() sys.Errno { return sys.EINVAL }

func (s *unixSocket) setLowat(n int) { s.lowat = max(1, n) } // nobody is woken, or waits, for that

func (s *unixSocket) close() {
	s.file = nil
	s.end(false)
}

// end is unix_release_sock. embryo says that nobody has accepted it.
func (s *unixSocket) end(embryo bool) {
	if s.w.paths[s.path] == s {
		delete(s.w.paths, s.path)
	}
	s.dead, s.shutRead, s.shutWrite = true, true, true
	if p := s.peer; p != nil {
		p.shutRead, p.shutWrite = true, true
		if len(s.in) > 0 || embryo {
			p.err = sys.ECONNRESET
		}
		p.wake(wakeAll)
	}
	for len(s.in) > 0 {
		s.drop()
	}
	for _, c := range s.clients {
		c.end(true)
	}
	s.unread, s.clients = 0, nil
}

func (s *unixSocket) local(sa *sys.Sockaddr) sys.Errno { return unixAddr(sa, s.path) }

func (s *unixSocket) remote(sa *sys.Sockaddr) sys.Errno {
	if s.peer == nil {
		return syscall.ENOTCONN
	}
	return unixAddr(sa, s.peer.path)
}

func unixAddr(sa *sys.Sockaddr, path string) sys.Errno {
	sa.SetUnnamed()
	if path != "" && sa.SetUnix(path) != nil {
		return sys.EINVAL
	}
	return 0
}

func (s *unixSocket) readQueued() (int, sys.Errno) {
	if s.state == unixListening {
		return 0, sys.EINVAL
	}
	return s.unread, 0
}

func (s *unixSocket) hasUnread() (bool, sys.Errno) {
	if s.state != unixEstablished {
		return false, sys.EINVAL
	}
	if slices.ContainsFunc(s.in, func(p unixPiece) bool { return !p.oob }) {
		return true, 0
	}
	return false, s.takeError()
}

func (s *unixSocket) writeQueued() int { return min(s.charged, math.MaxInt32) }
