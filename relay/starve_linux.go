package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A flow that finds no descriptor for its upstream waits for one: the fault is
// neither its own nor the upstream's, and other flows end. Meanwhile no loop
// accepts, so that the descriptors that become free go to the clients that are
// there already, in their order, and the others wait in the accept queue. A
// client that took the last descriptor would otherwise be reset, and the next one too.

const (
	// starveMost is how long a flow waits for a descriptor, at least. Where those
	// who wait hold all descriptors themselves, some of them have to give up.
	starveMost = time.Second
	// starveBurst is how many flows are tried before others have their turn.
	starveBurst = 32
)

// starvedRef is a flow that waits for a descriptor, and since when it does.
type starvedRef struct {
	ref
	since time.Duration
}

// noDescriptors reports whether err says that the process or the system has no descriptor left.
func noDescriptors(err error) bool { return err == sys.EMFILE || err == sys.ENFILE }

// starve has f wait for a descriptor.
func (l *loop) starve(f *Flow) {
	if f.hungUp {
		l.end(f, CauseClientGone, nil)
		return
	}
	f.state = flowStarved
	l.starved.push(starvedRef{f.ref(), l.now})
	l.engine.starved.Add(1)
	l.restListeners()
	l.rearm(f)
}

// turnStarved gives the flows that wait the descriptors that have become free.
func (l *loop) turnStarved() {
	for range starveBurst {
		if !l.feed {
			return
		}
		if l.starved.len() == 0 {
			l.feed = false
			return
		}
		w := l.starved.first()
		f := l.slab.find(w.ref)
		if f == nil || f.state != flowStarved {
			l.starved.pop() // it has ended
			continue
		}
		since := w.since
		f.state, f.since = flowConnecting, l.now
		err := l.dial(f)
		if noDescriptors(err) && l.now-since < starveMost {
			f.state = flowStarved
			l.feed = false
			l.restListeners()
			return
		}
		l.starved.pop()
		l.fed()
		switch {
		case err == nil:
			l.rearm(f)
		case noDescriptors(err):
			l.attemptFailed(f, err)
			l.end(f, CauseNoDescriptors, err)
		default:
			l.connectFailed(f, err)
		}
	}
}

// fed notes that a flow does not wait for a descriptor any more. With the last one
// all loops accept again.
func (l *loop) fed() {
	if l.engine.starved.Add(-1) == 0 {
		l.wakeResting()
	}
}
