package relay

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
)

const (
	defaultAfter = time.Second
	// settleBurst is how many flows are settled in one turn of the loop.
	settleBurst = 120
	// Flows are settled together whose time comes within a part of Keep.After, or settleTogether.
	settleParts    = 8
	settleTogether = 250 * time.Millisecond
	// settleFirst and settleMost are the first and the longest pause after the holder has failed.
	settleFirst = 100 * time.Millisecond
	settleMost  = 10 * time.Second
)

// lingerUnsettled has a TCP socket that nobody has said a good end for reset by close(2). A process that
// dies closes the sockets of the flows that are not settled, and their peers must not take that for the
// end of the stream.
const lingerUnsettled = true

// keeping is what a loop does so that its flows outlive the process. It belongs to the loop's
// goroutine.
//
//	         Keep.After            Holder.Flush
//	relaying ──────────▶ published ────────────▶ kept ─▶ ending ─▶ dropped
//	    ▲                    │
//	    └────────────────────┘ the holder fails: after a pause
//
// A record is published before the holder is asked to hold the flow's sockets, and is freed before
// the holder is asked to drop them. So sockets that are held without a record are those of a flow
// that has ended.
type keeping struct {
	holding *holding
	ledger  *ledger.Ledger
	key     holdKey // of the ledger
	turn    ledger.Turn
	note    *pump.Note
	slots   *loop.Slots
	stats   *loopCounters
	index   int           // the loop's
	after   time.Duration // see Keep.After; not negative
	base    int64         // CLOCK_MONOTONIC at the engine's start
	newest  uint32        // the highest generation of all slots

	unsettled queue[unsettledRef] // flows that are not settled yet, by time
	retry     time.Duration       // until when nothing is settled
	pause     time.Duration       // the last pause
	batch     []hold.Held
	refs      []ref
	fds       [settleBurst][2]int
	encoder   hold.Encoder
	text      []byte // of addrText and timeouts
	failure   error  // of the holder, at the last attempt

	// Of the process before: the sockets of flows by their keys, which Restore takes out.
	earlier map[holdKey][]int
	at      uint32          // the slot that is restored next
	older   map[uint32]bool // slots of datagram flows whose clients have newer ones
	// When one of its datagram flows carried something last, as records have it.
	lastActive uint32
}

// unsettledRef is a flow, and when it is to be settled.
type unsettledRef struct {
	ref
	at time.Duration
}

// verdict is what settle says about a flow.
type verdict uint8

const (
	settleNow   verdict = iota
	settleLater         // try again
	settleNever         // the flow ends with its process
)

// settler is a handler whose flows can be settled.
type settler interface {
	// settle fills in the record of a flow, and the sockets that are to be held, of which those
	// that do not exist are -1.
	settle(slot uint32, r ledger.Record, fds *[2]int) verdict
	// settled is called when the sockets are held.
	settled(slot uint32)
}

// flowKey is the key of a flow's sockets.
func (k *keeping) flowKey(r ref) holdKey {
	return newHoldKey(holdFlow, k.index, uint64(r.Slot), uint64(r.Gen))
}

// add has a flow settled when it is time. Flows that began one after the other are settled together: to
// wake up for each of them, and to wake up the holder, would take longer than all the rest.
func (k *keeping) add(r ref, now time.Duration) {
	at := now + k.after
	if together := min(k.after/settleParts, settleTogether); together > 0 {
		at -= at % together // rather sooner than later
	}
	k.unsettled.push(unsettledRef{r, at})
}

// begun notes the generation of a new flow, so that the next process does not use it again.
func (k *keeping) begun(r ref) {
	if r.Gen > k.newest {
		k.newest = r.Gen
		k.turn.SetNewest(r.Gen)
	}
}

// until returns when the next flow is to be settled.
func (k *keeping) until() time.Duration {
	if k.unsettled.len() == 0 {
		return never
	}
	return max(k.unsettled.first().at, k.retry, 1) // 0 would mean at once, again and again
}

// settleSome settles the flows whose time has come.
func (k *keeping) settleSome(now time.Duration) {
	if now >= k.retry {
		k.settle(now, false)
	}
}

