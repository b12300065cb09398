package upstream

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// succeeded records a successful attempt. One that began before the member was ejected does not
// shorten its next ejection.
func (m *Member) succeeded(took time.Duration) {
	m.counts.add(connectsAt, 1)
	m.counts.add(connectTimeAt, int64(took))
	if m.failuresInARow.Load() != 0 {
		m.failuresInARow.Store(0)
	}
	if m.ejectionsInARow.Load() != 0 && m.acceptsFlows.Load() {
		m.ejectionsInARow.Store(0)
	}
}

// failed records a failed attempt. The one that reaches the limit has the member ejected, on
// another goroutine, because failed runs on event loops.
func (m *Member) failed(err error) {
	m.counts.add(failuresAt, 1)
	if isLocalError(err) {
		return
	}
	n := m.failuresInARow.Add(1)
	cfg := m.group.Config().Eject
	if cfg != nil && int(n) >= cfg.Failures && m.acceptsFlows.Load() && m.ejecting.CompareAndSwap(false, true) {
		m.group.set.jobs.add(func() { m.eject(err) })
	}
}

// isLocalError reports whether an error is this host's and says nothing about the member: the host
// has run out of something (connect(2), socket(2)).
func isLocalError(err error) bool {
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// NoRoute reports whether the error of a datagram flow says that this host no longer has a route to the member that the flow is connected to,
// see [relay.Hooks].
func NoRoute(err error) bool {
	call, ok := errors.AsType[*os.SyscallError](err)
	return ok && call.Syscall == "send"
}

// eject ejects m for a time, unless too many others are ejected.
func (m *Member) eject(err error) {
	g := m.group
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	m.ejecting.Store(false)
	cfg := g.cfg.Eject
	if cfg == nil || g.set.closed || !m.acceptsFlows.Load() || m.ejected {
		return
	}
	if out := g.ejected + 1; float64(out) > cfg.Share*float64(len(g.members))+1e-9 {
		return
	}
	d := cfg.For
	for range m.ejectionsInARow.Add(1) - 1 {
		if d *= 2; d >= cfg.Max {
			break
		}
	}
	d = min(d, max(cfg.Max, cfg.For))
	m.counts.add(ejectionsAt, 1)
	m.failuresInARow.Store(0)
	m.ejected = true
	now := time.Now()
	m.ejectedUntil = now.Add(d)
	g.updateState(m, now, err.Error())
	m.endEjectionAfter(d)
}

// endEjectionAfter ends the member's ejection after d. The caller holds the Set's lock.
func (m *Member) endEjectionAfter(d time.Duration) {
	m.ejectTimer = m.group.set.after(d, func(now time.Time) {
		m.ejected = false
		m.group.updateState(m, now, "ejection is over")
	})
}
