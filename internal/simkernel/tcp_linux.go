package simkernel

import (
	"maps"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// tcpSocket is a TCP socket: tcp(7), net/ipv4/tcp.c and tcp_input.c.
type tcpSocket struct {
	common
	at, to netip.AddrPort // the addresses of both ends
	state  sys.TCPState
	peer   *tcpSocket // nil: nobody at the other end knows the connection
	origin int        // the number of the socket at the other end
	active bool       // it has opened the connection

	in       queue // received, and not read
	read     uint64
	inEnd    bool  // the end of the stream has arrived: SOCK_DONE
	out      queue // accepted, and not delivered
	accepted uint64
	outEnd   bool // shutdown(2) was called, or close(2)
	endGiven bool // and that has arrived

	urgentEnd uint64  // behind the last urgent byte that was sent: snd_up
	urgentAt  uint64  // the place of the last one that came: urg_seq
	urgency   urgency // of that

	sentAt              time.Duration // when bytes have left last, or it was made
	lowat               int
	shutRead, shutWrite bool
	noSpace             bool // somebody waits until it can be written to: SOCK_NOSPACE
	closeResets         bool
	orphan              bool // nobody has it any more
	resetComes          bool // the other end has sent a reset that is in flight
	queued              bool // in World.inFlight

	tls       *socketTLS // nil: it has no kTLS
	choose    func(n int) int
	listening bool
	backlog   int
	clients   []*tcpSocket // that nobody has accepted yet
}

func newTCP(w *World) *tcpSocket {
	return &tcpSocket{common: newCommon(w), state: sys.TCPClose, lowat: 1, sentAt: w.now, in: queue{m: w.memory}, out: queue{m: w.memory}}
}

// undelivered reports whether there is something that has not arrived.
func (s *tcpSocket) undelivered() bool {
	return s.out.len() > 0 || s.outEnd && !s.endGiven || s.resetComes
}

// deliverable reports whether some of that can arrive now.
func (s *tcpSocket) deliverable() bool {
	if s.state == sys.TCPSynSent || !s.undelivered() || s.state == sys.TCPClose {
		return false
	}
	return s.out.len() == 0 || s.peer == nil || s.peer.window() > 0 || s.peer.refusesData()
}

func (s *tcpSocket) window() int { return s.receiveBuffer - s.in.len() }

// enough is tcp_epollin_ready: a full buffer is worth a wake-up, whatever SO_RCVLOWAT is.
func (s *tcpSocket) enough() bool {
	if s.tls != nil {
		return s.tls.Ready() && !s.tls.none
	}
	return s.in.len() >= s.lowat || s.window() <= 0
}

// refusesData reports whether data that arrives ends the connection, because nobody will read it.
func (s *tcpSocket) refusesData() bool {
	return s.shutRead && !s.inEnd || s.orphan
}

// deliver lets up to most bytes arrive, and the end of the stream behind the last one.
func (s *tcpSocket) deliver(most int) {
	p := s.peer
	if p == nil {
		s.reset()
		return
	}
	if s.out.len() > 0 {
		if p.refusesData() { // TCPABORTONDATA
			p.urgent(s, s.out.len())
			p.reset()
			s.reset()
			return
		}
		n := min(most, s.out.len(), p.window())
		p.urgent(s, n)
		s.out.take(n, p.in.put)
		s.sentAt = s.w.now
		if p.tls != nil {
			p.pull()
		}
		if p.enough() {
			p.wake(wakeRead)
		}
		if s.noSpace && s.writable() {
			s.noSpace = false
			s.wake(wakeWrite)
		}
	}
	if s.out.len() == 0 && s.outEnd && !s.endGiven {
		s.endGiven = true
		p.receiveEnd()
		s.endAcknowledged()
	}
	if !s.undelivered() {
		s.w.delivered(s)
	}
}

// receiveEnd is tcp_fin.
func (s *tcpSocket) receiveEnd() {
	s.inEnd, s.shutRead = true, true
	switch s.state {
	case sys.TCPEstablished:
		s.state = sys.TCPCloseWait
	case sys.TCPFinWait1:
		s.state = sys.TCPClosing
	case sys.TCPFinWait2:
		s.done()
	}
	s.wake(wakeAll)
}

// endAcknowledged is the acknowledgement of what shutdown(2) or close(2) has sent.
func (s *tcpSocket) endAcknowledged() {
	switch s.state {
	case sys.TCPFinWait1:
		s.state = sys.TCPFinWait2
		s.wake(wakeAll)
	case sys.TCPClosing, sys.TCPLastAck:
		s.done()
		s.wake(wakeAll)
	}
}

// done is tcp_done.
func (s *tcpSocket) done() {
	s.state, s.peer = sys.TCPClose, nil
	s.shutRead, s.shutWrite = true, true
}

// reset is a RST that arrives: tcp_reset.
func (s *tcpSocket) reset() {
	switch s.state {
	case sys.TCPClose:
		return
	case sys.TCPSynSent:
		s.err = sys.ECONNREFUSED
	case sys.TCPCloseWait:
		s.err = sys.EPIPE
	default:
		s.err = sys.ECONNRESET
	}
	s.abandon()
	s.wake(wakeAll)
}

// abandon drops what was not delivered.
func (s *tcpSocket) abandon() {
	s.out.clear()
	s.endGiven, s.resetComes = s.outEnd, false
	s.done()
	s.w.delivered(s)
}

// sendReset resets the other end.
func (s *tcpSocket) sendReset() {
	p := s.peer
	s.abandon()
	switch {
	case p == nil:
	case s.w.Slow:
		p.peer, p.resetComes = nil, true
		s.w.sent(p) // what is in flight towards p
	default:
		p.reset()
	}
}

func (s *tcpSocket) writable() bool {
	free := s.sendBuffer - s.out.len()
	return free >= s.out.len()/2 && free > 0 // sk_stream_wspace >= sk_stream_min_wspace
}

// poll is tcp_poll.
func (s *tcpSocket) poll() (mask uint32) {
	if s.listening {
		if len(s.clients) > 0 {
			mask = sys.In
		}
		return mask
	}
	if s.shutRead && s.shutWrite || s.state == sys.TCPClose {
		mask |= sys.Hup
	}
	if s.shutRead {
		mask |= sys.In | sys.RdHup
	}
	if s.state != sys.TCPSynSent {
		if s.enough() && !(s.atMark() && s.in.len() == s.lowat && s.window() > 0) { // the urgent byte does not count
			mask |= sys.In
		}
		if s.urgency == urgentHere {
			mask |= sys.Pri
		}
		if s.shutWrite {
			mask |= sys.Out
		} else if s.writable() {
			mask |= sys.Out
		} else {
			s.noSpace = true
		}
	}
	if s.err != 0 {
		mask |= sys.Err
	}
	return mask
}

// recv takes up to n bytes, which it gives to put, and returns how many.
func (s *tcpSocket) recv(n int, put func([]byte)) (int, sys.Errno) {
	if s.listening {
		return 0, syscall.ENOTCONN
	}
	if s.tls != nil {
		done, _, e := s.recvTLS(n, put, false, false)
		return done, e
	}
	had := s.in.len()
	done := s.take(n, put)
	if s.in.len() < had {
		s.windowOpens()
	}
	if done > 0 || had > 0 && n == 0 {
		return done, 0
	}
	return s.nothing()
}

// windowOpens is called when bytes have left the queue.
func (s *tcpSocket) windowOpens() {
	if s.peer != nil && s.peer.undelivered() {
		s.w.sent(s.peer) // there is room again
	}
}

// nothing is what a call that receives returns if there is nothing to be received.
func (s *tcpSocket) nothing() (int, sys.Errno) {
	switch {
	case s.inEnd:
		return 0, 0
	case s.err != 0:
		return 0, s.takeError()
	case s.shutRead:
		return 0, 0
	case s.state == sys.TCPClose:
		return 0, syscall.ENOTCONN
	}
	return 0, sys.EAGAIN
}

// room returns how many bytes a send takes.
func (s *tcpSocket) room() (int, sys.Errno) {
	switch {
	case s.listening:
		return 0, sys.EPIPE
	case s.state == sys.TCPSynSent:
		return 0, sys.EAGAIN
	case s.err != 0 && s.tls != nil && s.tls.none:
		return 0, s.err // tls_tx_records gives it back
	case s.err != 0:
		return 0, s.takeError()
	case s.shutWrite, s.state == sys.TCPClose:
		return 0, sys.EPIPE
	}
	n := s.sendBuffer - s.out.len()
	if n <= 0 {
		s.noSpace = true
		return 0, sys.EAGAIN
	}
	return n, 0
}

// write accepts up to n bytes, as long as there is room for more. put is called for a part of them, and calls the socket's put.
func (s *tcpSocket) write(n int, put func(n int)) (done int, e sys.Errno) {
	room, e := s.room()
	for e == 0 && room > 0 && done < n && s.err == 0 && !s.shutWrite {
		m := min(room, n-done)
		put(m)
		done += m
		s.w.sent(s)
		room = s.sendBuffer - s.out.len()
	}
	s.noSpace = s.noSpace || e == 0 && done < n
	return done, e
}

// put adds to what is in flight. sent must follow.
func (s *tcpSocket) put(p []byte) {
	if t := s.tls; t != nil {
		for n := 0; len(p) > n; {
			var record []byte
			record, n = t.Seal(t.sends, p)
			s.out.put(record)
			s.accepted += uint64(len(record))
			p, n = p[n:], 0
		}
		return
	}
	s.out.put(p)
	s.accepted += uint64(len(p))
}

// shutdown is inet_shutdown.
func (s *tcpSocket) shutdown(read, write bool) sys.Errno {
	switch {
	case s.state == sys.TCPSynSent, s.listening && read:
		return s.disconnect()
	case s.listening:
		return 0
	}
	s.shutRead = s.shutRead || read
	s.shutWrite = s.shutWrite || write
	e := sys.Errno(0)
	switch {
	case s.state == sys.TCPClose:
		e = syscall.ENOTCONN
	case write:
		s.sendEnd()
	}
	s.wake(wakeAll)
	return e
}

// sendEnd is tcp_send_fin, once.
func (s *tcpSocket) sendEnd() {
	if s.outEnd {
		return
	}
	s.outEnd, s.shutWrite = true, true
	switch s.state {
	case sys.TCPEstablished:
		s.state = sys.TCPFinWait1
	case sys.TCPCloseWait:
		s.state = sys.TCPLastAck
	}
	s.w.sent(s)
}

// disconnect is tcp_disconnect.
func (s *tcpSocket) disconnect() sys.Errno {
	if s.listening {
		s.stopListening()
		s.state = sys.TCPClose
		s.wake(wakeAll)
		return 0
	}
	switch s.state {
	case sys.TCPSynSent, sys.TCPEstablished, sys.TCPCloseWait, sys.TCPFinWait1, sys.TCPFinWait2: // tcp_need_reset
		s.err = sys.ECONNRESET
	case sys.TCPClosing, sys.TCPLastAck:
		if s.out.len() > 0 {
			s.err = sys.ECONNRESET
		}
	}
	s.sendReset()
	s.in.clear()
	s.inEnd = false
	s.outEnd, s.endGiven = false, false
	s.shutRead, s.shutWrite = false, false
	s.read, s.accepted, s.to = 0, 0, netip.AddrPort{}
	s.urgentEnd, s.urgency, s.tls = 0, notUrgent, nil
	s.wake(wakeAll)
	return 0
}

func (s *tcpSocket) stopListening() {
	s.listening = false
	all := s.w.listeners[s.at]
	for i, other := range all {
		if other == s {
			s.w.listeners[s.at] = append(all[:i:i], all[i+1:]...)
		}
	}
	for _, c := range s.clients {
		c.orphan = true
		c.sendReset()
	}
	s.clients = nil
}

// close is tcp_close, when nobody has the socket any more.
func (s *tcpSocket) close() {
	s.file, s.orphan = nil, true
	switch {
	case s.listening:
		s.stopListening()
	case s.state == sys.TCPClose:
	case s.state == sys.TCPSynSent:
		s.done()
	case s.in.len() > 0, s.closeResets, s.tls != nil && (s.tls.opened || len(s.tls.raw) > 0):
		s.in.clear()
		s.sendReset()
	default:
		s.shutRead = true
		s.sendEnd()
	}
}

// connect is tcp_v4_connect over loopback: the answer of the other end comes when the call is about to return.
func (s *tcpSocket) connect(sa *sys.Sockaddr, choose func(n int) int) sys.Errno {
	to := sa.AddrPort()
	switch {
	case s.state == sys.TCPSynSent:
		return syscall.EALREADY
	case s.state != sys.TCPClose:
		return syscall.EISCONN
	}
	if !s.at.IsValid() {
		s.at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), s.w.freePort())
	}
	s.to, s.state, s.active = to, sys.TCPSynSent, true
	s.shutRead, s.shutWrite, s.err = false, false, 0 // tcp_connect_init
	s.choose = choose
	s.w.connecting = append(s.w.connecting, s)
	if !s.w.SlowConnects {
		s.meet()
	}
	return sys.EINPROGRESS
}

