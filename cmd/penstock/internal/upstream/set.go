package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// Options configure a Set. MemberChanged, LookupChanged, PanicChanged, MemberRemoved, FlowsEnd, FlowsKept and Joined are called
// one at a time, in order, on a goroutine of the Set, and may call the Set.
type Options struct {
	// MemberChanged, if not nil, is called after every change of a member's state.
	MemberChanged func(MemberEvent)
	// LookupChanged, if not nil, is called when lookups of a name begin to fail, and when they
	// recover.
	LookupChanged func(LookupEvent)
	// PanicChanged, if not nil, is called when a group's panic begins or ends, with the number of
	// members that are up, and of all that are neither drained nor disabled.
	PanicChanged func(group string, panics bool, up, all int)
	// MemberRemoved, if not nil, is called with members that the configuration, or discovery, no
	// longer has. They get no new flows; their open flows are the caller's business.
	MemberRemoved func(*Member)
	// FlowsEnd, if not nil, is called when flows of a member are to end; see [Member.End].
	FlowsEnd func(*Member)
	// FlowsKept, if not nil, is called when a member that has flows has failed, and they continue because most of its group has failed at once, with the
	// number of members that have, and of all that are neither drained nor disabled. It is called once for members that fail together.
	FlowsKept func(group, member string, failed, all int)
	// Joined, if not nil, is called when a member has begun to accept flows, and the group's flows are to be rebalanced; see [Group.Surplus].
	Joined func(*Group)
	// Control sets socket options of checks; nil: none are set.
	Control Control
	// Clients has TLS of checks; nil: each check reads the files that its TLS names.
	Clients *certs.Clients
	// CertificateExpires, if not nil, is called when a member shows a certificate that has expired or soon will: once for a certificate of a
	// group, and again when the end is much nearer.
	CertificateExpires func(CertificateEvent)
	// Zone is the relay's own zone; empty: none.
	Zone string
	// Discoverer returns the Discoverer of a lookup; nil: [DNS] with the system's resolver.
	Discoverer func(spec.Discover) Discoverer

	// Explain says more of an error of a check or a lookup; nil: the error is shown as it is.
	Explain func(error) error
	// Permit reports whether this process may connect to an address; nil: to all. Members that operators of the process before have added
	// there, or moved there, are left to the next one.
	Permit func(spec.Endpoint) bool

	// Share shares the checks of groups whose Check.Shared is not 0 with other relays; nil: each relay checks
	// for itself. It is called with the Set's lock held, and must not call the Set.
	Share func(SharedCheck) (SharedMember, CheckShare)

	// Counts has the tables of Layouts; nil: what is counted ends with the process.
	Counts *counts.Memory
	// Saved is what the Set of the process before has saved; nil: nothing.
	Saved *SavedSet
	// LastGood are the last good answers of registries that are known from elsewhere, for lookups that
	// Saved does not have; see Set.GoodAnswers.
	LastGood []SavedLookup

	// probe replaces that of prober in tests.
	probe func(ctx context.Context, g *spec.Group, to relay.Addr) error
	// ask replaces that of prober in tests.
	ask func(ctx context.Context, g *spec.Group, to netip.AddrPort, send []byte) (string, error)
}

// A Set has all groups of a configuration. Its methods are safe for concurrent use.
//
// Lock order: Set.mu, then a group's queue, then its heap.
type Set struct {
	opt    Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	jobs   jobQueue
	probe  func(context.Context, *probed) (finding, error)
	ask    func(ctx context.Context, g *spec.Group, to netip.AddrPort, send []byte) (string, error) // an agent; returns its line
	probes chan struct{}                                                                            // room for checks that run at the same time
	asks   chan struct{}                                                                            // and for questions to agents: those that hang take none from checks
	groups atomic.Pointer[map[string]*Group]
	tables tables
	// revision counts the changes of what Save returns.
	revision        atomic.Uint64
	answersRevision atomic.Uint64 // of what GoodAnswers returns

	mu         sync.Mutex
	closed     bool
	watches    map[spec.Discover]*watch
	lookupRows map[string]*lookupCounts // by name
	saved      *savedState              // nil: nothing
	// lastGoodUntil is until when opt.LastGood is used.
	lastGoodUntil time.Time
}

// maxProbes bounds the checks that run at the same time, and also the questions to agents. Others wait, so that
// intervals grow when very many members do not answer.
const maxProbes = 512

