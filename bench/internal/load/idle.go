//go:build linux

package load

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"golang.org/x/sys/unix"
)

// runIdle opens the connections, tests each with one round trip, and reads the relay's memory
// before and after. The first reading comes after one connection was served, so that one-time
// allocations are not counted.
func runIdle(spec Spec, cfg Config) (Result, error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	first, err := openIdle(to, 1, spec.Size)
	if err != nil {
		return Result{}, err
	}
	unix.Close(first[0].fd)
	time.Sleep(cfg.Warm)

	var r Result
	if r.RSSBefore, err = proc.RSS(proc.Tree(cfg.Relay)); err != nil {
		return r, err
	}
	m := meter{cfg: cfg}
	if err := m.begin(); err != nil {
		return r, err
	}
	const step = 32
	var all []pinger
	for len(all) < spec.Conns {
		ps, err := openIdle(to, min(step, spec.Conns-len(all)), spec.Size)
		if err != nil {
			return r, fmt.Errorf("after %d connections: %w", len(all), err)
		}
		all = append(all, ps...)
	}
	time.Sleep(cfg.Window)
	r.Ops = int64(spec.Conns)
	return r, m.end(&r)
}

// openIdle opens n connections and does a round trip on each.
func openIdle(to *unix.SockaddrInet4, n, size int) ([]pinger, error) {
	ps, err := dialPingers(Spec{Conns: n, Size: size}, to)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, size)
	for i := range ps {
		if err := ps[i].ping(uint64(i)); err != nil {
			return nil, err
		}
	}
	for i := range ps {
		if err := ps[i].pong(buf); err != nil {
			return nil, err
		}
	}
	return ps, nil
}
