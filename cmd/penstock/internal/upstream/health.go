package upstream

import (
	"context"
	"math/rand/v2"
	"reflect"
	"regexp"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A checkState is the result of a member's checks.
//
//	unknown ──first check passes──▶ passing ──Fall failures in a row──▶ failing
//	   └──────first check fails─────────────────────────────────────────▶ │
//	                                passing ◀──Rise passes in a row───────┘
type checkState uint8

const (
	unknown checkState = iota
	passing
	failing
)

// A health is the state machine of one member's checks. It knows no clock and no socket.
type health struct {
	state    checkState
	contrary int // results in a row that contradict the state

	// Of this relay's own checks, also in earlier processes; zero: none.
	passed time.Time // when the last one that passed began
	failed time.Time // when the first one ended that has failed since

	shared checkState // what the relays that check the member for all have found; unknown: the state counts

	// The last result, for snapshots.
	at     time.Time
	took   time.Duration
	err    error
	streak int // results in a row equal to the last one
	// expires is the end of the certificate that the member has shown last; zero: it has shown none.
	expires time.Time
}

// effective returns the state that counts.
func (h *health) effective() checkState {
	if h.shared != unknown {
		return h.shared
	}
	return h.state
}

// record keeps a result for snapshots.
func (h *health) record(at time.Time, took time.Duration, err error) {
	if h.at.IsZero() || (err == nil) != (h.err == nil) {
		h.streak = 0
	}
	h.at, h.took, h.err = at, took, err
	h.streak++
}

// apply applies the result of a check to the state. The first one decides at once. It returns the
// results in a row that contradict the state.
func (h *health) apply(well bool, rise, fall int) (contrary int) {
	against, other, need := !well, failing, fall
	if h.state == failing {
		against, other, need = well, passing, rise
	}
	switch {
	case h.state == unknown && well:
		h.state = passing
	case h.state == unknown:
		h.state = failing
	case !against:
		h.contrary = 0
	default:
		if h.contrary++; h.contrary >= need {
			h.state, h.contrary = other, 0
		}
	}
	return h.contrary
}

// A checker checks a member at intervals. Its timer and its stop method are guarded by the Set's
// lock.
type checker struct {
	m      *Member
	cfg    *spec.Check
	group  *spec.Group
	at     checkAt
	body   *regexp.Regexp // of cfg.BodyRE; nil: none
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	shared SharedMember // nil: this relay checks for itself
	share  CheckShare   // what holds if it is not
}

// firstCheckSpread is the time, per member of a group, over which the first checks are spread, so
// that a large group does not check all its members at once.
const firstCheckSpread = time.Millisecond

// updateChecker starts, stops or changes the member's checks according to the configuration. The
// caller holds the Set's lock.
func (m *Member) updateChecker() {
	g := m.group
	cfg := g.cfg.Check
	if cfg != nil && (m.addr.AddrPort.IsValid() || m.addr.Path != "") && m.currentState() != Disabled && !g.set.closed {
		if m.checker != nil && m.checker.at == m.checked && reflect.DeepEqual(m.checker.cfg, cfg) && reflect.DeepEqual(m.checker.group.Dial, g.cfg.Dial) && reflect.DeepEqual(m.checker.group.TLS, g.cfg.TLS) {
			return
		}
		if m.checker != nil {
			m.checker.stop()
			m.health.state, m.health.shared = m.health.effective(), unknown
		}
		m.checker = &checker{m: m, cfg: cfg, group: g.cfg, at: m.checked, body: g.bodyPattern(cfg)}
		m.checker.start(min(cfg.Every, time.Duration(len(g.members))*firstCheckSpread))
		return
	}
	if m.checker != nil {
		m.checker.stop()
		m.checker = nil
	}
	m.health = health{}
}

// updateChecks starts, stops or changes what is asked of the member and of its agent, according to the configuration and to
// operators. The caller holds the Set's lock.
func (m *Member) updateChecks() {
	m.updateAgent()
	m.updateChecker()
}

// start starts the timer, for a random time within the given one.
func (c *checker) start(first time.Duration) {
	c.ctx, c.cancel = context.WithCancel(c.m.group.set.ctx)
	c.timer = time.AfterFunc(time.Hour, c.run)
	c.beginSharing()
	if c.share.Check {
		c.timer.Reset(rand.N(first + 1))
	} else {
		c.timer.Stop()
	}
}

// stop stops the checker; a check that is running has no effect any more.
func (c *checker) stop() {
	c.cancel()
	c.timer.Stop()
	if c.shared != nil {
		c.shared.Leave()
	}
}

// next returns the time until the next check: the interval, plus or minus up to half the jitter's
// share of it.
func (c *checker) next() time.Duration {
	every := c.cfg.Every
	if c.cfg.EveryDown > 0 && c.m.health.effective() == failing {
		every = c.cfg.EveryDown
	}
	return every + time.Duration((rand.Float64()-0.5)*c.cfg.Jitter*float64(every))
}

// look runs ask, for no longer than timeout, when room has space for another one. Then take takes the result, and when ask began
// and ended, with the Set's lock held, unless ctx has ended. Close waits for both.
func (s *Set) look(ctx context.Context, room chan struct{}, timeout time.Duration, ask func(context.Context), take func(start, now time.Time)) {
	s.mu.Lock()
	if s.closed || ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	select {
	case room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	start := time.Now()
	ask(limited)
	now := time.Now()
	cancel()
	<-room

	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		take(start, now)
	}
}

// run runs one check, on the timer's goroutine.
func (c *checker) run() {
	s := c.m.group.set
	var found finding
	var err error
	s.look(c.ctx, s.probes, c.cfg.Timeout, func(ctx context.Context) {
		found, err = s.probe(ctx, &probed{c.group, c.m.addr, c.at, c.m.Host(), c.body})
	}, func(start, now time.Time) {
		if c.share.Check {
			c.found(found, s.opt.Explain(err), start, now)
		}
	})
}

// found takes the result of a check. The caller holds the Set's lock.
func (c *checker) found(found finding, err error, start, now time.Time) {
	s, h := c.m.group.set, &c.m.health
	h.record(now, now.Sub(start), err)
	if !found.expires.IsZero() {
		h.expires = found.expires
		c.m.tellExpiry(now)
	}
	switch {
	case err == nil:
		h.passed, h.failed = start, time.Time{}
	case h.failed.IsZero():
		h.failed = now
	}
	if was := h.contrary; h.apply(err == nil, c.cfg.Rise, c.cfg.Fall) != was {
		s.touch()
	}
	why := "check passed"
	if err != nil {
		why = "check: " + err.Error()
	}
	if c.shared != nil && h.state != unknown {
		c.shared.Found(h.state == passing, why)
	}
	c.m.group.updateState(c.m, now, why)
	c.timer.Reset(c.next())
}
