package relay

import (
	"errors"
	"fmt"
	"time"
)

var errNoSniffHook = errors.New("relay: StartSniff without Hooks.Sniff")

// StartSniff, called in Hooks.Admit, makes the engine show what the client sends to
// Hooks.Sniff before it asks for an upstream. Each time that more bytes of a stream have
// arrived, the hook is called with all of them that it has not taken away. The slice is
// valid during the call and must not be written to.
//
// The hook returns the number of bytes to take away from the head, such as the length
// of a PROXY header, and what to do next. After SniffMore it is called again when there
// is more to show; if it has taken some bytes, at once with the rest. After SniffDone
// the flow goes on to Hooks.Upstream, and the bytes that were not taken away are sent
// to the upstream first.
//
// The argument last is true if there will be no more bytes: there are max of them,
// timeout has passed (0 means 5 seconds), or the client has ended its side.
// SniffMore then means SniffRefuse, unless the hook has taken bytes away. A client that
// has ended its side can still be connected to an upstream and receive its answer.
//
// The hook of a stream may itself call StartSniff, and return SniffMore, to set other bounds; timeout then
// begins anew. So it can decide about a client that is silent for a while, or go on waiting. This has no effect
// once the client has ended its side or sent max bytes.
//
// The engine holds at most max bytes, in a buffer that grows as they arrive.
//
// Of a datagram flow, the hook is called with each datagram once; the first one is there
// already. After SniffMore the datagram is held, or dropped if take is more than 0. After
// SniffDone all that are held go to the upstream, in their order, and then this one. The
// argument last is true with the datagram that makes them max bytes or more, where an empty
// one counts as a byte, and when timeout has passed; b is nil then. If many flows hold
// datagrams, the engine drops further ones, as a network may, or ends the flow that was
// silent for longest.
//
// Sniff of a datagram flow may itself call StartSniff, and so may Hooks.Decode, whatever the bounds are: the hook goes on being
// called once the flow has an upstream, with the first datagram of each batch that the client sends, which nothing holds up
// and nothing takes away, until it returns something other than SniffMore. So it can see that the client goes on with
// another connection ID of QUIC, and Hooks.Answered, which sees what the upstream sends, from whom the client has that.
//
// StartSniff returns [ErrStage] in another hook, and an error if there is no Hooks.Sniff or max is not positive.
func (f *Flow) StartSniff(max int, timeout time.Duration) error {
	switch {
	case f.owner == nil:
		return stageError("StartSniff", "of no flow", admitOnly)
	case f.cfg.Hooks.Sniff == nil:
		return errNoSniffHook
	case max <= 0:
		return fmt.Errorf("relay: StartSniff of at most %d bytes", max)
	}
	if timeout <= 0 {
		timeout = defaultSniff
	}
	return f.owner.startSniff(f, max, timeout)
}

// admitOnly is what StartSniff is for.
const admitOnly = "Hooks.Admit"
