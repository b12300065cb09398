package keeper

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// gone is called when a worker's process has ended and its last message has been handled. The process was reaped. wrote is what it
// wrote apart.
func (m *machine) gone(id int, d Death, wrote string, now time.Time) {
	p := m.peer(id)
	if p == nil {
		return
	}
	p.forget(m)
	d.PID, d.Why = p.pid, p.killed
	if d.Why == "" && d.Code != 0 {
		d.Why = p.failing
	}
	if wrote = printableLines(wrote); wrote != "" {
		m.cfg.Log(Event{Kind: WorkerWrote, PID: p.pid, Binary: p.binary.path, Text: wrote})
	}
	if !p.lingersSince.IsZero() {
		m.lingered(p, d)
		return
	}
	if p == m.standby {
		m.standby, m.failed = nil, d
		m.standbyGone(p, d, wrote, now)
		m.releaseUnused()
		return
	}
	m.active = nil
	m.died = d
	if p.ready || m.diedAt.IsZero() {
		m.diedAt = now
	}
	follows := p.asked && m.standby != nil && m.standby.killed == ""
	switch {
	case m.stopping && !follows || p.exiting && p.killed == "" && !p.asked:
		m.ended(p, d)
		m.finish(exitCode(d), now)
	case !m.everReady && d.Signal == 0 && p.killed == "" && m.restarts == 0:
		// The first worker refused to work: whoever started the keeper wants to know, not to wait.
		m.ended(p, d)
		m.finish(d.Code, now)
	case p.asked:
		m.ended(p, d)
		m.takeOver(now)
	case m.upgrade.State == Starting || m.upgrade.State == Proving:
		m.deathOf(p, d)
		m.rollBack(d.String(), now)
	default:
		m.crashed(p, d, now)
	}
	if m.finished && m.standby != nil {
		m.kill(m.standby, "the keeper ends")
	}
	m.releaseUnused()
}

// printable returns a worker's text without control characters: it goes to logs and to the service manager.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func exitCode(d Death) int {
	if d.Signal != 0 {
		return 128 + d.Signal
	}
	return d.Code
}

func (m *machine) ended(p *peer, d Death) {
	m.cfg.Log(Event{Kind: WorkerEnded, PID: p.pid, Binary: p.binary.path, Died: d, Items: m.table.len()})
}

func (m *machine) deathOf(p *peer, d Death) {
	m.deaths++
	m.restarts++
	m.cfg.Log(Event{Kind: WorkerDied, PID: p.pid, Binary: p.binary.path, Died: d, Items: m.table.len()})
}

// crashed starts the next worker after one that died.
func (m *machine) crashed(p *peer, d Death, now time.Time) {
	m.deathOf(p, d)
	if m.standby != nil {
		m.kill(m.standby, "the worker that it was to follow died")
	}
	if m.deaths >= m.cfg.MaxDeaths && m.good != nil && m.good != m.current {
		m.current, m.fellBack = m.good, true
		m.cfg.Log(Event{Kind: FellBack, Binary: m.good.path, Items: m.table.len()})
	}
	m.reason = Crash
	m.startIn(m.cfg.backoff(m.deaths), now)
}

// startIn starts the next worker after a pause.
func (m *machine) startIn(wait time.Duration, now time.Time) {
	if wait <= 0 {
		if err := m.startActive(now); err == nil {
			return
		} else {
			m.cfg.Log(Event{Kind: Problem, Binary: m.current.path, Items: m.table.len(), Text: err.Error()})
			m.deaths++
			wait = max(m.cfg.backoff(m.deaths), m.cfg.Backoff)
		}
	}
	m.startAt = now.Add(wait)
	m.cfg.Log(Event{Kind: StartDelayed, Binary: m.current.path, Wait: wait, Items: m.table.len()})
	why := fmt.Sprintf("worker died (%s), next start in %s", m.died, wait)
	m.cfg.Notify("STATUS=" + why)
	m.endPause()
	m.resume = m.cfg.Paused(why, m.table.labelled)
}

// endPause ends what Config.Paused has begun, if it has.
func (m *machine) endPause() {
	if m.resume != nil {
		m.resume()
	}
	m.resume = nil
}

// tick does what is due. Something that arrived before now has been handled, except what is still in a socket:
// therefore a watchdog has to expire twice.
func (m *machine) tick(now time.Time) {
	for _, p := range m.peers() {
		switch {
		case due(p.endBy, now):
			m.kill(p, p.endWhy)
		case due(p.startBy, now):
			m.kill(p, late(p))
		case due(p.aliveBy, now):
			if p.suspect {
				m.kill(p, "watchdog")
				break
			}
			p.suspect = true
			p.aliveBy = now.Add(min(m.cfg.Watchdog/8, time.Second))
		}
		m.expire(p, now)
		if h := &p.hand; due(h.retryAt, now) {
			h.retryAt = time.Time{}
			m.pump(p, now)
			m.tryGo(p, now)
		}
	}
	if due(m.startAt, now) {
		m.startAt = time.Time{}
		m.startIn(0, now)
	}
	if due(m.notifyAt, now) {
		m.notifyAt = now.Add(m.cfg.NotifyEvery)
		m.cfg.Notify("WATCHDOG=1")
	}
	if p := m.active; p != nil && p.ready && !p.lied {
		if m.upgrade.State == Proving && due(p.readyAt.Add(m.cfg.Healthy), now) {
			m.proved(p, now)
		}
		if due(p.readyAt.Add(m.cfg.Good), now) && (m.deaths > 0 || m.good != p.binary) {
			m.deaths, m.good, m.fellBack = 0, p.binary, false
			m.releaseUnused()
		}
	}
	m.beginRestart(now)
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

func late(p *peer) string {
	switch {
	case !p.hello:
		return "not connected in time"
	case !p.prepared:
		return "not prepared in time"
	}
	return "not ready in time"
}

// next returns when tick has something to do; zero: nothing.
func (m *machine) next() (at time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, p := range m.peers() {
		sooner(p.endBy)
		sooner(p.startBy)
		sooner(p.aliveBy)
		sooner(p.hand.retryAt)
		if len(p.pending) > 0 {
			sooner(p.pending[0].due)
		}
	}
	if m.restartPossible() {
		sooner(m.active.readyAt)
	}
	sooner(m.startAt)
	sooner(m.notifyAt)
	if p := m.active; p != nil && p.ready {
		if m.upgrade.State == Proving {
			sooner(p.readyAt.Add(m.cfg.Healthy))
		}
		if m.deaths > 0 || m.good != p.binary {
			sooner(p.readyAt.Add(m.cfg.Good))
		}
	}
	return at
}

// releaseUnused closes the binaries that nothing will start any more.
func (m *machine) releaseUnused() {
	m.opened = slices.DeleteFunc(m.opened, func(b *executable) bool {
		used := b == m.current || b == m.good || b == m.from || b == m.to ||
			m.active != nil && m.active.binary == b || m.standby != nil && m.standby.binary == b
		if !used {
			m.port.release(b)
		}
		return !used
	})
}

// abort ends everything at once.
func (m *machine) abort() {
	for _, p := range m.peers() {
		m.port.signal(p.id, syscall.SIGKILL)
	}
}

// hungUp is called when a worker has closed its end of the connection, as it does when it exits.
func (m *machine) hungUp(id int, now time.Time) {
	if p := m.peer(id); p != nil && p.killed == "" && p.endBy.IsZero() {
		p.startBy, p.aliveBy = time.Time{}, time.Time{}
		p.endBy, p.endWhy = now.Add(m.cfg.HandOverTimeout), "it closed its connection and did not end"
	}
}