// NewSet returns a Set without groups. The caller must close it.
func NewSet(opt Options) *Set {
	if opt.Discoverer == nil {
		opt.Discoverer = DNS{}.Discoverer
	}
	if opt.Explain == nil {
		opt.Explain = func(err error) error { return err }
	}
	if opt.Clients == nil {
		opt.Clients = certs.NewClients(certs.Options{}, nil)
	}
	p := &prober{opt.Control, opt.Clients}
	s := &Set{opt: opt, probe: p.probe, ask: p.ask, probes: make(chan struct{}, maxProbes), asks: make(chan struct{}, maxProbes), watches: make(map[spec.Discover]*watch),
		tables: tablesOf(opt.Counts), lookupRows: make(map[string]*lookupCounts), saved: newSaved(opt.Saved, time.Now()), lastGoodUntil: time.Now().Add(claimTime)}
	if opt.probe != nil {
		s.probe = func(ctx context.Context, m *probed) (finding, error) {
			return finding{}, opt.probe(ctx, m.group, m.addr)
		}
	}
	if opt.ask != nil {
		s.ask = opt.ask
	}
	s.opt.Saved = nil
	s.groups.Store(new(map[string]*Group))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.jobs.wake = make(chan struct{}, 1)
	s.wg.Go(func() { s.jobs.run(s.ctx) })
	return s
}

// Group returns the group of that name, nil if there is none.
func (s *Set) Group(name string) *Group { return (*s.groups.Load())[name] }

// Apply makes groups the running ones. A group or member that was there before, by name and
// address, keeps its pointer and its state. Pick sees either the old table of a group or the new
// one.
//
// An operator's settings of a member stay until the file changes the same setting.
func (s *Set) Apply(groups []*spec.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := time.Now()
	old, next := *s.groups.Load(), make(map[string]*Group, len(groups))
	turns := make(map[*Group][2]uint64) // of new groups
	for _, cfg := range groups {
		g := old[cfg.Name]
		if g == nil {
			g = &Group{name: cfg.Name, set: s}
			g.startCounting()
			turns[g] = g.restore()
		}
		g.file, g.cfg = cfg, g.changes.apply(cfg)
		next[cfg.Name] = g
		s.startWatches(g.cfg)
	}
	for _, g := range next {
		g.configure()
		g.refresh(now, "configured", true)
		if t, ok := turns[g]; ok {
			g.setTurns(t)
			g.joinAgain()
		}
	}
	s.groups.Store(&next)
	s.touch()
	for name, g := range old {
		if next[name] == nil {
			g.remove(now)
		}
	}
	for _, g := range next {
		if g.cfg.Destination != nil {
			g.resumeQueued()
		} else {
			g.queue.open()
		}
	}
	s.stopUnusedWatches()
}

// startWatches begins those lookups of a group that are not under way. The caller holds s.mu.
func (s *Set) startWatches(cfg *spec.Group) {
	for _, d := range lookups(cfg) {
		if s.watches[d] == nil {
			s.watches[d] = s.watch(d)
			s.watches[d].inherit(s.watches)
		}
	}
}

// stopUnusedWatches ends the lookups that no group needs. The caller holds s.mu.
func (s *Set) stopUnusedWatches() {
	used := make(map[spec.Discover]bool)
	for _, g := range *s.groups.Load() {
		for _, d := range lookups(g.cfg) {
			used[d] = true
		}
	}
	maps.DeleteFunc(s.watches, func(d spec.Discover, w *watch) bool {
		if !used[d] {
			w.cancel()
			s.endLookup(lookupName(d))
			if w.missingTimer != nil {
				w.missingTimer.Stop()
			}
			w.doubt.pause()
		}
		return !used[d]
	})
}

// Wait returns when each name that Apply was given has been looked up once, or at the end of ctx.
// The error joins those of all names that have no address yet.
func (s *Set) Wait(ctx context.Context) error {
	s.mu.Lock()
	watches := maps.Clone(s.watches)
	s.mu.Unlock()
	for _, w := range watches {
		select {
		case <-w.answered:
		case <-w.ended:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for d, w := range watches {
		switch {
		case w.answeredOK:
		case w.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", lookupName(d), w.err))
		case ctx.Err() != nil:
			errs = append(errs, fmt.Errorf("%s: %w", lookupName(d), context.Cause(ctx)))
		}
	}
	return errors.Join(errs...)
}

// Close stops checks, discovery and timers, and waits for them. Pick continues with the last
// state. Leases may be released afterwards.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	s.cancel()
	for _, g := range *s.groups.Load() {
		if g.slowStartTimer != nil {
			g.slowStartTimer.Stop()
		}
		for _, m := range g.members {
			m.stopTimers()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// start runs f on a goroutine that Close waits for. The caller holds s.mu.
func (s *Set) start(f func()) {
	if !s.closed {
		s.wg.Go(f)
	}
}

// after runs f later, under the lock, unless the Set is closed by then.
func (s *Set) after(d time.Duration, f func(now time.Time)) *time.Timer {
	return time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			f(time.Now())
		}
	})
}

// A jobQueue runs functions in order, on one goroutine. Adding does not block.
type jobQueue struct {
	mu   sync.Mutex
	jobs []func()
	wake chan struct{}
}

func (c *jobQueue) add(f func()) {
	c.mu.Lock()
	c.jobs = append(c.jobs, f)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *jobQueue) run(ctx context.Context) {
	for {
		c.mu.Lock()
		jobs := c.jobs
		c.jobs = nil
		c.mu.Unlock()
		for _, f := range jobs {
			f()
		}
		if len(jobs) > 0 {
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}
