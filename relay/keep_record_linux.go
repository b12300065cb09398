package relay

import "github.com/penstock/penstock/internal/ledger"

// The flags of a record. Those of a side are shifted by the side, those of a half by the half.
const (
	recordHeld     = 1 << 0 // the sockets are held, or have been
	recordPair     = 1 << 1 // given to Relay
	recordEcho     = 1 << 2
	recordDiscard  = 1 << 3
	recordTCP      = 1 << 4  // side: a TCP socket
	recordRecvOne  = 1 << 6  // side: what is read from it is noted by a message header
	recordSendOne  = 1 << 8  // side: what is written to it is
	recordFinSent  = 1 << 10 // side: the end of the stream was passed on to it, or is about to be
	recordFailed   = 1 << 12 // half: a write failed, and the half carries nothing any more
	recordReset    = 1 << 14 // side: the end of the flow resets it
	recordSniffing = 1 << 16
	recordStale    = 1 << 17 // what the hooks have changed does not fit
	recordDamaged  = 1 << 18 // found by the next process
	recordNoBase   = 1 << 19 // half: its counters were too far from the kernel's
	recordUrgent   = 1 << 24 // side: urgent data has come: the kernel's counter may include bytes that no read returned
	recordDoubt    = 1 << 22 // side: the process may have taken an error from the Unix socket; found by the next process
	recordReplied  = 1 << 26 // a client that is sniffed was sent a reply
	recordOdd      = 1 << 21 // inconsistent with the kernel's counters, found by the next process
)

// The states of a record.
const (
	recordRelaying = 0
	recordEarly    = 2 // it does not relay yet
	recordFinal    = 1 // the flow's cause is final
)

// notedCause returns the cause that a record has noted, CauseNone if none was. One that this version does not have is
// CauseCrashed: the record is that of a later version, or damaged, and nobody knows why the flow ends.
func notedCause(r ledger.Record) Cause {
	c := Cause(r.Cause())
	if c >= causes || c == CauseNone && r.State() == recordFinal {
		return CauseCrashed
	}
	return c
}
