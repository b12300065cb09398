//go:build linux

package world

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// Patience is how long a flow may not move, though it should.
var Patience = 60 * time.Second

// pieces are buffers for one read or write, and for what it should be.
var pieces = sync.Pool{New: func() any { return new([2][128 * kib]byte) }}

// stream is one end of a flow: the socket of its client or of its upstream.
type stream struct {
	w    *World
	f    *flow
	side int // 0: the client, 1: the upstream
	conn net.Conn
	own  pattern.Direction // what it writes
	come pattern.Direction // what it reads
	said int64             // bytes that the other side said before those of the direction

	mu    sync.Mutex
	worst verdict // the worst of both halves
	rand  *rand.Rand
}

func (w *World) stream(f *flow, side int, conn net.Conn, said int64) *stream {
	s := &stream{w: w, f: f, side: side, conn: conn, said: said, own: up, come: down, rand: w.Random(f.id, uint64(side))}
	if side == 1 {
		s.own, s.come = down, up
	}
	if f.via.Echo {
		s.come = up
	}
	return s
}

func (s *stream) plan() plan {
	if s.side == 0 {
		return s.f.shape.client
	}
	return s.f.shape.upstream
}

// run writes and reads until both directions have ended, closes the socket, and reports whether all
// went well.
func (s *stream) run() bool {
	if p := s.plan(); p.readPauses[1] > 0 {
		if b, ok := s.conn.(interface{ SetReadBuffer(int) error }); ok {
			b.SetReadBuffer(32 * kib)
		}
	}
	if s.f.shape.reset && int(s.f.id%2) == s.side {
		stop := time.AfterFunc(time.Until(s.f.stop), s.reset)
		defer stop.Stop()
	}
	if s.f.shape.talk {
		s.talk()
	} else {
		reader := rand.New(rand.NewPCG(s.rand.Uint64(), 0))
		var both sync.WaitGroup
		both.Go(s.write)
		both.Go(func() { s.read(reader) })
		both.Wait()
	}
	if s.worst == endGood && s.f.directions[s.own].total.Load() < 0 {
		// Its writer left the end to the reset, and then the run ended: the other end has finished, and this one has not.
		s.reset()
		return false
	}
	s.conn.Close()
	return s.worst == endGood
}

// reset resets the connection.
func (s *stream) reset() {
	s.f.resetBy.CompareAndSwap(0, int32(s.side)+1)
	if c, ok := s.conn.(*net.TCPConn); ok {
		c.SetLinger(0)
	}
	s.conn.Close()
}

// over is told how a half ended.
func (s *stream) over(e verdict) {
	s.mu.Lock()
	s.worst = max(s.worst, e)
	s.mu.Unlock()
	if e != endGood {
		if e == endFault {
			s.reset() // the other end need not wait
		}
		s.conn.Close() // wakes the other half
	}
}

// late reports whether the part of the flow's life is over.
func (s *stream) late(part float64) bool {
	if s.w.stopping.Load() {
		return true
	}
	stop := s.f.stop
	if part > 0 {
		stop = s.f.start.Add(time.Duration(part * float64(stop.Sub(s.f.start))))
	}
	return time.Now().After(stop)
}

// write writes until the time is over, and then ends its direction.
func (s *stream) write() {
	p := s.plan()
	for i := 1; !p.quiet; i++ {
		n := between(s.rand, p.sizes[0], p.sizes[1])
		s.w.allow(n)
		if !s.put(n) {
			return
		}
		if s.late(p.early) {
			break
		}
		if i%p.burst == 0 {
			s.w.Sleep(pauseBetween(s.rand, p.pauses))
		}
	}
	for p.quiet && !s.late(0) {
		s.w.Sleep(min(time.Until(s.f.stop), time.Second))
	}
	s.finish()
}

