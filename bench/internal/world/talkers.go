//go:build linux

package world

import (
	"cmp"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/trial"
)

// Talkers are clients that keep their connections: each sends a message, wants the answer, rests, and does so again.
type Talkers struct {
	Size func(r *rand.Rand, i int) int    // of the i-th message
	Rest func(r *rand.Rand) time.Duration // from an answer until the next message
	Wait time.Duration                    // for an answer at most; 0: trial.Patience
	Told func(t *Talker, err error)       // if not nil: how a talker ended that did so by itself
	All  []*Talker

	marked atomic.Bool
	stop   chan struct{}
	work   sync.WaitGroup
}

// A Talker is one of them. Its connection is closed when it has ended.
type Talker struct {
	ID    uint64
	Conn  net.Conn
	Bytes atomic.Int64 // there and back

	mu    sync.Mutex
	waits []time.Duration // for answers, since the mark
	last  time.Time       // answer
	gap   time.Duration   // the longest time between two answers of which the second came since the mark
	err   error
	ended time.Time
}

// Begin makes another client talk, and returns it. The channel is told once of how its first message went.
func (s *Talkers) Begin(c net.Conn, first chan<- error) *Talker {
	if s.stop == nil {
		s.stop = make(chan struct{})
	}
	t := &Talker{ID: NextNumber(), Conn: c}
	s.All = append(s.All, t)
	s.work.Go(func() {
		defer c.Close()
		err := s.talk(t, first)
		if err == nil {
			return
		}
		t.mu.Lock()
		t.err, t.ended = err, time.Now()
		t.mu.Unlock()
		if s.Told != nil {
			s.Told(t, err)
		}
	})
	return t
}

// talk ends with one message more after the stop.
func (s *Talkers) talk(t *Talker, first chan<- error) error {
	var p message
	r := rand.New(rand.NewPCG(t.ID, 1))
	if _, err := t.Conn.Write(Preface(WantAnswer, t.ID)); err != nil {
		first <- err
		return err
	}
	var err error
	at, last := int64(0), false
	for i := 0; err == nil && !last; i++ {
		if i > 0 {
			last = wait(s.stop, s.Rest(r))
		}
		n, begun := s.Size(r, i), time.Now()
		t.Conn.SetDeadline(begun.Add(cmp.Or(s.Wait, trial.Patience)))
		if err = p.write(t.Conn, n, t.ID, pattern.Up, at); err == nil {
			_, err = p.read(t.Conn, t.ID, pattern.Down, at)
		}
		at += int64(n)
		if err == nil {
			t.answered(begun, n, s.marked.Load())
		}
		if i == 0 {
			first <- err
		}
	}
	return err
}

func (t *Talker) answered(begun time.Time, n int, marked bool) {
	now := time.Now()
	t.Bytes.Add(2 * int64(n))
	t.mu.Lock()
	defer t.mu.Unlock()
	if marked {
		t.waits = append(t.waits, now.Sub(begun))
		if !t.last.IsZero() {
			t.gap = max(t.gap, now.Sub(t.last))
		}
	}
	t.last = now
}

// Mark begins to measure, anew if it has begun.
func (s *Talkers) Mark() {
	s.marked.Store(true)
	for _, t := range s.All {
		t.mu.Lock()
		t.waits, t.gap = nil, 0
		t.mu.Unlock()
	}
}

// Ended returns when and how the talker ended by itself; a nil error means that it goes on.
func (t *Talker) Ended() (at time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended, t.err
}

// Measured returns what was measured since the mark: how long the talker waited for answers, and the longest time between two.
func (t *Talker) Measured() (waits []time.Duration, gap time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits, t.gap
}

// Stop ends all talkers, each after one message more, and returns when they have ended.
func (s *Talkers) Stop() {
	if s.stop != nil {
		close(s.stop)
	}
	s.work.Wait()
}

// wait waits for a time or for a stop, which it reports.
func wait(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return true
	case <-time.After(d):
		return false
	}
}
