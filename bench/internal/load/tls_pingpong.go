//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// runTLSPingPong keeps one message in flight on every connection, from one thread.
func runTLSPingPong(spec TLSSpec, cfg Config) (Result, error) {
	runtime.LockOSThread()
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	poll, err := newPoller()
	if err != nil {
		return Result{}, err
	}
	type pinger struct {
		net.Conn
		msg  []byte
		sent time.Time
	}
	ps := make([]pinger, spec.Conns)
	buf := make([]byte, spec.Size)
	var ids uint64
	ping := func(p *pinger) error {
		ids++
		fill(p.msg, ids)
		p.sent = time.Now()
		_, err := p.Write(p.msg)
		return err
	}
	// What comes behind an echo in the same read, such as a ticket, waits in crypto/tls, without an event: the next echo is.
	pong := func(p *pinger) error {
		if _, err := io.ReadFull(p, buf); err != nil {
			return err
		}
		if !bytes.Equal(buf, p.msg) {
			return errors.New("the echo differs from what was sent")
		}
		return nil
	}
	for i := range ps {
		c, fd, err := spec.dial(to)
		if err != nil {
			return Result{}, fmt.Errorf("connection %d of %d: %w", i+1, spec.Conns, err)
		}
		ps[i] = pinger{Conn: c, msg: make([]byte, spec.Size)}
		if err := errors.Join(ping(&ps[i]), pong(&ps[i]), ping(&ps[i]), poll.add(fd, int32(i))); err != nil {
			return Result{}, err
		}
	}
	lat := make(latency, 0, 1<<20)
	evs := []unix.EpollEvent{{}}
	turn := func() error {
		if len(ps) > 1 {
			if evs, err = poll.wait(stall); err != nil {
				return err
			}
		}
		for _, ev := range evs {
			p := &ps[ev.Fd]
			if err := pong(p); err != nil {
				return err
			}
			lat.add(time.Since(p.sent))
			if err := ping(p); err != nil {
				return err
			}
		}
		return nil
	}
	return window(Spec{Kind: PingPong, Size: spec.Size, Conns: spec.Conns}, cfg, turn, &lat)
}