// settle settles the next flows, early that is before their time. It reports false if the holder has
// failed.
func (k *keeping) settle(now time.Duration, early bool) bool {
	k.batch, k.refs = k.batch[:0], k.refs[:0]
	for range min(k.unsettled.len(), settleBurst) {
		if k.unsettled.first().at > now && !early {
			break
		}
		r := k.unsettled.pop().ref
		h, ok := k.slots.Find(r).(settler)
		if !ok || int(r.Slot) >= k.ledger.Slots() {
			continue
		}
		n := len(k.batch)
		switch h.settle(r.Slot, k.ledger.Begin(r.Slot), &k.fds[n]) {
		case settleNow:
			k.ledger.Publish(r.Slot, r.Gen)
			fds := k.fds[n][:]
			if fds[0] < 0 { // there is nothing to hold
				k.stats.Kept++
				h.settled(r.Slot)
				continue
			}
			if fds[1] < 0 {
				fds = fds[:1]
			}
			k.batch = append(k.batch, hold.Held{Key: k.flowKey(r), FDs: fds})
			k.refs = append(k.refs, r)
		case settleLater:
			k.unsettled.push(unsettledRef{r, now + max(k.after, tick)})
		case settleNever:
		}
	}
	if len(k.batch) == 0 {
		return true
	}
	if k.failure = k.holding.hold(k.batch...); k.failure != nil {
		k.pause = min(max(2*k.pause, settleFirst), settleMost)
		k.retry = now + k.pause
		for _, r := range k.refs {
			k.free(r.Slot)
			k.stats.KeepErrors++
			k.unsettled.push(unsettledRef{r, now})
		}
		return false
	}
	k.pause = 0
	for _, r := range k.refs {
		k.stats.Kept++
		k.slots.Find(r).(settler).settled(r.Slot)
	}
	return true
}

// settleAll settles all flows that can be. A holder that is busy is asked again for a while: what is not
// held now ends with the process. It reports false if the holder has failed for that long.
func (k *keeping) settleAll(now time.Duration) bool {
	last := k.holding.kernel.Now().Add(settleLast)
	for n := k.unsettled.len(); n > 0; n -= settleBurst {
		for !k.settle(now, true) {
			if k.holding.kernel.Now().After(last) {
				return false
			}
			k.holding.kernel.Sleep(time.Millisecond)
		}
	}
	return true
}

// settleLast bounds how long a loop that hands over waits for a holder that is busy.
const settleLast = time.Second

// free frees the record of a flow and its blob.
func (k *keeping) free(slot uint32) {
	k.ledger.Free(slot)
	k.ledger.SetBlob(k.ledger.Record(slot), nil)
}

// end is called when a flow that was kept has ended: its record is free, its sockets are closed.
func (k *keeping) end(r ref) { k.holding.drop(k.forget(r)) }

// forget frees the record of a flow that was kept, and returns the key of its sockets, which are still
// held.
func (k *keeping) forget(r ref) holdKey {
	k.stats.Kept--
	k.free(r.Slot)
	return k.flowKey(r)
}

// Intern implements [hold.Strings]. There may be ever new addresses and names; without one of these a flow's
// bytes are longer, but without its listener's name the flow is not kept.
func (k *keeping) Intern(s string) (uint32, bool) { return k.ledger.InternMore(s) }

// Text implements [hold.Strings].
func (k *keeping) Text(n uint32) (string, bool) { return k.ledger.String(n) }

// newKeeping makes what a loop needs; l is an earlier process's ledger, or nil. The descriptors in
// earlier belong to it.
func newKeeping(on *loop.Loop, h *holding, cfg *hold.Keep, base int64, l *ledger.Ledger, key holdKey) (*keeping, error) {
	if l == nil {
		var err error
		if l, err = ledger.Create(ledger.Config{Kernel: h.kernel, Loop: on.Index, Made: sys.MonotonicAt(h.kernel.Now())}); err != nil {
			return nil, fmt.Errorf("relay: make ledger: %w", err)
		}
		key = newHoldKey(holdLedger, on.Index, uint64(on.Index), key[1]+1)
		if err := h.hold(hold.Held{Key: key, Label: "ledger", FDs: []int{l.FD()}}); err != nil {
			l.Close()
			return nil, fmt.Errorf("relay: hold ledger: %w", err)
		}
	}
	stats, err := ledger.StatsOf[loopCounters](l)
	if err != nil {
		return nil, fmt.Errorf("relay: counters: %w", err)
	}
	stats.resetGauges()
	after := cfg.After
	if after == 0 {
		after = defaultAfter
	}
	k := &keeping{
		holding: h, ledger: l, key: key, turn: l.Turn(), note: pump.NewNote(l), slots: &on.Slots, stats: stats,
		index: on.Index, base: base, after: max(after, 0),
		earlier: make(map[holdKey][]int),
	}
	k.newest = k.turn.Newest()
	k.encoder.Share(k)
	return k, nil
}

// close ends the keeping when no flow is left.
func (k *keeping) close() {
	k.releaseEarlier()
	k.holding.drop(k.key)
	k.ledger.Close()
}
