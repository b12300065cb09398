//go:build linux

package load

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"golang.org/x/sys/unix"
)

// runIdle opens the connections, tests each with one round trip, and reads the relay's memory
// before and after. The first reading comes when one connection is served, and held if there is a
// keeper, so that what happens once is not counted. That connection stays open.
func runIdle(spec Spec, cfg Config) (Result, error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return Result{}, err
	}
	files := proc.Files(cfg.Relay)
	if _, err := openIdle(to, 1, spec.Size); err != nil {
		return Result{}, err
	}
	time.Sleep(cfg.Warm)
	if err := awaitHeld(Spec{Kind: Idle, Conns: 1}, cfg, files); err != nil {
		return Result{}, err
	}
	if cfg.Settled != nil {
		// The first question costs a penstock memory once. Later ones come after the readings.
		if _, err := cfg.Settled(); err != nil {
			return Result{}, err
		}
	}
	time.Sleep(2500 * time.Millisecond) // a keeper gives back what starting took a second after its worker is ready
	before, err := proc.MemoryOf(proc.Tree(cfg.Relay))
	if err != nil {
		return Result{}, err
	}
	r := Result{RSSBefore: before.RSS}
	base := proc.Files(cfg.Relay)
	m := meter{cfg: cfg}
	if err := m.begin(); err != nil {
		return r, err
	}
	if _, err := openAllIdle(to, spec); err != nil {
		return r, err
	}
	time.Sleep(cfg.Window)
	if err := awaitHeld(spec, cfg, base); err != nil {
		return r, err
	}
	r.Ops = int64(spec.Conns)
	after, err := proc.MemoryOf(proc.Tree(cfg.Relay))
	if err != nil {
		return r, err
	}
	r.OnceKB = after.Once() - before.Once()
	if err := m.end(&r); err != nil {
		return r, err
	}
	return r, r.allSettled(spec)
}

// openAllIdle opens all connections of a load in small steps, which the relay's backlog holds.
func openAllIdle(to *unix.SockaddrInet4, spec Spec) (all []pinger, err error) {
	const step = 32
	for len(all) < spec.Conns {
		ps, err := openIdle(to, min(step, spec.Conns-len(all)), spec.Size)
		if err != nil {
			return nil, fmt.Errorf("after %d connections: %w", len(all), err)
		}
		all = append(all, ps...)
	}
	return all, nil
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