// put writes n bytes, and reports whether it could.
func (s *stream) put(n int) bool {
	c := &s.f.directions[s.own]
	b := pieces.Get().(*[2][128 * kib]byte)
	defer pieces.Put(b)
	at := c.written.Load()
	pattern.Fill(b[0][:n], s.f.id, s.own, at)
	c.written.Add(int64(n))
	for rest := b[0][:n]; len(rest) > 0; {
		read := c.read.Load()
		s.conn.SetWriteDeadline(time.Now().Add(Patience))
		m, err := s.conn.Write(rest)
		rest = rest[m:]
		if errors.Is(err, os.ErrDeadlineExceeded) && c.read.Load() > read {
			continue // a slow reader, and large buffers on the way
		}
		if err != nil {
			s.over(s.w.close(s.f, s.side, s.own, at+int64(n-len(rest)), err))
			return false
		}
	}
	return true
}

// finish ends the direction that this end writes. A flow that is to be reset does not end otherwise.
func (s *stream) finish() {
	if s.f.shape.reset && !s.w.stopping.Load() {
		return
	}
	c := &s.f.directions[s.own]
	c.total.Store(c.written.Load())
	if err := s.conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		s.over(s.w.close(s.f, s.side, s.own, c.written.Load(), err))
	}
}

// read reads to the end, and compares.
func (s *stream) read(r *rand.Rand) {
	p := s.plan()
	b := pieces.Get().(*[2][128 * kib]byte)
	defer pieces.Put(b)
	c := &s.f.directions[s.come]
	for {
		most := len(b[0])
		slow := p.readPauses[1] > 0 && c.total.Load() < 0 && !s.w.stopping.Load()
		if slow {
			most = between(r, p.readSizes[0], p.readSizes[1])
		}
		n, err := s.conn.Read(s.deadline(b[0][:most]))
		if n > 0 && !s.check(b[0][:n], b) {
			return
		}
		if err != nil {
			s.over(s.w.close(s.f, s.side, s.come, c.read.Load(), s.truth(err)))
			return
		}
		if slow {
			s.w.Sleep(pauseBetween(r, p.readPauses))
		}
	}
}

// truth returns the error of a read. The kernel tells of a reset once: if this end's writer was told, the
// reader gets the end of the stream.
func (s *stream) truth(err error) error {
	c, ok := s.conn.(*net.TCPConn)
	if !ok || !errors.Is(err, io.EOF) {
		return err
	}
	arrived, cerr := finArrived(c, s.said+s.f.directions[s.come].read.Load())
	switch {
	case cerr != nil:
		return net.ErrClosed // by this end's writer, which has said why
	case !arrived:
		return syscall.ECONNRESET
	}
	return err
}

// finArrived reports whether the peer has ended its stream, of which all bytes have been read: the kernel
// counts a FIN like a byte. The error is that of a connection that is closed.
func finArrived(c *net.TCPConn, read int64) (arrived bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			arrived = info.Bytes_received != uint64(read)
		}
	})
	return arrived, errors.Join(err, cerr)
}

// deadline sets the deadline of a read, and returns p.
func (s *stream) deadline(p []byte) []byte {
	by := time.Now()
	other := s.f.shape.client
	if s.side == 0 {
		other = s.f.shape.upstream
	}
	if s.f.stop.After(by) && (other.quiet || other.early > 0 || s.f.shape.elder && s.f.via.Echo) {
		by = s.f.stop // nothing need come before
	}
	s.conn.SetReadDeadline(by.Add(Patience))
	return p
}

