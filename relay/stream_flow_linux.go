package relay

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

const (
	maxPipes     = 1 << 18 // each that may exist has a few bytes of memory
	defaultLowat = 192 << 10
	// lagWait is how long a tail below the low-water mark may wait.
	lagWait = time.Millisecond
	// failedDrain is how long the other side has to take what a side had sent before it
	// failed. The other side is not read from any more, and may be waiting for that.
	failedDrain = time.Second
)

// streamFlow is a flow of which both sides are stream sockets.
//
//	                          next upstream, at once or after a pause (retrying); or the same
//	                                 one, when there is a descriptor for it (short)
//	                                                 ┌──┐
//	                                                 ▼  │
//	admitting ─▶ sniffing ─▶ [securing] ─▶ connecting ─▶ [asking] ─▶ [securing] ─▶ relaying ─▶ ended
//	     │           │                     ▲    │ ▲          │            │
//	     └───────────┴─────────────────────┘    ▼ │◀─────────┴────────────┘
//	                                           queued
//
// It is asking while the upstream is to answer its preface, and securing while there is a TLS handshake: with the
// client, if it is terminated, and with the upstream, if it is originated. Before it goes on from sniffing, relays, or
// is turned away, it is replying while the client does not have all of its replies.
type streamFlow struct {
	Flow
	fd          [2]int32
	state       streamState
	wait        [2]pump.State // what each half waits for
	tcp         [2]bool
	odd         [2]bool // the side has hung up, or has urgent data: a short read says nothing
	muted       [2]bool // the side's IN is not watched: its half waits for the other side
	pending     bool    // the client was readable while the upstream was being connected
	inReady     bool
	inLagging   bool
	backlogFull bool           // the upstream's accept queue is full: the attempt is repeated at the next tick
	hungUp      bool           // the client has closed a Unix socket while there was no upstream
	ended       bool           // the client has ended its side meanwhile
	throttled   bool           // a half has used up its share of the bandwidth: it goes on at the next tick
	early       *earlyState    // nil: it needs none
	tls         *flowTLS       // nil: no side's TLS begins or ends here
	peer        netip.AddrPort // the client's, of TCP
	half        [2]pump.Half
}

type streamState uint8

const (
	streamAdmitting streamState = iota + 1
	streamRestored              // it did not relay yet in the process before, and begins again when all flows are restored
	streamSniffing
	streamReplying // the client is to take its replies before the flow goes on, or ends
	streamSecuring // in a TLS handshake
	streamChoosing // in Hooks.Upstream
	streamConnecting
	streamAsking   // the upstream is to answer; see Flow.Expect
	streamRetrying // waits before it connects again
	streamQueued
	streamShort // waits for a descriptor
	streamRelaying
)

// newFlow takes a slot for a new flow, which owns the sockets from now on.
func (s *streams) newFlow(state streamState, client, upstream int) *streamFlow {
	f, r := s.slab.Take()
	f.init(s, r, s.loop.Now)
	f.state = state
	f.fd = [2]int32{int32(client), int32(upstream)}
	if s.keep != nil {
		s.keep.begun(r)
	}
	return f
}

// stage returns the ErrStage of a method that is called in a hook that it is not for.
func (f *streamFlow) stage(method, works string) error {
	where := "of a stream that relays"
	switch f.state {
	case streamAdmitting:
		where = "in Hooks.Admit"
	case streamSniffing:
		where = "in Hooks.Sniff"
	case streamSecuring:
		where = "in Hooks.Secured"
	case streamChoosing, streamQueued:
		where = "in Hooks.Upstream"
	case streamConnecting:
		where = "in Hooks.Connected"
	case streamAsking:
		where = "in Hooks.Answered"
	}
	return stageError(method, where, works)
}

func (s *streams) mayDial(f *Flow) bool {
	sf := s.of(f)
	return sf.state != streamRelaying && !sf.connected()
}

// dstSide returns the side that half h writes to.
func (f *streamFlow) dstSide(h int) int {
	if f.echo {
		return h
	}
	return 1 - h
}

// endSide returns the side that is told when half h ends: the client is, when all was read that is discarded.
func (f *streamFlow) endSide(h int) int {
	if f.half[h].Sink {
		return h
	}
	return f.dstSide(h)
}

// over reports whether half h has ended or failed.
func (f *streamFlow) over(h int) bool { return f.wait[h] == pump.End || f.wait[h] == pump.Failed }

// complete reports whether the stream towards a side has ended well: its last byte was
// delivered, and its end was too or is by close(2). Any other side is reset, so that a
// stream that was cut short does not look complete; a Unix socket cannot reset its peer,
// which sees an end (docs/causes.md). A complete side is not reset, because that would
// destroy what its socket still has to send.
func (f *streamFlow) complete(side int) bool {
	for h := range f.half {
		if f.dstSide(h) == side && f.wait[h] == pump.End {
			return true
		}
	}
	return false
}

// connected reports whether the flow is in Hooks.Connected, with an upstream.
func (f *streamFlow) connected() bool { return f.state == streamConnecting && f.connect > 0 }

// makeReady puts the flow behind the others that are ready for another turn.
func (s *streams) makeReady(f *streamFlow) {
	if !f.inReady {
		f.inReady = true
		s.ready.push(f.ref())
	}
}

// causeOf returns the cause of a flow of which a side has failed with e.
func causeOf(side int, e sys.Errno) Cause {
	reset := e == sys.ECONNRESET || e == sys.EPIPE
	switch {
	case reset && side == sideClient:
		return CauseClientReset
	case reset:
		return CauseUpstreamReset
	case side == sideClient:
		return CauseClientFailed
	}
	return CauseUpstreamFailed
}
