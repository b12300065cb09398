package keeper

import (
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A worker that hands over may linger: it says nothing more to the keeper, and holds nothing, but its process goes on until it ends by
// itself, for a bounded time.

// linger lets the active worker, which has handed over, go on beside the next one.
func (m *machine) linger(p *peer, most time.Duration, workers int, now time.Time) {
	p.lingersSince = now
	p.endBy, p.endWhy = now.Add(most+m.cfg.HandOverTimeout), "it lingered for too long"
	m.lingering = append(m.lingering, p)
	m.cfg.Log(Event{Kind: WorkerLingers, PID: p.pid, Binary: p.binary.path, Items: m.table.len(), Wait: most})
	stay := 0
	for _, q := range slices.Backward(m.lingering) {
		if stay++; stay > max(workers, 1) && !q.dismissed {
			q.dismissed = true
			m.endLingering(q, "others linger", now)
		}
	}
	m.active = nil
	m.died, m.diedAt = Death{PID: p.pid}, now
	if follows := m.standby != nil && m.standby.killed == ""; m.stopping && !follows {
		m.finish(0, now)
	} else {
		m.takeOver(now)
	}
}

// endLingering asks a worker that lingers to end. It does so with a message, because any signal may come to all processes of a service at
// once: when it is about to drain, or by systemctl kill, which means the keeper.
func (m *machine) endLingering(p *peer, why string, now time.Time) {
	p.endBy, p.endWhy = now.Add(m.cfg.HandOverTimeout), why+", and it did not end"
	p.send(m, appendHeader(nil, kindHandOver, 0))
}

// lingered is called when a worker that lingers has gone.
func (m *machine) lingered(p *peer, d Death) {
	m.lingering = slices.DeleteFunc(m.lingering, func(q *peer) bool { return q == p })
	kind := WorkerEnded
	if p.killed == "" && (d.Signal != 0 || d.Code != 0) {
		kind = WorkerDied
	}
	m.cfg.Log(Event{Kind: kind, PID: p.pid, Binary: p.binary.path, Died: d, Items: m.table.len(), Text: "it lingered"})
	m.lastLingered = d
	m.tellLingering()
}

// tellLingering tells the active worker who lingers.
func (m *machine) tellLingering() {
	p := m.active
	if p == nil || !p.knowsLinger || m.lastLingered.PID == 0 && len(m.lingering) == 0 {
		return
	}
	d := m.lastLingered
	words := []uint64{uint64(d.PID), uint64(d.Code), uint64(d.Signal)}
	for _, q := range m.lingering[max(0, len(m.lingering)-MaxLingering):] {
		words = append(words, uint64(q.pid), uint64(sys.MonotonicAt(q.lingersSince)), uint64(sys.MonotonicAt(q.endBy)), wordOf(q.dismissed))
	}
	p.send(m, appendControl(nil, kindLingering, 0, words, d.Why))
}

// peers are all workers.
func (m *machine) peers() []*peer {
	all := slices.Clone(m.lingering)
	for _, p := range []*peer{m.active, m.standby} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// over reports whether nothing is left to do.
func (m *machine) over() bool { return m.finished && len(m.lingering) == 0 }
