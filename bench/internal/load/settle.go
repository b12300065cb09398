//go:build linux

package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"golang.org/x/sys/unix"
)

func sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

// awaitSettled goes on with the load until the relay's keeper holds every flow of it. Those of short
// connections are gone before.
func awaitSettled(spec Spec, cfg Config, on func(time.Duration) error) error {
	if cfg.Settled == nil || spec.Kind == Connect || spec.Kind == UDPConnect {
		return nil
	}
	for end := time.Now().Add(stall); ; {
		n, err := cfg.Settled()
		if err != nil {
			return err
		}
		if n >= int64(spec.Conns) {
			return on(min(cfg.Warm, 100*time.Millisecond)) // the question has disturbed the relay
		}
		if time.Now().After(end) {
			return fmt.Errorf("only %d of %d flows are settled after %v", n, spec.Conns, stall)
		}
		if err := on(50 * time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitHeld waits until the keeper, which is the relay's first process, has two more files for each
// connection than base. Unlike Settled it costs neither process anything. Only if this takes too long
// it asks, because connections of before may have been in base.
func awaitHeld(spec Spec, cfg Config, base int) error {
	if cfg.Settled == nil {
		return nil
	}
	for start, ask := time.Now(), 6*time.Second; proc.Files(cfg.Relay) < base+2*spec.Conns; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) < ask {
			continue
		}
		n, err := cfg.Settled()
		if err != nil || n >= int64(spec.Conns) {
			return err
		}
		if time.Since(start) > stall {
			return fmt.Errorf("only %d of %d flows are settled after %v", n, spec.Conns, stall)
		}
		ask += time.Second
	}
	return nil
}

// allSettled returns an error unless all flows were held at the end of the window.
func (r Result) allSettled(spec Spec) error {
	if r.Kept && r.Settled < int64(spec.Conns) {
		return fmt.Errorf("only %d of %d flows are settled", r.Settled, spec.Conns)
	}
	return nil
}

// runSettle opens the connections and measures the relay's CPU time while nothing happens but that
// its keeper begins to hold them, and then while all of them end. Without a keeper the same times
// pass, so that the difference is the cost of holding.
func runSettle(spec Spec, cfg Config) (r Result, err error) {
	to, err := sockaddr(cfg.Addr)
	if err != nil {
		return r, err
	}
	base := proc.Files(cfg.Relay)
	all, err := openAllIdle(to, spec)
	if err != nil {
		return r, err
	}
	if cfg.Settled != nil {
		n, err := cfg.Settled()
		if err != nil {
			return r, err
		}
		if n > 0 {
			return r, fmt.Errorf("%d of %d flows were settled before the window: want a relay that holds them later", n, spec.Conns)
		}
	}
	m := meter{cfg: cfg}
	if err := m.begin(); err != nil {
		return r, err
	}
	time.Sleep(cfg.Window)
	if err := awaitHeld(spec, cfg, base); err != nil {
		return r, err
	}
	if err := m.end(&r); err != nil {
		return r, err
	}
	r.Ops = int64(spec.Conns)
	if err := r.allSettled(spec); err != nil {
		return r, err
	}
	before, err := proc.CPU(m.relay)
	if err != nil {
		return r, err
	}
	for _, p := range all {
		err = errors.Join(err, unix.Close(p.fd))
	}
	time.Sleep(time.Second)
	for end := time.Now().Add(stall); cfg.Settled != nil && proc.Files(cfg.Relay) > base; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return r, errors.Join(err, fmt.Errorf("the keeper has %d files %v after the connections have ended, and had %d before them", proc.Files(cfg.Relay), stall, base))
		}
	}
	after, cpuErr := proc.CPU(m.relay)
	r.CloseCPU = after - before
	return r, errors.Join(err, cpuErr)
}
