//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"golang.org/x/sys/unix"
)

// idlePiece is what an idle connection sends at a time, before it waits for the echo.
const idlePiece = 16 << 10

// runTLSIdle opens the connections, moves Size bytes to the sink and back on each, and reads the relay's memory before and after, as runIdle does.
func runTLSIdle(spec TLSSpec, cfg Config) (r Result, err error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return r, err
	}
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	open := func(n, files int) error {
		before := proc.Files(proc.Tree(cfg.Relay)...)
		for range n {
			c, err := spec.idle(to)
			if err != nil {
				return fmt.Errorf("connection %d: %w", len(all)+1, err)
			}
			all = append(all, c)
		}
		// Without a message, only its descriptors tell that the relay has connected to the upstream.
		return proc.Wait(fmt.Sprintf("the relay to have %d connections to its upstream", n), stall, func() bool { return proc.Files(proc.Tree(cfg.Relay)...) >= before+files })
	}
	// Two connections that ended a moment ago, the first ones, may be among those before.
	if err := open(8, 2*8-4); err != nil {
		return r, err
	}
	time.Sleep(cfg.Warm + 2*cfg.Window) // until what starting took is given back
	before, err := proc.MemoryOf(proc.Tree(cfg.Relay))
	if err != nil {
		return r, err
	}
	r.RSSBefore = before.RSS
	m := meter{cfg: cfg}
	if err := m.begin(); err != nil {
		return r, err
	}
	if err := open(spec.Conns, 2*spec.Conns-4); err != nil {
		return r, err
	}
	time.Sleep(cfg.Window)
	after, err := proc.MemoryOf(proc.Tree(cfg.Relay))
	if err != nil {
		return r, err
	}
	r.Ops, r.OnceKB = int64(spec.Conns), after.Once()-before.Once()
	return r, m.end(&r)
}

// idle opens one connection and uses it.
func (s TLSSpec) idle(to *unix.SockaddrInet4) (net.Conn, error) {
	c, _, err := s.dial(to)
	if err != nil || s.Size == 0 {
		return c, err
	}
	out, in := pattern(min(s.Size, idlePiece)), make([]byte, min(s.Size, idlePiece))
	for left := s.Size; left > 0 && err == nil; left -= len(out) {
		_, err = c.Write(out)
		if err == nil {
			_, err = io.ReadFull(c, in)
		}
		if err == nil && !bytes.Equal(in, out) {
			err = errors.New("the echo differs from what was sent")
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
