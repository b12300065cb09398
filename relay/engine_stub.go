//go:build !linux

package relay

import (
	"context"
	"errors"
	"net"
	"time"
)

// Engine is a set of event loops and the flows that they carry; see the Linux
// documentation. Here New refuses to make one.
type Engine struct{}

// New returns [errors.ErrUnsupported].
func New(Config) (*Engine, error) { return nil, errors.ErrUnsupported }

// Relay returns [errors.ErrUnsupported]; both connections still belong to the caller.
func (*Engine) Relay(a, b net.Conn, opt PairConfig) error { return errors.ErrUnsupported }

// Listen returns [errors.ErrUnsupported].
func (*Engine) Listen(Addr, ListenConfig) (*Listener, error) { return nil, errors.ErrUnsupported }

// ListenOn returns [errors.ErrUnsupported].
func (*Engine) ListenOn(net.Listener, ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// ListenOnPacket returns [errors.ErrUnsupported].
func (*Engine) ListenOnPacket(net.PacketConn, ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// Flows tells nothing.
func (*Engine) Flows(func([]FlowInfo) bool) {}

// Flow tells nothing.
func (*Engine) Flow(uint64) (FlowDetail, bool) { return FlowDetail{}, false }

// Kill does nothing.
func (*Engine) Kill(uint64, Cause) bool { return false }

// Stats tells nothing.
func (*Engine) Stats() Stats { return Stats{} }

// Drain does nothing.
func (*Engine) Drain(context.Context) error { return nil }

// Close does nothing.
func (*Engine) Close() error { return nil }

// Listener accepts clients for an engine.
type Listener struct{}

// Addr is the zero Addr.
func (*Listener) Addr() Addr { return Addr{} }

// Value is nil.
func (*Listener) Value() any { return nil }

// Update returns [errors.ErrUnsupported].
func (*Listener) Update(ListenConfig) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Flow is one client and its upstream.
type Flow struct{}

// ID is 0.
func (*Flow) ID() uint64 { return 0 }

// Listener is nil.
func (*Flow) Listener() *Listener { return nil }

// Client is the zero Addr.
func (*Flow) Client() Addr { return Addr{} }

// SetClient does nothing.
func (*Flow) SetClient(Addr) {}

// Peer is the zero Addr.
func (*Flow) Peer() Addr { return Addr{} }

// SetDial returns [ErrStage].
func (*Flow) SetDial(*DialConfig) error { return ErrStage }

// Local is the zero Addr.
func (*Flow) Local() Addr { return Addr{} }

// Upstream is nil.
func (*Flow) Upstream() *Addr { return nil }

// Value is nil.
func (*Flow) Value() any { return nil }

// SetValue does nothing.
func (*Flow) SetValue(any) {}

// ClientEnded is for Linux.
func (*Flow) ClientEnded() bool { return false }

// StartSniff returns [ErrStage].
func (*Flow) StartSniff(max int, timeout time.Duration) error { return ErrStage }

// Preface returns [ErrStage].
func (*Flow) Preface(b []byte) error { return ErrStage }

// Timeouts is the zero Timeouts.
func (*Flow) Timeouts() Timeouts { return Timeouts{} }

// SetTimeouts does nothing.
func (*Flow) SetTimeouts(Timeouts) {}

// SetBandwidth returns [ErrStage].
func (*Flow) SetBandwidth(bytesPerSecond int64) error { return ErrStage }

// Queue returns [ErrStage].
func (*Flow) Queue() error { return ErrStage }

// Ref returns the zero FlowRef.
func (*Flow) Ref() FlowRef { return FlowRef{} }

// FlowRef identifies one flow.
type FlowRef struct{}

// Resume does nothing.
func (FlowRef) Resume() {}
