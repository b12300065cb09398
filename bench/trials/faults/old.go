//go:build linux

package main

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
	"github.com/penstock/penstock/bench/internal/stat"
)

// oldFlows are the flows that are there before the fault, and know each of their bytes.
type oldFlows struct {
	w        *world
	streams  []*oldStream
	datagram []*oldDatagrams

	next     atomic.Uint64 // number of a flow
	stopping atomic.Bool
	all      sync.WaitGroup

	mu     sync.Mutex
	at     map[uint64]int            // flow -> member
	from   map[uint64]netip.AddrPort // datagram flow -> where the upstream sees it
	moved  map[uint64]bool           // datagram flows that were replaced
	counts bool                      // from the begin of the fault on
	wrong  int
	first  string
}

// oldStream is a stream flow, as its client knows it.
type oldStream struct {
	id    uint64
	conn  net.Conn
	bytes atomic.Int64

	mu    sync.Mutex
	pause time.Duration // longest, from the begin of the fault on
	err   error         // how it was lost
	ended time.Time
}

// oldDatagrams is a datagram flow, as its client knows it.
type oldDatagrams struct {
	id   uint64
	conn net.Conn

	mu       sync.Mutex
	sent     map[uint64]time.Time // not answered yet
	asked    int                  // from the begin of the fault on
	answered int
	waits    []time.Duration
}

func newOldFlows(w *world) *oldFlows {
	return &oldFlows{w: w, at: make(map[uint64]int), from: make(map[uint64]netip.AddrPort), moved: make(map[uint64]bool)}
}

// begin starts flows, and returns when each has had an answer.
func (o *oldFlows) begin(streams, datagrams int) error {
	first := make(chan error, streams+datagrams)
	for range streams {
		s := &oldStream{id: o.next.Add(1)}
		c, err := net.DialTimeout("tcp", relayAddr(streamPort), patience)
		if err != nil {
			return fmt.Errorf("old flow: %w", err)
		}
		s.conn = c
		o.streams = append(o.streams, s)
		o.all.Go(func() { o.talk(s, first) })
	}
	for range datagrams {
		f := &oldDatagrams{id: o.next.Add(1), sent: make(map[uint64]time.Time)}
		c, err := net.Dial("udp", relayAddr(streamPort))
		if err != nil {
			return fmt.Errorf("old datagram flow: %w", err)
		}
		f.conn = c
		o.datagram = append(o.datagram, f)
		o.all.Go(func() { o.send(f) })
		o.all.Go(func() { o.receive(f, first) })
	}
	end := time.After(patience)
	for range streams + datagrams {
		select {
		case err := <-first:
			if err != nil {
				return fmt.Errorf("before the fault: %w", err)
			}
		case <-end:
			return fmt.Errorf("before the fault: not all old flows are answered after %v", patience)
		}
	}
	return nil
}

// mark begins to count; what happened before was not the fault's.
func (o *oldFlows) mark() {
	o.mu.Lock()
	o.counts = true
	o.mu.Unlock()
	for _, f := range o.datagram {
		f.mu.Lock()
		f.asked, f.answered, f.waits = 0, 0, nil
		clear(f.sent)
		f.mu.Unlock()
	}
	for _, s := range o.streams {
		s.mu.Lock()
		s.pause = 0
		s.mu.Unlock()
	}
}

func (o *oldFlows) talk(s *oldStream, first chan<- error) {
	defer s.conn.Close()
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	r := rand.New(rand.NewPCG(s.id, 1))
	_, err := s.conn.Write(preface(wantEcho, s.id))
	var at int64
	for i := 0; err == nil && !o.stopping.Load(); i++ {
		n := 1 + r.IntN(2000)
		if i%8 == 3 {
			n = 1 + r.IntN(maxMessage)
		}
		start := time.Now()
		if err = writeMessage(s.conn, p, n, s.id, pattern.Up, at); err == nil {
			_, err = readMessage(s.conn, p, s.id, pattern.Down, at)
		}
		at += int64(n)
		s.mu.Lock()
		s.pause = max(s.pause, time.Since(start))
		s.mu.Unlock()
		if err == nil {
			s.bytes.Add(2 * int64(n))
			o.w.sleep(time.Duration(8+r.IntN(24)) * time.Millisecond)
		}
		if i == 0 {
			first <- err
		}
	}
	if err != nil && !o.stopping.Load() {
		s.mu.Lock()
		s.err, s.ended = err, time.Now()
		s.mu.Unlock()
		o.fault(s.id, err)
	}
}

// fault is told how an end of a flow ended; only wrong bytes matter here.
func (o *oldFlows) fault(id uint64, err error) {
	if !errors.Is(err, errWrong) && !errors.Is(err, pattern.ErrDatagram) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrong++; o.first == "" {
		o.first = err.Error()
	}
}

