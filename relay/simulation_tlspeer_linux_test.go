package relay

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// simPeer is a client or an upstream that speaks TLS.
type simPeer struct {
	s       *simulation
	f       *simFlow
	side    int
	tls     *tls.Conn
	task    *simTask // the handshake
	pause   func()   // of it
	over    bool     // it is
	failed  error    // why it has failed
	first   []byte   // what was read already
	out     []byte   // what was not sent
	errno   sys.Errno
	ended   bool // the connection has
	moved   int64
	stall   bool // it does not go on
	ends    bool // it ends its connection after its first flight
	fin     bool // the end of the connection follows what is to be sent
	shut    bool // that was sent
	greeted bool // a client has sent its first byte
	words   bool // of an upstream: what is said before TLS is not over
	urgent  bool // it has sent an urgent byte
}

// newPeer makes the peer of a side, of which first was read. Its handshake begins when what is said before it is over.
func (s *simulation) newPeer(f *simFlow, side int, first ...byte) {
	p := &simPeer{s: s, f: f, side: side, first: first}
	if f.secure.peer[side] != nil {
		f.secure.peer[side].stop()
	}
	f.secure.peer[side] = p
	if h := &f.half[down]; side == sideUpstream && !f.secure.up { // the one before may have sent something behind its handshake, which the relay's has not seen
		h.sent, h.ended = 0, false
	}
	if p.words = side == sideUpstream && f.words.preface > 0; p.words {
		p.first = nil
		if first[0] != prefaceOf(f)[0] {
			s.fail("flow %d: its upstream gets %d first, rather than the preface", f.id, first[0])
		}
		w := &f.words
		w.front[up], w.asked, w.owed, w.refused, w.over = prefaceOf(f)[1:], false, nil, false, false
		return
	}
	p.begin()
}

// begin begins the handshake.
func (p *simPeer) begin() {
	s, f, side := p.s, p.f, p.side
	rude := f.secure.rude[side]
	if side == sideUpstream && f.secure.rudes > 0 && !f.secure.always {
		rude = rudeNot
	}
	cfg := f.secure.config(side == sideUpstream, rude == rudeName)
	if side == sideUpstream {
		p.tls = tls.Server(p, cfg)
	} else {
		p.tls = tls.Client(p, cfg)
	}
	if rude != rudeNot {
		s.seen.costs[fmt.Sprintf("%v: fails, %d", Side(side), rude)]++
		if side == sideUpstream {
			f.secure.rudes++
		} else if rude != rudeStall {
			f.broke[side] = true
		}
	}
	switch rude {
	case rudeGarbage:
		p.out = []byte("this is not TLS, whatever it may look like")
		p.task = newTask(func(pause func()) { p.rudeRest(pause) })
		return
	case rudeEnd:
		p.ends = true
	case rudeStall:
		p.stall = true
	}
	p.task = newTask(func(pause func()) {
		p.pause = pause
		if err := p.tls.Handshake(); err != nil {
			p.failed = err
			return
		}
		p.over = true
	})
}

// rudeRest reads what comes, until the connection ends.
func (p *simPeer) rudeRest(pause func()) {
	p.pause = pause
	var b [512]byte
	for {
		if _, err := p.Read(b[:]); err != nil {
			p.failed = err
			return
		}
	}
}

// talk goes on with what is said before TLS, and reports whether the handshake can begin.
func (p *simPeer) talk() bool {
	s, w := p.s, &p.f.words
	for {
		b := s.scratch[:max(1, len(w.front[up]))] // TLS follows at once if there is no answer to give
		if len(w.front[up]) == 0 && !w.refused {
			break
		}
		n, e := s.peers.Recv(p.fd(), b)
		if e == sys.EAGAIN {
			break
		}
		if e != 0 || n == 0 { // the attempt has failed
			s.leaveTLS(p.f)
			return false
		}
		if p.moved += int64(n); w.refused {
			s.fail("flow %d: its upstream has answered otherwise than it should, and is sent more", p.f.id)
			return false
		}
		if _, ok := w.takesFront(up, b[:n]); !ok {
			s.fail("flow %d: what its upstream gets before TLS is not the preface", p.f.id)
		}
	}
	s.ask(p.f)
	some := s.say(p.f, 1<<10)
	if p.f.peerOf(p.side) != p {
		return false
	}
	if some {
		p.moved++
	}
	if len(w.front[up]) > 0 || w.answer > 0 && (!w.asked || w.refused || len(w.owed) > 0) {
		return false
	}
	s.seen.costs[sayBeforeTLS]++
	p.words, w.over = false, true
	p.begin()
	return true
}

