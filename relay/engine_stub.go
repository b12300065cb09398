//go:build !linux

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/overload"
	"github.com/penstock/penstock/relay/stats"
)

// Engine is a set of event loops and the flows that they carry. It is documented for
// Linux (GOOS=linux go doc). On this system New returns an error.
type Engine struct{}

// New returns [errors.ErrUnsupported].
func New(cfg Config) (*Engine, error) { return nil, errors.ErrUnsupported }

// Relay returns [errors.ErrUnsupported]. Both connections still belong to the caller.
func (*Engine) Relay(a, b net.Conn, cfg PairConfig) error { return errors.ErrUnsupported }

// Listen returns [errors.ErrUnsupported].
func (*Engine) Listen(addr Addr, cfg ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// ListenOn returns [errors.ErrUnsupported].
func (*Engine) ListenOn(inherited net.Listener, cfg ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// ListenOnPacket returns [errors.ErrUnsupported].
func (*Engine) ListenOnPacket(inherited net.PacketConn, cfg ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// Flows does not call yield.
func (*Engine) Flows(yield func([]FlowInfo) bool) {}

// Flow returns false.
func (*Engine) Flow(id uint64) (FlowInfo, bool) { return FlowInfo{}, false }

// Kill returns false.
func (*Engine) Kill(id uint64, c Cause) bool { return false }

// Stats returns the zero Engine of package stats.
func (*Engine) Stats() stats.Engine { return stats.Engine{} }

// Overload returns what does nothing.
func (*Engine) Overload() overload.Control { return overloadControl{} }

// overloadControl implements [overload.Control].
type overloadControl struct{}

func (overloadControl) Set(overload.State)                          {}
func (overloadControl) Shed(overload.Shedding) (shed overload.Shed) { return shed }
func (overloadControl) Trim()                                       {}
func (overloadControl) MemoryUse() (use overload.MemoryUse)         { return use }

// Restore returns [errors.ErrUnsupported].
func (*Engine) Restore(cfg RestoreConfig) (hold.Restored, error) {
	return hold.Restored{}, errors.ErrUnsupported
}

// HandOver returns [errors.ErrUnsupported].
func (*Engine) HandOver(ctx context.Context) error { return errors.ErrUnsupported }

// Drain returns nil.
func (*Engine) Drain(ctx context.Context) error { return nil }

// Close returns nil.
func (*Engine) Close() error { return nil }

// Listener accepts clients for an engine.
type Listener struct{}

// Addr returns the zero Addr.
func (*Listener) Addr() Addr { return Addr{} }

// Degraded returns nil.
func (*Listener) Degraded() error { return nil }

// Value returns nil.
func (*Listener) Value() any { return nil }

// Update returns [errors.ErrUnsupported].
func (*Listener) Update(cfg ListenConfig) error { return errors.ErrUnsupported }

// Close returns nil.
func (*Listener) Close() error { return nil }

// Flow is one client and its upstream.
type Flow struct{}

// ID returns 0.
func (*Flow) ID() uint64 { return 0 }

// Listener returns nil.
func (*Flow) Listener() *Listener { return nil }

// Client returns the zero Addr.
func (*Flow) Client() Addr { return Addr{} }

// SetClient does nothing.
func (*Flow) SetClient(a Addr) {}

// Peer returns the zero Addr.
func (*Flow) Peer() Addr { return Addr{} }

// SetDial returns [ErrStage].
func (*Flow) SetDial(d *DialConfig) error { return ErrStage }

// Local returns the zero Addr.
func (*Flow) Local() Addr { return Addr{} }

// Upstream returns nil.
func (*Flow) Upstream() *Addr { return nil }

// UpstreamLocal returns the zero Addr.
func (*Flow) UpstreamLocal() Addr { return Addr{} }

// Transfers returns zero Transfers.
func (*Flow) Transfers() (toUpstream, toClient Transfer) { return }

// Value returns nil.
func (*Flow) Value() any { return nil }

// SetValue does nothing.
func (*Flow) SetValue(v any) {}

// ClientEnded returns false.
func (*Flow) ClientEnded() bool { return false }

// StartSniff returns [ErrStage].
func (*Flow) StartSniff(max int, timeout time.Duration) error { return ErrStage }

// Terminate returns [ErrStage].
func (*Flow) Terminate(cfg *tls.Config) error { return ErrStage }

// Originate returns [ErrStage].
func (*Flow) Originate(cfg *tls.Config) error { return ErrStage }

// Reply returns [ErrStage].
func (*Flow) Reply(b []byte) error { return ErrStage }

// Expect returns [ErrStage].
func (*Flow) Expect(answer []byte) error { return ErrStage }

// Preface returns [ErrStage].
func (*Flow) Preface(b []byte) error { return ErrStage }

// Timeouts returns the zero Timeouts.
func (*Flow) Timeouts() Timeouts { return Timeouts{} }

// SetTimeouts does nothing.
func (*Flow) SetTimeouts(t Timeouts) {}

// SetBandwidth returns [ErrStage].
func (*Flow) SetBandwidth(bytesPerSecond int64) error { return ErrStage }

// Changed does nothing.
func (*Flow) Changed() {}

// Queue returns [ErrStage].
func (*Flow) Queue() error { return ErrStage }

// Ref returns the zero FlowRef.
func (*Flow) Ref() FlowRef { return FlowRef{} }

// FlowRef identifies one flow.
type FlowRef struct{}

// Resume does nothing.
func (FlowRef) Resume() {}
