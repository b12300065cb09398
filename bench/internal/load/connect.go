//go:build linux

package load

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// runConnect keeps Conns short connections in progress, from one thread: connect, send, read the
// echo, close with a FIN. The client closes first, so the TIME_WAIT sockets are the client's and
// the relay's own, as in production. A datagram load does the same with a new socket, and so a new
// flow, each time.
func runConnect(spec Spec, cfg Config) (Result, error) {
	runtime.LockOSThread()
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	poll, err := newPoller()
	if err != nil {
		return Result{}, err
	}
	ps := make([]pinger, spec.Conns)
	buf := make([]byte, spec.Size)
	lat := make(latency, 0, 1<<20)
	var ids uint64
	open := func(i int32) error {
		p := &ps[i]
		start := time.Now()
		if p.fd, err = dialFor(spec, to); err != nil {
			return err
		}
		ids++
		if err := p.ping(ids); err != nil {
			return err
		}
		p.sent = start
		return poll.add(p.fd, i)
	}
	for i := range ps {
		ps[i].msg = make([]byte, spec.Size)
		if err := open(int32(i)); err != nil {
			return Result{}, err
		}
	}
	turn := func() error {
		evs, err := poll.wait(stall)
		if err != nil {
			return err
		}
		for _, ev := range evs {
			p := &ps[ev.Fd]
			if err := p.pong(buf); err != nil {
				return err
			}
			lat.add(time.Since(p.sent))
			unix.Close(p.fd)
			if err := open(ev.Fd); err != nil {
				return err
			}
		}
		return nil
	}
	r, err := window(spec, cfg, turn, &lat)
	r.Sent, r.Lost = int64(ids), missing(spec, ps)
	return r, err
}