// meet is what becomes of a SYN. One that meets a full queue is dropped: tcp_conn_request.
func (s *tcpSocket) meet() {
	all := s.w.listeners[s.to]
	if len(all) == 0 {
		s.reset()
		return
	}
	l := all[s.choose(len(all))]
	if len(l.clients) > l.backlog {
		return
	}
	c := newTCP(s.w)
	c.at, c.to, c.state, c.peer = s.to, s.at, sys.TCPEstablished, s
	c.closeResets, c.sendBuffer, c.receiveBuffer, c.lowat, c.options = l.closeResets, l.sendBuffer, l.receiveBuffer, l.lowat, maps.Clone(l.options)
	s.peer, s.state = c, sys.TCPEstablished
	s.origin, c.origin = c.number, s.number
	l.clients = append(l.clients, c)
	l.wake(wakeRead)
	s.wake(wakeAll)
}

func (s *tcpSocket) family() sys.Family { return sys.IPv4 }

func (s *tcpSocket) bind(sa *sys.Sockaddr) sys.Errno {
	s.at = sa.AddrPort()
	if s.at.Port() == 0 {
		s.at = netip.AddrPortFrom(s.at.Addr(), s.w.freePort())
	}
	return 0
}

func (s *tcpSocket) listen(backlog int) sys.Errno {
	if s.backlog = backlog; backlog <= 0 {
		s.backlog = somaxconn
	}
	if !s.listening {
		s.listening, s.state = true, sys.TCPListen
		s.w.listeners[s.at] = append(s.w.listeners[s.at], s)
	}
	return 0
}

