//go:build !linux

package relay

import (
	"context"
	"errors"
	"net"
)

// Engine is a set of event loops and the flows that they carry; see the Linux
// documentation. Here New refuses to make one.
type Engine struct{}

// New returns [errors.ErrUnsupported].
func New(Config) (*Engine, error) { return nil, errors.ErrUnsupported }

// Relay returns [errors.ErrUnsupported]; both connections still belong to the caller.
func (*Engine) Relay(a, b net.Conn, opt Options) error { return errors.ErrUnsupported }

// Listen returns [errors.ErrUnsupported].
func (*Engine) Listen(Addr, ListenConfig) (*Listener, error) { return nil, errors.ErrUnsupported }

// Serve returns [errors.ErrUnsupported].
func (*Engine) Serve(net.Listener, ListenConfig) (*Listener, error) {
	return nil, errors.ErrUnsupported
}

// Stats tells nothing.
func (*Engine) Stats() Stats { return Stats{} }

// Drain does nothing.
func (*Engine) Drain(context.Context) error { return nil }

// End does nothing.
func (*Engine) End(func(*Flow) bool) {}

// Close does nothing.
func (*Engine) Close() error { return nil }

// Listener accepts clients for an engine.
type Listener struct{}

// Addr is the zero Addr.
func (*Listener) Addr() Addr { return Addr{} }

// Value is nil.
func (*Listener) Value() any { return nil }

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

// Local is the zero Addr.
func (*Flow) Local() Addr { return Addr{} }

// Upstream is nil.
func (*Flow) Upstream() *Addr { return nil }

// Value is nil.
func (*Flow) Value() any { return nil }

// SetValue does nothing.
func (*Flow) SetValue(any) {}
