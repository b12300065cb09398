//go:build linux

package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// Senders are clients that send datagrams, each from one socket.
type Senders struct {
	Size  func(r *rand.Rand) int
	Rest  func(r *rand.Rand) time.Duration // between two datagrams, or from an answer until the next one
	Wait  time.Duration                    // for the answer, before the next one; 0: not at all
	Wrong func(error)                      // if not nil: is told of an answer that is somebody else's, or has a wrong byte
	All   []*Sender

	stopped   atomic.Bool // nothing more is awaited
	stop      chan struct{}
	sending   sync.WaitGroup
	receiving sync.WaitGroup
	mu        sync.Mutex
	from      map[uint64]netip.AddrPort // where upstreams see each come from
	moved     map[uint64]bool           // those that came from elsewhere since the mark
	marked    bool
}

// A Sender is one of them.
type Sender struct {
	ID   uint64
	conn net.Conn
	got  chan uint64 // the number of the newest answer, unless it was taken

	mu       sync.Mutex
	number   uint64
	sent     map[uint64]time.Time // not answered yet
	asked    int                  // since the mark
	answered int
	repeated int    // answers to what was answered before
	marked   uint64 // the number of the last datagram before the mark
	waits    []time.Duration
}

// Begin makes another client send. The channel is told once, of its first answer.
func (s *Senders) Begin(c net.Conn, first chan<- error) {
	if s.stop == nil {
		s.stop, s.from, s.moved = make(chan struct{}), make(map[uint64]netip.AddrPort), make(map[uint64]bool)
	}
	f := &Sender{ID: NextNumber(), conn: c, got: make(chan uint64, 1), sent: make(map[uint64]time.Time)}
	s.All = append(s.All, f)
	s.sending.Go(func() { s.send(f) })
	s.receiving.Go(func() { s.receive(f, first) })
}

func (s *Senders) send(f *Sender) {
	r := rand.New(rand.NewPCG(f.ID, 2))
	b := make([]byte, 2048)
	for over := false; !over; over = wait(s.stop, s.Rest(r)) {
		number := f.sendOne(b[:s.Size(r)])
		if s.Wait > 0 {
			f.answeredBy(number, s.Wait)
		}
	}
}

// answeredBy waits until a datagram, or one after it, is answered, and reports whether it is.
func (f *Sender) answeredBy(number uint64, within time.Duration) bool {
	late := time.After(within)
	for {
		select {
		case n := <-f.got:
			if n >= number {
				return true
			}
		case <-late:
			return false
		}
	}
}

func (f *Sender) sendOne(b []byte) (number uint64) {
	f.mu.Lock()
	f.number++
	number = f.number
	f.sent[number] = time.Now()
	f.asked++
	f.mu.Unlock()
	f.conn.Write(pattern.MakeDatagram(b, f.ID, number, pattern.Up)) // an ICMP error is one of an earlier datagram
	return number
}

func (s *Senders) receive(f *Sender, first chan<- error) {
	b := make([]byte, 2048)
	said := false
	for {
		f.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := f.conn.Read(b)
		if err != nil {
			if s.stopped.Load() {
				return
			}
			continue
		}
		id, number, d, err := pattern.ReadDatagram(b[:n])
		if err == nil && (id != f.ID || d != pattern.Down) {
			err = fmt.Errorf("%w: flow %d got %d of flow %d, %v", pattern.ErrDatagram, f.ID, number, id, d)
		}
		if err != nil {
			if s.Wrong != nil {
				s.Wrong(err)
			}
			continue
		}
		f.mu.Lock()
		if at, ok := f.sent[number]; ok {
			f.answered++
			f.waits = append(f.waits, time.Since(at))
			delete(f.sent, number)
		} else if number > f.marked {
			f.repeated++
		}
		f.mu.Unlock()
		select {
		case <-f.got:
		default:
		}
		f.got <- number // nobody else sends there
		if !said {
			said = true
			first <- nil
		}
	}
}

// Arrive is told by an upstream of a datagram. One from another address says that the relay has begun the flow anew.
func (s *Senders) Arrive(id uint64, from netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.from[id]; ok && before != from && s.marked {
		s.moved[id] = true
	}
	if s.from != nil {
		s.from[id] = from
	}
}

// Moved reports whether a flow came from elsewhere since the mark.
func (s *Senders) Moved(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved[id]
}

// Mark begins to measure; what happened before does not count.
func (s *Senders) Mark() {
	s.mu.Lock()
	s.marked = true
	s.mu.Unlock()
	for _, f := range s.All {
		f.mu.Lock()
		f.asked, f.answered, f.repeated, f.waits, f.marked = 0, 0, 0, nil, f.number
		clear(f.sent)
		f.mu.Unlock()
	}
}

// Measured returns how many datagrams were sent and answered since the mark, and how long the answers took.
func (f *Sender) Measured() (asked, answered int, waits []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked, f.answered, f.waits
}

// Repeated returns how many answers came again since the mark.
func (f *Sender) Repeated() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.repeated
}

// LastIsAnswered sends one more datagram, and reports whether it, or one after it, is answered within a time.
func (f *Sender) LastIsAnswered(size int, within time.Duration) bool {
	return f.answeredBy(f.sendOne(make([]byte, size)), within)
}

// Pause ends the sending; answers are still received.
func (s *Senders) Pause() {
	if s.stop != nil {
		close(s.stop)
	}
	s.sending.Wait()
}

// Stop waits for the last answers, and closes the sockets. It follows Pause.
func (s *Senders) Stop() {
	s.stopped.Store(true)
	s.receiving.Wait()
	for _, f := range s.All {
		f.conn.Close()
	}
}

// AnswerDatagrams answers each datagram with one of the same length, until the socket is closed. It tells the senders where they
// come from.
func AnswerDatagrams(c *net.UDPConn, s *Senders) {
	b := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error
		}
		if id, number, d, err := pattern.ReadDatagram(b[:n]); err == nil && d == pattern.Up {
			s.Arrive(id, from)
			c.WriteToUDPAddrPort(pattern.MakeDatagram(b[:n], id, number, pattern.Down), from)
		}
	}
}
