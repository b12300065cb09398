//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
)

// A relayed speaks TLS on one connection to the runner, until both directions have ended.
type relayed func(runner *net.TCPConn) (tls.ConnectionState, error)

// names are the TLS stacks: crypto/tls alone, an engine, and an engine that gives the keys to the kernel.
var names = []string{"gotls", "engine", "kernel"}

var stacks = map[string]func(*shim) (relayed, func(), error){
	"gotls":  (*shim).alone,
	"engine": func(s *shim) (relayed, func(), error) { return s.engine(nil) },
	"kernel": func(s *shim) (relayed, func(), error) {
		s.config = hold.TLSInKernel(s.config)
		return s.engine(&hold.Keep{After: -1, Holder: everything{}})
	},
}

// alone is what crypto/tls does.
func (s *shim) alone() (relayed, func(), error) {
	first := true
	return func(runner *net.TCPConn) (tls.ConnectionState, error) {
		c := tls.Client(runner, s.config)
		if s.server {
			c = tls.Server(runner, s.config)
		}
		err := c.Handshake()
		if err == nil {
			err = s.echo(c, first)
		}
		first = false
		if err == nil {
			c.Close()
		}
		drain(runner)
		return c.ConnectionState(), err
	}, func() {}, nil
}

// engine has an engine between the runner and an echo: the client is the runner, and its TLS ends in the engine, or the upstream is,
// and its TLS begins there.
func (s *shim) engine(keep *hold.Keep) (relayed, func(), error) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	e, err := relay.New(relay.Config{Loops: 1, Keep: keep})
	if err != nil {
		return nil, nil, err
	}
	to, err := relay.ParseAddr("tcp://" + far.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	over, states := make(chan error, 1), make(chan tls.ConnectionState, 1)
	hooks := relay.Hooks{
		Upstream: func(_ *relay.Flow, attempt int) *relay.Addr {
			if attempt > 0 {
				return nil
			}
			return &to
		},
		Secured: func(_ *relay.Flow, _ relay.Side, state *tls.ConnectionState, _ time.Duration, err error) relay.Cause {
			if err == nil {
				states <- *state
			}
			return relay.CauseNone
		},
		Done: func(r *relay.Record) {
			if c, u := r.ClientTLS, r.UpstreamTLS; c != nil && c.Kernel || u != nil && u.Kernel {
				s.noteKernel()
			}
			if r.Cause != relay.CauseEnd {
				over <- fmt.Errorf("%v: %w", r.Cause, errors.Join(r.Err, errEnded))
				return
			}
			over <- nil
		},
	}
	if s.server {
		hooks.Admit = func(f *relay.Flow) relay.Cause {
			if f.StartSniff(1, patience) != nil {
				return relay.CauseRefused
			}
			return relay.CauseNone
		}
		hooks.Sniff = func(f *relay.Flow, _ []byte, _ bool) (int, relay.SniffNext) {
			f.Terminate(s.config)
			return 0, relay.SniffDone
		}
	} else {
		hooks.Connected = func(f *relay.Flow, _ *relay.Addr, _ time.Duration, err error) {
			if err == nil {
				f.Originate(s.config)
			}
		}
	}
	l, err := e.Listen(relay.Addr{Network: relay.TCP, AddrPort: localhost}, relay.ListenConfig{Hooks: hooks})
	if err != nil {
		return nil, nil, err
	}
	first := true
	return func(runner *net.TCPConn) (state tls.ConnectionState, err error) {
		defer func() { first = false }()
		near, err := net.Dial("tcp", l.Addr().AddrPort.String())
		if err != nil {
			return state, err
		}
		secured, plain := near.(*net.TCPConn), make(chan *net.TCPConn, 1)
		accept := func() {
			c, err := far.Accept()
			if err == nil {
				plain <- c.(*net.TCPConn)
			}
		}
		tell := func(c *net.TCPConn) { s.echo(c, first); c.Close() }
		if s.server { // the echo is the upstream
			go func() { accept(); tell(<-plain) }()
		} else {
			go tell(secured)
			accept()
			secured = <-plain
		}
		joined := make(chan struct{})
		go func() { join(runner, secured); close(joined) }()
		select {
		case err = <-over:
		case <-time.After(patience):
			return state, errors.New("the flow has not ended")
		}
		<-joined
		select {
		case state = <-states:
		default:
		}
		return state, err
	}, func() { e.Close(); far.Close() }, nil
}

var errEnded = errors.New("the flow has not ended well")

// join passes bytes and ends between the runner and the engine as they are. When one of them takes no more, what the other sends is
// read all the same, so that no reset overtakes an alert.
func join(runner, engine *net.TCPConn) {
	done := make(chan struct{})
	go func() { pass(runner, engine); close(done) }()
	pass(engine, runner)
	<-done
	runner.Close()
	engine.Close()
}

func pass(to, from *net.TCPConn) {
	io.Copy(to, from)
	to.CloseWrite()
	io.Copy(io.Discard, from)
}

// drain reads what the runner still sends, so that no reset overtakes an alert.
func drain(runner *net.TCPConn) {
	runner.CloseWrite()
	io.Copy(io.Discard, runner)
	runner.Close()
}

// everything is a holder that says yes and holds nothing: the process lives as long as its flows.
type everything struct{}

func (everything) Hold([2]uint64, string, []int) error { return nil }
func (everything) Drop([2]uint64)                      {}
func (everything) Flush() error                        { return nil }