func (s *tcpSocket) accept(short bool) (client stream, from sys.Sockaddr, errno sys.Errno) {
	switch {
	case !s.listening:
		return nil, from, sys.EINVAL
	case short: // the kernel takes the descriptor first
		return nil, from, sys.EMFILE
	case len(s.clients) == 0:
		return nil, from, sys.EAGAIN
	}
	c := s.clients[0]
	s.clients = s.clients[1:]
	if from.SetAddrPort(c.to) != nil {
		return nil, from, sys.EINVAL
	}
	return c, from, 0
}

func (s *tcpSocket) setLowat(n int) {
	s.lowat = max(1, n)
	s.receiveBuffer = max(s.receiveBuffer, 2*n) // which it would not fit into otherwise: tcp_set_rcvlowat
	if s.enough() || s.inEnd {                  // tcp_data_ready
		s.wake(wakeRead)
	}
}

func (s *tcpSocket) local(sa *sys.Sockaddr) sys.Errno {
	if sa.SetAddrPort(s.at) != nil {
		return sys.EINVAL
	}
	return 0
}

func (s *tcpSocket) remote(sa *sys.Sockaddr) sys.Errno {
	switch {
	case s.state == sys.TCPClose, s.listening, !s.to.IsValid():
		return syscall.ENOTCONN
	case sa.SetAddrPort(s.to) != nil:
		return sys.EINVAL
	}
	return 0
}

func (s *tcpSocket) readQueued() (int, sys.Errno) { return s.unread(), 0 }

func (s *tcpSocket) hasUnread() (bool, sys.Errno) {
	if n := s.in.len(); n > 1 || n == 1 && !s.atMark() {
		return true, 0
	}
	_, e := s.nothing()
	if e == sys.EAGAIN {
		e = 0
	}
	return false, e
}

func (s *tcpSocket) writeQueued() int {
	n := s.out.len()
	if s.outEnd && !s.endGiven {
		n++
	}
	return n
}

// counts are what TCP_INFO, SIOCINQ and SIOCOUTQ say.
func (s *tcpSocket) counts() sys.TCPCounts {
	c := sys.TCPCounts{Consumed: s.read + uint64(s.in.len()-s.unread()), Written: s.accepted, State: s.state, Urgent: s.urgency == urgentHere}
	if s.inEnd {
		c.Consumed++
	}
	if s.outEnd {
		c.Written++
	}
	if s.active {
		c.Written++
	}
	return c
}
