package relay

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/flood"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// init sets the limits of an engine that may have this many descriptors, and later as many as now has.
func (sh *datagramShare) init(cfg *Config, files uint64, now *atomic.Int64) {
	sh.maxFlows, sh.files = int64(cfg.MaxDatagramFlows), now
	sh.inUse = inUseTime
	sh.ownMost = ownMost
	sh.restTime, sh.restLeast = restTime, restLeast
	sh.maxResting = max(1, int(min(files/restShare, restMost))/cfg.Loops)
	sh.settings.New = func() *datagramSettings { return new(datagramSettings) }
}

// newDatagrams makes the datagrams of a loop, and adds them to the loop and the share.
func newDatagrams(t tenant, share *datagramShare) *datagrams {
	cfg := &t.shared.cfg
	d := &datagrams{
		tenant: t,
		share:  share,
		gso:    !cfg.NoGSO && feature.GSO.Err() == nil,
		gro:    !cfg.NoGRO && feature.GRO.Err() == nil,
		stats:  &t.loopStats.Datagrams,
		tick:   -1,
	}
	d.slab.Init(&t.loop.Slots, d)
	d.unnamed.SetUnnamed()
	const ticks = int(time.Second / tick) // per second
	switch n := cfg.MaxNewDatagramFlows; {
	case n < 0:
		d.perTick = math.MaxInt
	case n == 0:
		d.perTick = defaultNewFlows / ticks
	default:
		d.perTick = max(1, n/ticks)
	}
	d.floodControl = flood.New(cfg.MaxNewDatagramFlows < 0)
	t.loop.Add(d)
	share.all = append(share.all, d)
	return d
}

// Event is called with the readiness of an upstream's socket, or of a flow's own one towards its client. It may
// be that of the upstream before, if an earlier event of the same wait has taken the flow to another
// one: the next socket then has nothing to read, and a built-in upstream has no socket.
func (d *datagrams) Event(slot uint32, side int, ev uint32) {
	f := d.slab.At(slot)
	if side == sideClient {
		d.receiveOwn(f)
		return
	}
	if f.builtin() {
		return
	}
	gen := f.gen
	if f.kept {
		d.noteBegin(f)
		defer d.noteEnd(f, gen)
	}
	if ev&sys.Out != 0 && f.held != nil {
		d.release(f)
		if !f.alive(gen) {
			return
		}
	}
	if ev&(sys.In|sys.Err|sys.Hup) != 0 {
		d.readUpstream(f)
	}
}

// Turn ends a turn of the loop: what was gathered leaves.
func (d *datagrams) Turn() (more bool) {
	d.flushReplies()
	d.closeRests()
	for _, r := range d.finished {
		if f := d.slab.Find(r); f != nil && f.full() {
			d.end(f, CauseAnswered, nil)
		}
	}
	d.finished = d.finished[:0]
	d.noteAll()
	d.turnStopping()
	d.turnEmpty()
	more, d.unread, d.beginning = d.unread, false, 0
	d.checkInvariants()
	return more
}

func (d *datagrams) Until() time.Duration {
	if d.rests.len() > 0 {
		return d.rests.first().until
	}
	return never
}

// Due looks at a flow whose timer came up, which may be early. Timers come up when the end of the turn has noted what flows have
// moved: one that ends may send what has waited in its port for other clients, too.
func (d *datagrams) Due(slot uint32) {
	d.timedOut(d.slab.At(slot))
	d.noteAll()
}

func (d *datagrams) timedOut(f *datagramFlow) {
	switch dl := d.deadline(f); {
	case dl.cause == CauseNone, dl.at > d.loop.Seen:
	case dl.cause == CauseRefused:
		d.showEnd(f)
		return
	default:
		d.end(f, dl.cause, nil)
		return
	}
	if f.verified {
		d.knows(f) // still
	}
	d.rearm(f)
}

// Request does nothing: what is asked of datagrams by a request without a closure is to
// resume a flow, and theirs are never queued.
func (d *datagrams) Request(*loop.Request) {}

// Freed is called when a descriptor has become free: no datagram flow waits for one.
func (d *datagrams) Freed() {}

// Spare closes a socket that rests, and reports whether there was one.
func (d *datagrams) Spare() bool { return d.spareRest() }

// Close ends all flows and ports, and all rests.
func (d *datagrams) Close() {
	d.slab.Each(func(f *datagramFlow) { d.end(f, CauseClosed, nil) })
	for _, p := range slices.Clone(d.ports) {
		d.unlisten(p)
	}
	for d.rests.len() > 0 {
		d.closeRest()
	}
}

// HandOver leaves the flows to the next process, and has the sockets held that rest. What flows hold for
// upstreams whose sockets are full is dropped.
func (d *datagrams) HandOver() {
	d.keep.settleAll(d.loop.Now)
	d.loop.Now = d.loop.Clock() // it may have waited for the holder
	d.flushReplies()
	d.slab.Each(func(f *datagramFlow) {
		if !f.kept {
			d.end(f, CauseCrashed, nil)
			return
		}
		d.dropHeld(f, stats.DropEnded)
		if f.pending > 0 {
			f.port.out.forget(f)
		}
	})
	d.noteAll()
	var all []hold.Held
	for range d.rests.len() {
		r := d.rests.pop()
		d.rests.push(r) // closeHeld needs it
		if !r.held && r.key != (holdKey{}) {
			all = append(all, hold.Held{Key: r.key, FDs: []int{r.fd}})
		}
		if len(all) == settleBurst {
			d.keep.holding.hold(all...)
			all = all[:0]
		}
	}
	d.keep.holding.hold(all...) // if that fails, the ports are somebody else's sooner
}
