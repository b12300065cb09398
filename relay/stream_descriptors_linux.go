package relay

import (
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// If there is no descriptor left for its upstream, a flow waits for one: neither it nor
// the upstream is at fault, and other flows end. No loop accepts meanwhile, so that the
// descriptors that become free go to the flows that wait, in their order, and later clients
// stay in the accept queue. Otherwise the client that took the last descriptor would be
// reset, and so would the next one.

const (
	// starveMost is how long a flow waits for a descriptor, at least. If the waiting
	// flows hold all descriptors themselves, some of them have to end.
	starveMost = time.Second
	// starveBurst is how many flows are tried before others have their turn.
	starveBurst = 32
)

// starvedRef is a flow that waits for a descriptor, and since when.
type starvedRef struct {
	ref
	since time.Duration
}

// noDescriptors reports whether err means that the process or the system has no
// descriptor left.
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

// turnStarved dials for the flows that wait for a descriptor, as long as there are any.
func (s *streams) turnStarved() {
	for range starveBurst {
		if !s.retryStarved {
			return
		}
		if s.starved.len() == 0 {
			s.retryStarved = false
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
			s.retryStarved = false
			s.restPorts()
			return
		}
		s.starved.pop()
		s.unstarved()
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

// unstarved notes that a flow does not wait for a descriptor any more. If it was the last
// one, all loops accept again.
func (s *streams) unstarved() {
	if s.share.starved.Add(-1) == 0 {
		s.freed()
	}
}