// sayBeforeTLS is counted when an upstream has got a preface and TLS follows.
const sayBeforeTLS = "TLS behind a preface"

func (p *simPeer) stop() {
	if p != nil && p.task != nil {
		p.task.stop()
	}
}

func (p *simPeer) fd() int { return p.f.fd[p.side] }

// Read implements [net.Conn].
func (p *simPeer) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	for {
		switch n, e := p.s.peers.Recv(p.fd(), b); {
		case p.errno != 0:
			return 0, p.errno
		case p.ended:
			return 0, io.EOF
		case e == sys.EAGAIN && !p.over:
			p.pause()
		case e == sys.EAGAIN:
			return 0, errSimAgain{}
		case e != 0:
			p.errno = e
			return 0, e
		case n == 0:
			p.ended = true
			return 0, io.EOF
		default:
			p.moved += int64(n)
			if w := &p.f.words; p.side == sideClient && len(w.front[down]) > 0 {
				rest, ok := w.takesFront(down, b[:n])
				if !ok {
					p.s.fail("flow %d: what its client gets before TLS is not the reply", p.f.id)
				}
				if n = copy(b, rest); n == 0 {
					continue
				}
			}
			return n, nil
		}
	}
}

// Write implements [net.Conn].
func (p *simPeer) Write(b []byte) (int, error) {
	p.out = append(p.out, b...)
	return len(b), nil
}

func (p *simPeer) Close() error                     { return nil }
func (p *simPeer) LocalAddr() net.Addr              { return nil }
func (p *simPeer) RemoteAddr() net.Addr             { return nil }
func (p *simPeer) SetDeadline(time.Time) error      { return nil }
func (p *simPeer) SetReadDeadline(time.Time) error  { return nil }
func (p *simPeer) SetWriteDeadline(time.Time) error { return nil }

// errSimAgain is the error of a read for which there is nothing.
type errSimAgain struct{}

func (errSimAgain) Error() string   { return "nothing to read" }
func (errSimAgain) Timeout() bool   { return true }
func (errSimAgain) Temporary() bool { return true }

// flush sends up to n bytes of what is to be sent.
func (p *simPeer) flush(n int) {
	for len(p.out) > 0 && n > 0 && p.errno == 0 && !p.shut {
		m, e := p.s.peers.Send(p.fd(), p.out[:min(n, len(p.out))])
		if e == sys.EAGAIN {
			return
		}
		if e != 0 {
			p.errno = e
			return
		}
		p.out, n, p.moved = p.out[m:], n-m, p.moved+int64(m)
	}
	if p.fin && len(p.out) == 0 && !p.shut && p.errno == 0 {
		p.shut = true
		p.s.peers.ShutdownWrite(p.fd())
	}
}

// pump sends what is to be sent, up to n bytes, and goes on with the handshake. It reports whether something has happened. If it returns false, the peer
// may have gone.
func (s *simulation) pump(p *simPeer, n int) (some bool) {
	f, before := p.f, p.moved
	if p.words && !p.talk() {
		return p.moved != before
	}
	if p.stall {
		return false
	}
	p.flush(n)
	if !p.over && p.failed == nil {
		p.task.next()
		if p.ends && len(p.out) > 0 && !p.over && !p.fin {
			p.fin = true
			if f.secure.version == tls.VersionTLS13 { // whose client's handshake is over now
				f.broke[p.side] = true
				f.cuts(p.side)
			}
			p.task.stop()
			p.task = newTask(func(pause func()) { p.rudeRest(pause) })
		}
		p.flush(n)
	}
	switch {
	case p.failed != nil, p.errno != 0 && !p.over:
		s.handshakeOver(p)
		return true
	case p.errno != 0:
		s.brokenTLS(p, p.errno)
		return true
	case p.over && p.side == sideClient && !p.greeted:
		p.greeted = true
		s.sendTLS(p, 1) // so that its upstream knows whose it is
	}
	return p.moved != before
}

