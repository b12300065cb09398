package upstream

import (
	"errors"
	"syscall"
	"time"
)

// succeeded ends a row of failures. An attempt that began before the member was
// ejected does not count for how long it will be out next time.
func (m *Member) succeeded(took time.Duration) {
	m.connected.Add(1)
	m.connecting.Add(int64(took))
	if m.inARow.Load() != 0 {
		m.inARow.Store(0)
	}
	if m.outBefore.Load() != 0 && m.takes.Load() {
		m.outBefore.Store(0)
	}
}

// failed counts a failure. The one that is too many has the member ejected, on
// another goroutine. It runs on event loops.
func (m *Member) failed(err error) {
	m.failures.Add(1)
	if ours(err) {
		return
	}
	n := m.inARow.Add(1)
	cfg := m.group.Config().Eject
	if cfg != nil && int(n) >= cfg.Failures && m.takes.Load() && m.ejecting.CompareAndSwap(false, true) {
		m.group.set.post.give(func() { m.eject(err) })
	}
}

// ours tells errors that say nothing about the member: this host has run out of
// something (connect(2), socket(2)).
func ours(err error) bool {
	for _, e := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// eject takes m out for a time, unless too many others are out.
func (m *Member) eject(err error) {
	g := m.group
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	m.ejecting.Store(false)
	cfg := g.cfg.Eject
	if cfg == nil || g.set.closed || !m.takes.Load() || m.out {
		return
	}
	out := 1
	for _, other := range g.members {
		if other.out {
			out++
		}
	}
	if float64(out) > cfg.Share*float64(len(g.members))+1e-9 {
		return
	}
	d := cfg.For
	for range m.outBefore.Add(1) - 1 {
		if d *= 2; d >= cfg.Max {
			break
		}
	}
	d = min(d, max(cfg.Max, cfg.For))
	m.ejections++
	m.inARow.Store(0)
	m.out = true
	now := time.Now()
	m.until = now.Add(d)
	g.settle(m, now, err.Error())
	m.back = g.set.after(d, func(now time.Time) {
		m.out = false
		g.settle(m, now, "ejection is over")
	})
}
