package relay

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/loop"
)

// The sides of a flow.
const (
	sideClient   = 0
	sideUpstream = 1
)

// The directions of a flow. A stream's half h reads from side h.
const (
	up   = 0 // from the client to the upstream
	down = 1 // from the upstream to the client
)

// attemptsAtOnce is how many attempts to connect follow each other at once.
// Hooks.Upstream documents it.
const attemptsAtOnce = 8

// The bits of Flow.one, of streams, shifted by a side.
const (
	oneRecv      = 1 << 0 // see streamFlow.recvOne
	oneSend      = 1 << 2 // see streamFlow.sendOne
	oneInner     = 1 << 4 // see streamFlow.inner
	oneKernelTLS = 1 << 6 // see flowTLS.kernel
)

// Flow is one client and its upstream. A hook may use the Flow that it is given until
// it returns, and must not keep it.
type Flow struct {
	slot, gen uint32
	attempts  uint16
	cause     Cause // already known, while the flow still delivers
	kept      bool  // it has a record, and its sockets are held: it outlives the process
	one       uint8 // see oneRecv
	straight  bool  // streams: all that was taken from the client has counted, nothing else went to the upstream, and both are plain TCP, if TCP
	echo      bool  // the upstream is built in: what comes goes back
	reserved  uint8 // descriptors that were taken from the budget for it
	owner     flowOwner
	listener  *Listener     // nil for an adopted pair
	cfg       *ListenConfig // what the listener had when the flow began; nil for an adopted pair
	dialing   *DialConfig   // SetDial's; nil: cfg.Dial
	client    *Addr         // SetClient's; nil: the peer is the client
	to        *Addr         // the upstream; of an adopted pair what its peer was, where a record needs it
	timeouts  *Timeouts     // shared, and never written to
	value     any
	err       error
	start     time.Duration // since the engine's start, as all times here
	since     time.Duration // the start of the present attempt, or of the wait for one
	connect   time.Duration // from the start until the upstream was connected
	firstByte time.Duration // see Record.FirstByte
	queued    time.Duration // how long it was queued
	active    time.Duration // when something moved last, or the end or the failure of a direction was seen
}

// init makes f the flow of r, which begins now.
func (f *Flow) init(o flowOwner, r ref, now time.Duration) {
	f.owner, f.slot, f.gen = o, r.Slot, r.Gen
	f.start, f.since, f.active = now, now, now
}

// inherit makes f a flow of a listener, with what that has now.
func (f *Flow) inherit(ln *Listener) {
	f.listener, f.cfg = ln, ln.cfg.Load()
	f.timeouts = &f.cfg.Timeouts
}

// alive reports whether the flow is still the one that had generation gen.
func (f *Flow) alive(gen uint32) bool { return f.gen == gen && gen != 0 }

func (f *Flow) ref() ref { return ref{Slot: f.slot, Gen: f.gen} }

// ID returns the flow's ID, which is unique in the engine. It is never 0, and a flow that outlives the process keeps it.
func (f *Flow) ID() uint64 { return flowID(f.owner.base().loop.Index, f.ref()) }

// Listener returns the listener that accepted the client, or nil for a pair given to
// Relay.
func (f *Flow) Listener() *Listener { return f.listener }

// Client returns the client's address: the one given to SetClient, or else the remote
// address of the client's socket. A Unix client usually has no path.
func (f *Flow) Client() Addr {
	if f.client != nil {
		return *f.client
	}
	return f.Peer()
}

// SetClient sets the client's address, for instance to one from a PROXY header. Client,
// the record and [DialConfig].FromClient use it.
func (f *Flow) SetClient(a Addr) {
	f.client = new(Addr)
	*f.client = a
}

// Peer returns the remote address of the client's socket.
func (f *Flow) Peer() Addr {
	return f.owner.remote(f, sideClient)
}

// SetDial sets how to connect to upstreams, from the next attempt on; nil restores
// ListenConfig.Dial. It is usually called in Hooks.Upstream. The flow keeps d until it
// ends, and *d must not change. SetDial returns [ErrStage] if a stream is already
// connected.
func (f *Flow) SetDial(d *DialConfig) error {
	if f.owner == nil || !f.owner.mayDial(f) {
		return stageError("SetDial", "of a stream that is connected", "hooks before that")
	}
	f.dialing = d
	return nil
}

// stageError returns an ErrStage with words: what was called, where, and what it is for.
func stageError(method, where, works string) error {
	return fmt.Errorf("%w: Flow.%s %s; it is for %s", ErrStage, method, where, works)
}

// Local returns the address that the client connected or wrote to. On a stream it makes
// a system call.
func (f *Flow) Local() Addr {
	return f.owner.local(f, sideClient)
}

// Upstream returns the address that is connected or was tried last. It returns nil
// before the first attempt, and for a pair given to Relay.
func (f *Flow) Upstream() *Addr {
	if f.listener == nil {
		return nil
	}
	return f.to
}

// UpstreamLocal returns the local address of the connection to the upstream, or of the socket that sends to it. It is
// the zero Addr while there is none, and for a built-in upstream. It makes a system call.
func (f *Flow) UpstreamLocal() Addr {
	return f.owner.local(f, sideUpstream)
}

// Transfers returns what the flow has transferred so far, as its [Record] will have it.
func (f *Flow) Transfers() (toUpstream, toClient Transfer) {
	return f.owner.transfer(f, up), f.owner.transfer(f, down)
}

// Value returns the value given to SetValue, or nil.
func (f *Flow) Value() any {
	return f.value
}

// SetValue keeps v with the flow. It is part of the flow's [Record] and [FlowInfo].
func (f *Flow) SetValue(v any) {
	f.value = v
}

// FlowRef identifies one flow and is never reused. Unlike a *Flow it may be kept
// after a hook has returned, and it may be compared.
type FlowRef struct {
	owner flowOwner
	ref   ref
}

// Ref returns a reference to the flow.
func (f *Flow) Ref() FlowRef { return FlowRef{f.owner, f.ref()} }

// Resume calls Hooks.Upstream again for a flow that [Flow.Queue] has queued, soon
// and on the flow's loop. It may be called from any goroutine and in any hook. It
// does nothing if the flow is not queued.
func (r FlowRef) Resume() {
	if r.owner != nil {
		r.owner.base().loop.Post(loop.Request{To: r.owner, Ref: r.ref})
	}
}