// handshakeOver is called when the handshake of a peer has failed.
func (s *simulation) handshakeOver(p *simPeer) {
	f := p.f
	if p.errno == 0 {
		p.flush(1 << 20) // an alert
	}
	if p.side == sideUpstream && f.half[up].got == 0 && (f.secure.refused || f.secure.rudes > 0 || f.mayReset() || (s.limits || s.scarce) && f.words.answer > 0) { // its answer may have come too late, or there was no memory for it
		s.leaveTLS(f)
		return
	}
	e := p.errno
	if e == 0 {
		e = sys.EPROTO
	}
	s.broken(f, p.side, e)
	f.unexplained = fmt.Sprintf("the handshake of side %d: %v", p.side, p.failed)
}

// leaveTLS is called when an upstream learns that a handshake has failed: another attempt may follow.
func (s *simulation) leaveTLS(f *simFlow) {
	s.leave(f)
}

// peerOf returns a side's TLS; nil: it has none.
func (f *simFlow) peerOf(side int) *simPeer {
	if f.fd[side] < 0 {
		return nil
	}
	return f.secure.peer[side]
}

// sendTLS lets a peer send up to n bytes.
func (s *simulation) sendTLS(p *simPeer, n int) bool {
	f, h := p.f, &p.f.half[p.side]
	some := s.pump(p, 1<<20)
	if f.peerOf(p.side) != p || !p.over || len(p.out) > 0 || p.fin || h.ended {
		return some
	}
	b := simBytes(f.id, p.side, h.sent, min(n, simPeriod))
	if _, err := p.tls.Write(b); err != nil {
		s.brokenTLS(p, err)
		return true
	}
	h.sent += int64(len(b))
	f.follow()
	p.flush(1 << 20)
	return true
}

// readTLS lets a peer read up to n bytes.
func (s *simulation) readTLS(p *simPeer, n int) (some bool) {
	f, h := p.f, &p.f.half[1-p.side]
	some = s.pump(p, 1<<20)
	b := s.scratch[:min(n, simPeriod)]
	for len(b) > 0 && f.peerOf(p.side) == p && p.over && !h.end {
		m, err := p.tls.Read(b)
		if m > 0 {
			from := h.got
			if !h.takes(f.id, f.sender(p.side), b[:m]) {
				s.fail("flow %d: %d bytes that side %d has got in TLS, from byte %d on, are not those that were sent", f.id, m, p.side, from)
			}
			s.delivered += int64(m)
			b, some = b[m:], true
		}
		switch {
		case err == nil:
		case err == errSimAgain{}:
			return some
		case err == io.EOF && !p.ended:
			h.end, some = true, true
			if !h.ended || h.got != h.sent {
				s.wrongEnd(f, p.side)
			}
		default:
			s.brokenTLS(p, err)
			return true
		}
	}
	return some
}

// wrongEnd is called when a side has got an end that is not the one that was sent.
func (s *simulation) wrongEnd(f *simFlow, side int) {
	h := &f.half[1-side]
	if f.leaves(1 - side) {
		return
	}
	s.fail("flow %d: side %d has got the end after %d of %d bytes, and it was sent: %v", f.id, side, h.got, h.sent, h.ended)
}

// leaves reports whether the end of a side's connection without one of TLS may be an end: it was told before that nothing more comes, or it is a client
// that has had an answer, or has agreed on HTTP/2. All that it has sent must have arrived.
func (f *simFlow) leaves(side int) bool {
	h := &f.half[side]
	return f.secure.cut[side] && h.got == h.sent && (f.half[1-side].ended || f.secure.cut[1-side] || side == sideClient && (f.half[down].sent > 0 || f.secure.alpn == "h2"))
}