// tell is told by a member that it has a flow.
func (o *oldFlows) tell(id uint64, at int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at[id] = at
}

// arrive is told by a member of a datagram. One from another address says that the relay has begun the
// flow anew.
func (o *oldFlows) arrive(id uint64, from netip.AddrPort, at int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, ok := o.from[id]; ok && before != from && o.counts {
		o.moved[id] = true
	}
	o.from[id] = from
	if _, ok := o.at[id]; !ok {
		o.at[id] = at
	}
}

func (o *oldFlows) send(f *oldDatagrams) {
	r := rand.New(rand.NewPCG(f.id, 2))
	b := make([]byte, 1400)
	for number := uint64(1); !o.stopping.Load(); number++ {
		size := pattern.DatagramHeader + r.IntN(len(b)-pattern.DatagramHeader)
		f.mu.Lock()
		f.sent[number] = time.Now()
		f.asked++
		f.mu.Unlock()
		f.conn.Write(pattern.MakeDatagram(b[:size], f.id, number, pattern.Up)) // an ICMP error is one of an earlier datagram
		o.w.sleep(time.Duration(10+r.IntN(20)) * time.Millisecond)
	}
}

func (o *oldFlows) receive(f *oldDatagrams, first chan<- error) {
	b := make([]byte, 2048)
	said := false
	for {
		f.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := f.conn.Read(b)
		if err != nil {
			if o.stopping.Load() {
				return
			}
			continue
		}
		id, number, d, err := pattern.ReadDatagram(b[:n])
		if err == nil && (id != f.id || d != pattern.Down) {
			err = fmt.Errorf("%w: flow %d got %d of flow %d, %v", pattern.ErrDatagram, f.id, number, id, d)
		}
		if err != nil {
			o.fault(f.id, err)
			continue
		}
		f.mu.Lock()
		if at, ok := f.sent[number]; ok {
			f.answered++
			f.waits = append(f.waits, time.Since(at))
			delete(f.sent, number)
		}
		f.mu.Unlock()
		if !said {
			said = true
			first <- nil
		}
	}
}

// settle waits until each stream that is not lost has moved since it was called, for at most a time. It
// returns those that have not.
func (o *oldFlows) settle(limit time.Duration) (still map[uint64]bool) {
	before := make([]int64, len(o.streams))
	for i, s := range o.streams {
		before[i] = s.bytes.Load()
	}
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		still = make(map[uint64]bool)
		for i, s := range o.streams {
			s.mu.Lock()
			if s.err == nil && s.bytes.Load() == before[i] {
				still[s.id] = true
			}
			s.mu.Unlock()
		}
		if len(still) == 0 || time.Now().After(end) {
			return still
		}
	}
}

// finish ends all flows and tells what happened to them. It is given those that stand still.
func (o *oldFlows) finish(hit map[int]bool, from time.Time, still map[uint64]bool) (r old) {
	o.stopping.Store(true)
	close(o.w.over)
	for _, s := range o.streams {
		if still[s.id] {
			s.conn.Close()
		} else {
			s.conn.SetDeadline(time.Now().Add(patience))
		}
	}
	o.all.Wait()
	for _, f := range o.datagram {
		f.conn.Close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Wrong, r.FirstWrong, r.Replaced, r.Datagrams = o.wrong, o.first, 0, len(o.datagram)
	for _, s := range o.streams {
		r.Bytes += s.bytes.Load()
		lost, stalled, pause := &r.Lost, &r.Stalled, &r.Pause
		if hit[o.at[s.id]] {
			r.Hit++
			lost, stalled, pause = &r.HitLost, &r.HitStalled, &r.HitPause
		} else {
			r.Streams++
		}
		switch {
		case still[s.id]:
			*stalled++
		case s.err != nil:
			*lost++
			if r.FirstLost == "" {
				r.FirstLost = s.err.Error()
			}
			if hit[o.at[s.id]] {
				r.HitEnd = max(r.HitEnd, inMillis(s.ended.Sub(from)))
			}
		default:
			*pause = max(*pause, inMillis(s.pause))
		}
	}
	var waits []time.Duration
	for _, f := range o.datagram {
		if hit[o.at[f.id]] {
			r.Datagrams--
			continue
		}
		if o.moved[f.id] {
			r.Replaced++
		}
		r.Sent, r.Answered = r.Sent+f.asked, r.Answered+f.answered
		waits = append(waits, f.waits...)
	}
	_, p99, _ := stat.Waits(waits)
	r.P99 = inMillis(p99)
	return r
}
