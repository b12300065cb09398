package simkernel

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// Urgent data of TCP: tcp(7), MSG_OOB, without SO_OOBINLINE. That of Unix sockets is at unixSocket.sendUrgent.
//
// The sender has a pointer behind its last urgent byte (snd_up), of which the receiver is told with what is sent in front of it. The receiver
// has the place of the last urgent byte that it was told of (urg_seq), which receive calls skip, and splice(2) does not pass. An older urgent
// byte that was not skipped by then is part of the stream.

// urgency is urg_data: whether there is an urgent byte that the reader has not passed.
type urgency uint8

const (
	notUrgent urgency = iota
	urgentComes
	urgentHere
)

// urgentFar is from how far the receiver is told: the pointer of a segment has 16 bits.
const urgentFar = 1 << 16

// SendUrgent sends a byte out of band, as [sys.SendUrgent] does.
func (p *Process) SendUrgent(fd int, b byte) sys.Errno {
	if s, e := p.stream(fd); e == 0 {
		if s, ok := s.(*unixSocket); ok {
			return s.sendUrgent(b)
		}
	}
	s, e := p.tcp(fd)
	if e != 0 {
		return e
	}
	if _, e := s.room(); e != 0 {
		return e
	}
	s.put([]byte{b})
	s.urgentEnd = s.accepted
	s.w.sent(s)
	return 0
}

// AtMark implements [sys.Kernel].
func (p *Process) AtMark(fd int) bool {
	s, e := p.stream(fd)
	if e != 0 {
		return false
	}
	switch s := s.(type) {
	case *tcpSocket:
		return s.atMark()
	case *unixSocket:
		return s.atMark()
	}
	return false
}

// atMark is what SIOCATMARK says.
func (s *tcpSocket) atMark() bool { return s.urgency != notUrgent && s.urgentAt == s.read }

// told is tcp_check_urg: an urgent byte is at a place of the stream.
func (s *tcpSocket) told(at uint64) {
	received := s.read + uint64(s.in.len())
	if s.read > at || at < received || s.urgency != notUrgent && at <= s.urgentAt {
		return
	}
	if s.atMark() && s.read != received { // the one before is skipped
		s.read++
		s.in.take(1, func([]byte) {})
	}
	s.urgency, s.urgentAt = urgentComes, at
}

// urgent is tcp_urg: n bytes come from p, whose pointer may be in them or behind them. It is looked at even if nobody wants the bytes.
func (s *tcpSocket) urgent(p *tcpSocket, n int) {
	at, end := s.read+uint64(s.in.len()), p.urgentEnd
	if end > at && end <= at+uint64(n)+urgentFar {
		s.told(end - 1)
	}
	if s.urgency == urgentComes && s.urgentAt < at+uint64(n) {
		s.urgency = urgentHere
		s.wake(wakeRead)
	}
}

// beforeMark returns how many of the next n bytes are in front of the urgent byte.
func (s *tcpSocket) beforeMark(n int) int {
	if s.urgency != notUrgent && s.urgentAt >= s.read {
		n = int(min(uint64(n), s.urgentAt-s.read))
	}
	return n
}

// take is the loop of tcp_recvmsg: it gives put up to n bytes, and stops at an urgent byte, unless that comes first: then it is skipped.
func (s *tcpSocket) take(n int, put func([]byte)) (done int) {
	for done < n && s.in.len() > 0 {
		if s.atMark() {
			if done > 0 {
				break
			}
			s.in.take(1, func([]byte) {})
			s.read++
			s.urgency = notUrgent
			continue
		}
		m := s.beforeMark(min(n-done, s.in.len()))
		s.in.take(m, put)
		s.read += uint64(m)
		done += m
	}
	return done
}

// unread is what SIOCINQ says: tcp_inq.
func (s *tcpSocket) unread() int { return s.beforeMark(s.in.len()) }

// spliceRecv is tcp_splice_read.
func (s *tcpSocket) spliceRecv(n int, put func([]byte)) (int, sys.Errno) {
	if s.listening {
		return 0, syscall.ENOTCONN
	}
	if s.tls != nil {
		return s.spliceTLS(n, put)
	}
	if n = s.beforeMark(min(n, s.in.len())); n == 0 {
		return s.nothing()
	}
	n = s.take(n, put)
	s.windowOpens()
	return n, 0
}
