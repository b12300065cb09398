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
func (s *streams) starve(f *streamFlow) {
	if f.hungUp {
		s.end(f, CauseClientGone, nil)
		return
	}
	f.state = streamStarved
	s.starved.push(starvedRef{f.ref(), s.loop.now})
	s.share.starved.Add(1)
	s.restPorts()
	s.rearm(f)
}

// turnStarved gives the flows that wait the descriptors that have become free.
func (s *streams) turnStarved() {
	for range starveBurst {
		if !s.feed {
			return
		}
		if s.starved.len() == 0 {
			s.feed = false
			return
		}
		w := s.starved.first()
		f := s.slab.find(w.ref)
		if f == nil || f.state != streamStarved {
			s.starved.pop() // it has ended
			continue
		}
		since := w.since
		f.state, f.since = streamConnecting, s.loop.now
		err := s.dial(f)
		if noDescriptors(err) && s.loop.now-since < starveMost {
			f.state = streamStarved
			s.feed = false
			s.restPorts()
			return
		}
		s.starved.pop()
		s.fed()
		switch {
		case err == nil:
			s.rearm(f)
		case noDescriptors(err):
			s.attemptFailed(f, err)
			s.end(f, CauseNoDescriptors, err)
		default:
			s.connectFailed(f, err)
		}
	}
}

// fed notes that a flow does not wait for a descriptor any more. With the last one
// all loops accept again.
func (s *streams) fed() {
	if s.share.starved.Add(-1) == 0 {
		s.freed()
	}
}
