//go:build linux

package load

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// handshakes is what the workers of a load share.
type handshakes struct {
	spec  TLSSpec
	addr  string
	stop  atomic.Bool
	count atomic.Bool // the window is open

	ids  atomic.Uint64
	warm atomic.Int64 // workers that have made two connections: the next one can resume

	mu      sync.Mutex
	all     latency // from connect to the echo
	shaken  latency
	resumed int64
}

// runHandshakes keeps Conns short connections in progress: connect, handshake, a message and its echo, close. The echo tells that
// the relay is done with the handshake, and comes behind the ticket.
func runHandshakes(spec TLSSpec, cfg Config) (r Result, err error) {
	h := &handshakes{spec: spec, addr: cfg.Addr}
	errc := make(chan error, spec.Conns)
	for range spec.Conns {
		go func() {
			err := h.work()
			h.stop.Store(err != nil || h.stop.Load())
			errc <- err
		}()
	}
	time.Sleep(cfg.Warm)
	for end := time.Now().Add(stall); int(h.warm.Load()) < spec.Conns && !h.stop.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	m := meter{cfg: cfg}
	err = m.begin()
	h.count.Store(true)
	time.Sleep(cfg.Window)
	for end := time.Now().Add(stall); h.done() == 0 && !h.stop.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the window lasts until there is something to see
	}
	h.count.Store(false)
	err = errors.Join(err, m.end(&r))
	h.stop.Store(true)
	for range spec.Conns {
		err = errors.Join(err, <-errc)
	}
	r.Ops, r.Resumed = int64(len(h.all)), h.resumed
	h.shaken.put(&r)
	r.Handshake = r.P50
	h.all.put(&r)
	switch {
	case err != nil:
	case r.Ops == 0:
		err = errors.New("no handshake was done in the window")
	case spec.Resume && r.Resumed < r.Ops*9/10:
		err = fmt.Errorf("%d of %d handshakes resumed", r.Resumed, r.Ops)
	case !spec.Resume && r.Resumed > 0:
		err = fmt.Errorf("%d of %d handshakes resumed, which none should", r.Resumed, r.Ops)
	}
	return r, err
}

func (h *handshakes) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// work makes connections until the load stops.
func (h *handshakes) work() error {
	config := h.spec.config()
	if h.spec.Resume {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(2)
	}
	msg, buf := make([]byte, h.spec.Size), make([]byte, h.spec.Size)
	for n := 0; !h.stop.Load(); n++ {
		if n == 2 {
			h.warm.Add(1)
		}
		fill(msg, h.ids.Add(1))
		if err := h.once(config, msg, buf); err != nil {
			return err
		}
	}
	return nil
}

func (h *handshakes) once(config *tls.Config, msg, buf []byte) error {
	start := time.Now()
	c, err := net.DialTimeout("tcp", h.addr, stall)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(start.Add(stall))
	shaken, resumed := time.Duration(0), false
	if !h.spec.Plain {
		began := time.Now()
		secured := tls.Client(c, config)
		defer secured.Close()
		if err := secured.Handshake(); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		shaken, resumed = time.Since(began), secured.ConnectionState().DidResume
		c = secured
	}
	if _, err := c.Write(msg); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		return fmt.Errorf("wait for the echo: %w", err)
	}
	if !bytes.Equal(msg, buf) {
		return errors.New("the echo differs from what was sent")
	}
	if !h.count.Load() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all.add(time.Since(start))
	h.shaken.add(shaken)
	if resumed {
		h.resumed++
	}
	return nil
}
