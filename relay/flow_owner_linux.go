package relay

import (
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// flowOwner is a loop's handler of flows: streams or datagrams, and what these do
// each in its own way. What they have in common is [tenant].
type flowOwner interface {
	loop.Handler
	base() *tenant

	// flow returns the flow in one of the owner's slots.
	flow(slot uint32) *Flow
	// kill ends f from outside.
	kill(f *Flow, c Cause)
	// timeoutsChanged is called when f has got other timeouts.
	timeoutsChanged(f *Flow)
	// mayDial reports whether f may still be connected to an upstream.
	mayDial(f *Flow) bool
	// startSniff makes Hooks.Sniff see what f's client sends, at most so many bytes, within this time.
	startSniff(f *Flow, most int, patience time.Duration) error
	// addPreface puts b in front of what f's upstream is sent, behind what was added before.
	addPreface(f *Flow, b []byte) error
	// limit returns the bound on f's bandwidth, for it to be changed; nil: it is
	// too late for that.
	limit(f *Flow) *pace

	// encoder returns what encodes the bytes of a pair given to Relay; nil: there is none.
	encoder(f *Flow) func(*hold.Encoder)

	// rate returns the bound on f's bandwidth in bytes a second; 0: there is none.
	rate(f *Flow) int64

	// prefaceOf returns what is in front of f's datagrams; nil: nothing.
	prefaceOf(f *Flow) *preface

	// nameOf returns what a proxy has said of f; nil: nothing.
	nameOf(f *Flow) *flowName

	// local returns the address at this host's end of the socket of either side, and
	// remote the one at the other end.
	local(f *Flow, side int) Addr
	remote(f *Flow, side int) Addr
	// tcp returns the descriptor of a side's socket, or -1 if that is not of TCP.
	tcp(f *Flow, side int) int
	// tls describes the TLS of a side; nil: there is none.
	tls(f *Flow, side int) *stats.TLS
	// transfer returns what a direction has moved.
	transfer(f *Flow, direction int) Transfer
	// describe completes what info has filled in.
	describe(f *Flow, i *FlowInfo)
}

// tenant is what streams and datagrams have in common. Each loop has one of either.
type tenant struct {
	loop        *loop.Loop
	shared      *shared
	keep        *keeping // nil without Config.Keep
	loopStats   *loopCounters
	descriptors *descriptors
	timeouts    *Timeouts    // the last that a flow was given other than its listener's
	info        sys.TCPInfo  // of the socket that was looked at last
	record      Record       // of the flow that ends
	address     sys.Sockaddr // of the client that was accepted last, or the upstream that was dialled last
	asked       sys.Sockaddr // of a socket that was asked for an address
	sources     int          // of DialConfig.Source, which are taken in turn
}

func (t *tenant) base() *tenant { return t }

// shared is what the flows of all loops have in common.
type shared struct {
	kernel  sys.Kernel
	cfg     Config
	start   time.Time
	buffers pool.Buffers
	holding *holding // nil without Config.Keep
}

// ownerOf returns the owner of the flow in a slot, or nil if the slot is free.
func ownerOf(l *loop.Loop, slot uint32) flowOwner {
	o, _ := l.Slots.Owner(slot).(flowOwner)
	return o
}
