//go:build linux

package load

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// pinger is one connection with at most one message in flight.
type pinger struct {
	fd   int
	sent time.Time
	msg  []byte
	met  bool // an echo has come
}

func (p *pinger) ping(id uint64) error {
	fill(p.msg, id)
	p.sent = time.Now()
	return sendAll(p.fd, p.msg)
}

// pong reads the whole echo; it is called when the first byte is there.
func (p *pinger) pong(buf []byte) error {
	if err := recvAll(p.fd, buf[:len(p.msg)]); err != nil {
		return err
	}
	if !bytes.Equal(buf[:len(p.msg)], p.msg) {
		return errors.New("the echo differs from what was sent")
	}
	return nil
}

func dialPingers(spec Spec, to *unix.SockaddrInet4) ([]pinger, error) {
	ps := make([]pinger, spec.Conns)
	for i := range ps {
		fd, err := dialFor(spec, to)
		if err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", i+1, spec.Conns, err)
		}
		ps[i] = pinger{fd: fd, msg: make([]byte, spec.Size)}
	}
	return ps, nil
}

// runPingPong keeps one message in flight on every connection, from one thread. A single connection
// blocks in its read; several wait in epoll.
func runPingPong(spec Spec, cfg Config) (Result, error) {
	runtime.LockOSThread()
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	ps, err := dialPingers(spec, to)
	if err != nil {
		return Result{}, err
	}
	poll, err := newPoller()
	if err != nil {
		return Result{}, err
	}
	for i := range ps {
		if err := poll.add(ps[i].fd, int32(i)); err != nil {
			return Result{}, err
		}
	}
	buf := make([]byte, spec.Size)
	lat := make(latency, 0, 1<<20)
	var ids uint64
	next := func(p *pinger) error {
		ids++
		return p.ping(ids)
	}
	for i := range ps {
		if err := next(&ps[i]); err != nil {
			return Result{}, err
		}
	}
	unmet := len(ps)
	if spec.UDP() {
		unmet = 0 // a lost datagram has no echo
	}
	lone := []unix.EpollEvent{{}}
	// turn continues every connection whose echo has arrived.
	turn := func() error {
		evs := lone
		if len(ps) > 1 {
			if evs, err = poll.wait(stall); err != nil {
				return err
			}
		}
		for _, ev := range evs {
			p := &ps[ev.Fd]
			if err := p.pong(buf); err != nil {
				return err
			}
			lat.add(time.Since(p.sent))
			if !p.met {
				p.met = true
				unmet--
			}
			if err := next(p); err != nil {
				return err
			}
		}
		return nil
	}
	// A relay that accepts slowly while it is busy is not warm before it has accepted all
	// connections. Otherwise those in its backlog would make the others look fast.
	for end := time.Now().Add(stall); unmet > 0; {
		if time.Now().After(end) {
			return Result{}, fmt.Errorf("%d of %d connections had no echo within %v", unmet, len(ps), stall)
		}
		if err := turn(); err != nil {
			return Result{}, err
		}
	}
	r, err := window(spec, cfg, turn, &lat)
	r.Sent, r.Lost = int64(ids), missing(spec, ps)
	return r, err
}

// missing counts the datagrams that do not come back. Each flow has one in flight when a window
// ends; a flow whose datagram was lost has been waiting for it.
func missing(spec Spec, ps []pinger) (n int64) {
	if !spec.UDP() {
		return 0
	}
	time.Sleep(20 * floodTail)
	var b [1]byte
	for _, p := range ps {
		if _, _, err := unix.Recvfrom(p.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); err != nil {
			n++
		}
	}
	return n
}

// window calls turn during the warm-up and the window, in each until turn has appended to lat at
// least once. It counts what turn appended during the window.
func window(spec Spec, cfg Config, turn func() error, lat *latency) (Result, error) {
	until := func(end time.Time) error {
		for *lat = (*lat)[:0]; len(*lat) == 0 || time.Now().Before(end); {
			if err := turn(); err != nil {
				return err
			}
		}
		return nil
	}
	on := func(d time.Duration) error { return until(time.Now().Add(d)) }
	if err := on(cfg.Warm); err != nil {
		return Result{}, err
	}
	if err := awaitSettled(spec, cfg, on); err != nil {
		return Result{}, err
	}
	var r Result
	m := meter{cfg: cfg}
	err := m.begin()
	if err == nil {
		err = until(m.start.Add(cfg.Window))
	}
	err = errors.Join(err, m.end(&r))
	r.Ops = int64(len(*lat))
	r.Bytes = r.Ops * int64(spec.Size)
	lat.put(&r)
	return r, err
}