// brokenTLS is called when a peer's connection has failed.
func (s *simulation) brokenTLS(p *simPeer, err error) {
	if p.side == sideUpstream && !p.f.secure.up { // the relay's handshake has failed
		s.leaveTLS(p.f)
		return
	}
	e := p.errno
	if e == 0 {
		e = sys.EPROTO
	}
	s.broken(p.f, p.side, e)
	p.f.unexplained = fmt.Sprintf("the TLS of side %d: %v", p.side, err)
}

// endTLS lets a peer say that it sends no more.
func (s *simulation) endTLS(p *simPeer) bool {
	h := &p.f.half[p.side]
	s.pump(p, 1<<20)
	if p.f.peerOf(p.side) != p || !p.over || h.ended || p.fin {
		return false
	}
	h.ended = true
	p.f.follow()
	p.tls.CloseWrite()
	p.fin = p.f.secure.fin
	p.flush(1 << 20)
	return true
}

// closesTLS is called when a peer closes its connection.
func (s *simulation) closesTLS(p *simPeer) {
	switch {
	case p.fin && p.f.broke[p.side] && !p.f.secure.cut[p.side]: // it has ended within a record, or with what is no TLS
	case len(p.out) == 0 && p.over:
		p.f.cuts(p.side)
	case p.side == sideUpstream && !p.f.secure.up:
		p.f.secure.left++
		if len(p.out) == 0 && p.f.secure.version == tls.VersionTLS13 { // it waits for the relay's last message, for which the handshake may be over
			p.f.cuts(p.side)
		}
	}
	p.stop()
}

// cutOne does so for the first peer that can.
func (s *simulation) cutOne(a, b int) bool {
	for i := range s.flows {
		f := s.flows[(a+i)%len(s.flows)]
		if s.cut(f, b&1, b>>1) || s.cut(f, 1-b&1, b>>1) {
			return true
		}
	}
	return false
}

// cut lets a peer with TLS end its connection without saying so in a record. how says if it does so within one.
func (s *simulation) cut(f *simFlow, side, how int) bool {
	p := f.peerOf(side)
	if p == nil || !p.over || p.fin || f.half[side].ended {
		return false
	}
	if how%2 == 1 && side == sideClient && s.send(f, down, 100) { // it leaves when it has had an answer
		s.turn()
		for s.world.InFlight() > 0 {
			s.world.Deliver(0, 1<<20)
		}
		s.turn()
		if s.read(f, side, 1<<18); f.peerOf(side) != p {
			return true
		}
	}
	h := &f.half[side]
	switch how % 4 {
	case 0: // within a record
		if len(p.out) == 0 {
			n := 1 + how%20_000
			p.tls.Write(simBytes(f.id, side, h.sent, n))
			h.sent += int64(n)
			p.out = p.out[:max(1, len(p.out)/2)]
		} else {
			p.out = p.out[:len(p.out)-1]
		}
	case 1: // not TLS
		p.out = append(p.out, "this is not TLS, whatever it may look like"...)
		s.seen.costs[fmt.Sprintf("%v: not TLS", Side(side))]++
		p.flush(1 << 20)
		f.broke[side], p.fin = true, true
		p.shut = how&4 == 0 && len(p.out) == 0 // or the end of the connection follows
		p.flush(1 << 20)
		return true
	}
	s.seen.costs[fmt.Sprintf("%v: cut%s", Side(side), map[bool]string{true: " within a record"}[how%4 == 0])]++
	f.broke[side], p.fin = true, true
	if how%4 > 0 {
		f.cuts(side)
	}
	p.flush(1 << 20)
	return true
}

// pumpAll lets all peers with TLS go on. None stalls any more.
func (s *simulation) pumpAll() {
	for _, f := range s.flows {
		for side := range f.secure.peer {
			if p := f.peerOf(side); p != nil {
				p.stall = false
				s.pump(p, 1<<20)
			}
		}
	}
}

// movedTLS changes when a peer with TLS has moved something.
func (s *simulation) movedTLS() (n int64) {
	for _, f := range s.flows {
		for _, p := range f.secure.peer {
			if p != nil {
				n += p.moved
			}
		}
		n += int64(f.secure.told[0]+f.secure.told[1]) << 40
	}
	return n + int64(len(s.tasks))<<50
}
