//go:build linux

package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// flow is one stream flow, with what both of its ends know.
type flow struct {
	id    uint64
	shape *Shape
	via   *Place
	start time.Time
	stop  time.Time // when its writers finish

	local  net.Addr // of the client's socket
	header string   // the client's address as the PROXY header says it; "" if there is none

	relaying atomic.Int64             // when the upstream had the first byte, in ns since 1970; 0 before
	taken    atomic.Bool              // an upstream has it
	at       atomic.Pointer[Endpoint] // where, if that is a member of a registry
	lostOnce sync.Once
	resetBy  atomic.Int32 // 0: nobody; 1: the client; 2: the upstream

	upstreamDone chan struct{} // closed when the upstream is done; until then upstreamGood belongs to it
	upstreamGood bool

	directions [2]counts

	proven atomic.Int64 // index+1 of the last kill that the flow is known to have survived
}

const up, down = pattern.Up, pattern.Down

// counts are of one direction of a flow.
type counts struct {
	written atomic.Int64 // bytes given to the socket, or about to be
	read    atomic.Int64
	total   atomic.Int64 // how many bytes the direction has, set before it is shut down; -1 until then
	mark    atomic.Int64 // written when the worker died last; -1 if it has not
	kill    atomic.Int64 // index+1 of that kill
}

func (f *flow) String() string {
	age := time.Since(f.start).Round(time.Millisecond)
	return fmt.Sprintf("flow %d (%s, %s, %v old, client %v)", f.id, f.shape.name, f.via.Name, age, f.local)
}

// moved is told that n bytes of a direction have been read.
func (f *flow) moved(d pattern.Direction, n int) {
	c := &f.directions[d]
	read := c.read.Add(int64(n))
	// Bytes that were written after the worker had died were relayed by its successor.
	if mark := c.mark.Load(); mark >= 0 && read > mark {
		if k := c.kill.Load(); k > f.proven.Load() {
			f.proven.Store(k)
		}
	}
}

// died is told that the worker is dead: whatever is written from now on, another one relays.
func (f *flow) died(kill int64) {
	for d := range f.directions {
		c := &f.directions[d]
		c.kill.Store(kill)
		c.mark.Store(c.written.Load())
	}
}

// verdict is what an end of a flow saw last.
type verdict int

const (
	endGood  verdict = iota // the end of the stream, where it should be
	endReset                // a reset, which somebody made
	endEarly                // the flow was not settled when the worker died
	endFault                // anything else
)

// close is told how reading or writing at one end ended: err is io.EOF, or an error of the socket, and
// at is the offset. It reports a fault if that must not be.
func (w *World) close(f *flow, side int, d pattern.Direction, at int64, err error) verdict {
	c := &f.directions[d]
	switch {
	case errors.Is(err, io.EOF):
		if total := c.total.Load(); total == at {
			return endGood
		}
		if f.resetBy.Load() == 0 && f.via.unix(side) && w.excused(f) {
			// A Unix socket cannot say more than the end of the stream.
			w.early(f)
			return endEarly
		}
		lost := c.written.Load() - at
		w.Tally.Count(earlyEOF, 1)
		w.Tally.Count(bytesMissing, max(lost, 0))
		w.Tally.show("%v: %v: the stream ended at byte %d of %d, without an error", f, d, at, c.written.Load())
		return endFault
	case errors.Is(err, net.ErrClosed):
		return endReset // this end was closed by its other half, which has said why
	case f.resetBy.Load() != 0 && !errors.Is(err, os.ErrDeadlineExceeded):
		w.Tally.Count(resets, 1)
		return endReset
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.lostOnce.Do(func() { w.Tally.Count(FlowsLost, 1) })
		w.Tally.show("%v: %v: nothing moved for %v at byte %d of %d, side %d", f, d, Patience, at, c.written.Load(), side)
		return endFault
	case w.excused(f):
		w.early(f)
		return endEarly
	default:
		f.lostOnce.Do(func() { w.Tally.Count(FlowsLost, 1) })
		w.Tally.show("%v: %v: %v at byte %d of %d, side %d; relayed for %v, survived kill %d of %d", f, d, err, at, c.written.Load(), side, f.relayed(), f.proven.Load(), w.Kills.number())
		return endFault
	}
}

// relayed returns for how long the flow has been relayed.
func (f *flow) relayed() time.Duration {
	if at := f.relaying.Load(); at != 0 {
		return time.Since(time.Unix(0, at)).Round(time.Millisecond)
	}
	return 0
}

// early counts a flow that ended because it was not settled.
func (w *World) early(f *flow) {
	f.lostOnce.Do(func() { w.Tally.Count(unsettled, 1) })
}

// excused reports whether a kill may have ended the flow: one that came before it was settled, and that
// it is not known to have survived.
func (w *World) excused(f *flow) bool {
	var settled time.Time
	if at := f.relaying.Load(); at != 0 {
		settled = time.Unix(0, at).Add(w.KeepAfter + w.Slack)
	}
	return w.Kills.Between(f.start, settled, f.proven.Load())
}