// check compares what has been read. If a byte is wrong it reads on for a moment, so that the bytes can
// say whose they are.
func (s *stream) check(p []byte, b *[2][128 * kib]byte) bool {
	c := &s.f.directions[s.come]
	at := c.read.Load()
	good, wrong := pattern.Compare(p, b[1][:], s.f.id, s.come, at)
	if good > 0 {
		if s.f.relaying.Load() == 0 {
			s.f.relaying.Store(time.Now().UnixNano())
		}
		s.f.moved(s.come, good)
		s.w.Tally.Count(BytesMoved, int64(good))
	}
	if wrong == nil {
		return true
	}
	if len(p)-good < 24 && len(p)+24 <= len(b[0]) {
		s.conn.SetReadDeadline(time.Now().Add(time.Second))
		n, _ := io.ReadAtLeast(s.conn, b[0][len(p):], 24)
		_, wrong = pattern.Compare(b[0][:len(p)+n], b[1][:], s.f.id, s.come, at)
	}
	switch {
	case wrong.Lost > 0:
		s.w.Tally.Count(bytesMissing, wrong.Lost)
	case wrong.Duplicate > 0:
		s.w.Tally.Count(bytesDuplicate, wrong.Duplicate)
	default:
		s.w.Tally.Count(bytesWrong, int64(len(p)-good))
	}
	s.w.Tally.show("%v: %v, offset %d, side %d: %s", s.f, s.come, wrong.Offset, s.side, wrong.Text)
	s.over(endFault)
	return false
}

// talk sends messages and waits for answers of the same length, or answers.
func (s *stream) talk() {
	p := s.f.shape.client
	sizes := s.w.Random(s.f.id, 7) // the same at both ends
	waits := pinger{begun: s.f.start}
	for i := 1; ; i++ {
		n := between(sizes, p.sizes[0], p.sizes[1])
		if s.side == 0 && s.late(0) {
			break
		}
		if s.side == 0 {
			s.w.allow(2 * n) // with the answer
		}
		sent := time.Now()
		if s.side == 0 && !s.put(n) {
			return
		}
		if ok, ended := s.exactly(n); !ok {
			return
		} else if ended {
			break
		}
		if s.side == 1 && !s.put(n) {
			return
		}
		if s.side == 1 {
			continue
		}
		s.w.Tally.Count(pings, 1)
		waits.answered(s.w, sent)
		if p.burst > 0 {
			s.w.Sleep(pauseBetween(s.rand, p.pauses))
		}
	}
	s.finish()
	if s.side == 0 {
		s.read(s.rand)
	}
}

// exactly reads n bytes, or, at an upstream and in front of a message, the end of the stream.
func (s *stream) exactly(n int) (ok, ended bool) {
	b := pieces.Get().(*[2][128 * kib]byte)
	defer pieces.Put(b)
	for left := n; left > 0; {
		m, err := s.conn.Read(s.deadline(b[0][:left]))
		if m > 0 && !s.check(b[0][:m], b) {
			return false, false
		}
		left -= m
		if err == nil {
			continue
		}
		at := s.f.directions[s.come].read.Load()
		e := s.w.close(s.f, s.side, s.come, at, s.truth(err))
		s.over(e)
		return e == endGood && s.side == 1, true
	}
	return true, false
}

// pinger measures how long a client waits because of a kill or an upgrade.
type pinger struct {
	begun   time.Time // the client
	seen    int64     // the last one whose pause was measured
	longest time.Duration
}

// answered is told of an answer to what was sent at a time. After a kill, the first answer to what was
// sent later ends the client's pause. Of an upgrade nobody outside knows the moment: the pause is the
// longest time that the client has waited for an answer meanwhile. A client that has come since waits for neither;
// its answer only says that the relay is back.
func (p *pinger) answered(w *World, sent time.Time) {
	one, number := w.Kills.last()
	if number == p.seen || number == 0 {
		return
	}
	pause := time.Since(one.at)
	if one.Plan {
		p.longest = max(p.longest, time.Since(sent))
		pause = p.longest
	}
	if one.dead.IsZero() || sent.Before(one.at) || one.Plan && sent.Before(one.dead) {
		return
	}
	p.seen, p.longest = number, 0
	if p.begun.Before(one.at) {
		w.Tally.pause(pause)
	}
	if w.firstAnswer.Swap(number) < number && !one.Plan {
		w.Tally.firstPause(pause)
	}
}
