package relay

import (
	"time"

	"github.com/penstock/penstock/internal/pump"
)

// Wrapper is a net.Conn around another one that changes nothing of its bytes:
// Relay reaches the socket inside through it.
type Wrapper = pump.Wrapper

// Path tells how a direction's bytes were moved.
type Path = pump.Path

// Why tells why a direction's bytes were not spliced.
type Why = pump.Why

// The data paths, and the reasons for the slower one.
const (
	PathNone   = pump.PathNone
	PathCopy   = pump.PathCopy
	PathSplice = pump.PathSplice
	PathGSO    = pump.PathGSO

	WhyNone    = pump.WhyNone
	WhySmall   = pump.WhySmall
	WhyOff     = pump.WhyOff
	WhyPipes   = pump.WhyPipes
	WhyKernel  = pump.WhyKernel
	WhyBuiltin = pump.WhyBuiltin
	WhySingle  = pump.WhySingle
)

// Transfer is what one direction has moved, in bytes. What Hooks.Sniff took away
// and what Flow.Preface put in front are no part of it.
type Transfer struct {
	Read    int64 // taken from the source
	Written int64 // accepted by the destination's socket
	Spliced int64 // of Written, what never was in user-space memory
	// Datagrams counts those of Written on a datagram flow, and Lost those that
	// were read and dropped, an empty one too.
	Datagrams, Lost int64
	Path            Path
	Why             Why // why not spliced, or not in runs
}

// Dropped tells how many bytes were read and could not be delivered.
func (t Transfer) Dropped() int64 { return t.Read - t.Written }

// Record is the account of one flow, made when it has ended.
type Record struct {
	ID       uint64    // unique in this engine
	Listener *Listener // nil for a pair given to Relay
	Value    any       // Flow.SetValue's or Options.Value
	A        Addr      // the client
	Peer     Addr      // A, or where Flow.SetClient was called the address that the socket has
	B        Addr      // the upstream that was connected or tried last
	Attempts int       // upstreams tried
	AB, BA   Transfer
	Start    time.Time
	Connect  time.Duration // from the start until B was connected; 0 if it never was
	// FirstByte is from when B was connected until its first byte; 0 if none came.
	FirstByte time.Duration
	Queued    time.Duration // of Connect, or of Duration where B never was connected: how long Hooks.Upstream had the flow wait
	Duration  time.Duration
	Cause     Cause
	Err       error // the system call's error where one is the cause
}
