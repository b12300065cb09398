//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/world"
)

// oldFlows are the flows that are there before the fault, and know each of their bytes.
type oldFlows struct {
	w         *testbed
	streams   world.Talkers
	datagrams world.Senders

	mu    sync.Mutex
	at    map[uint64]int // flow -> member
	wrong int
	first string
}

func newOldFlows(w *testbed) *oldFlows {
	o := &oldFlows{w: w, at: make(map[uint64]int)}
	o.streams.Size = func(r *rand.Rand, i int) int {
		if i%8 == 3 {
			return 1 + r.IntN(world.MaxMessage)
		}
		return 1 + r.IntN(2000)
	}
	o.streams.Rest = func(r *rand.Rand) time.Duration { return time.Duration(8+r.IntN(24)) * time.Millisecond }
	o.streams.Told = func(_ *world.Talker, err error) { o.fault(err) }
	o.datagrams.Size = func(r *rand.Rand) int { return pattern.DatagramHeader + r.IntN(1400-pattern.DatagramHeader) }
	o.datagrams.Rest = func(r *rand.Rand) time.Duration { return time.Duration(10+r.IntN(20)) * time.Millisecond }
	o.datagrams.Wrong = o.fault
	return o
}

// begin starts flows, and returns when each has had an answer.
func (o *oldFlows) begin(streams, datagrams int) error {
	first := make(chan error, streams+datagrams)
	for range streams {
		c, err := net.DialTimeout("tcp", relayAddr(streamPort), patience)
		if err != nil {
			return fmt.Errorf("old flow: %w", err)
		}
		o.streams.Begin(c, first)
	}
	for range datagrams {
		c, err := net.Dial("udp", relayAddr(streamPort))
		if err != nil {
			return fmt.Errorf("old datagram flow: %w", err)
		}
		o.datagrams.Begin(c, first)
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
	o.datagrams.Mark()
	o.streams.Mark()
}

// fault is told how an end of a flow ended; only wrong bytes matter here.
func (o *oldFlows) fault(err error) {
	if !errors.Is(err, world.ErrWrong) && !errors.Is(err, pattern.ErrDatagram) {
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

// arrive is told by a member of a datagram.
func (o *oldFlows) arrive(id uint64, from netip.AddrPort, at int) {
	o.datagrams.Arrive(id, from)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.at[id]; !ok {
		o.at[id] = at
	}
}

// settle waits until each stream that is not lost has moved since it was called, for at most a time. It
// returns those that have not.
func (o *oldFlows) settle(limit time.Duration) (still map[uint64]bool) {
	before := make([]int64, len(o.streams.All))
	for i, s := range o.streams.All {
		before[i] = s.Bytes.Load()
	}
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		still = make(map[uint64]bool)
		for i, s := range o.streams.All {
			if _, lost := s.Ended(); lost == nil && s.Bytes.Load() == before[i] {
				still[s.ID] = true
			}
		}
		if len(still) == 0 || time.Now().After(end) {
			return still
		}
	}
}

// finish ends all flows and tells what happened to them. It is given those that stand still.
func (o *oldFlows) finish(hit map[int]bool, from time.Time, still map[uint64]bool) (r old) {
	over := time.Now()
	close(o.w.over)
	for _, s := range o.streams.All {
		if still[s.ID] {
			s.Conn.Close()
		}
	}
	o.datagrams.Pause()
	o.streams.Stop()
	o.datagrams.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Wrong, r.FirstWrong, r.Datagrams = o.wrong, o.first, len(o.datagrams.All)
	for _, s := range o.streams.All {
		r.Bytes += s.Bytes.Load()
		lost, stalled, pause := &r.Lost, &r.Stalled, &r.Pause
		if hit[o.at[s.ID]] {
			r.Hit++
			lost, stalled, pause = &r.HitLost, &r.HitStalled, &r.HitPause
		} else {
			r.Streams++
		}
		ended, err := s.Ended()
		switch {
		case still[s.ID]:
			*stalled++
		case err != nil && ended.Before(over):
			*lost++
			if r.FirstLost == "" {
				r.FirstLost = err.Error()
			}
			if hit[o.at[s.ID]] {
				r.HitEnd = max(r.HitEnd, inMillis(ended.Sub(from)))
			}
		default:
			waits, _ := s.Measured()
			*pause = max(*pause, inMillis(slices.Max(append(waits, 0))))
		}
	}
	var waits []time.Duration
	for _, f := range o.datagrams.All {
		if hit[o.at[f.ID]] {
			r.Datagrams--
			continue
		}
		if o.datagrams.Moved(f.ID) {
			r.Replaced++
		}
		sent, answered, took := f.Measured()
		r.Sent, r.Answered = r.Sent+sent, r.Answered+answered
		waits = append(waits, took...)
	}
	_, p99, _ := stat.Waits(waits)
	r.P99 = inMillis(p99)
	return r
}
