package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Presence is one relay in a fleet: its report, the orders to it, and its part in shared checks. Everything
// it writes has one lease, so that all of it goes when the relay does.
//
//	applying ──its key is free──▶ present ──lease ended──▶ applying
//	   └──another relay has the id for longer than a lease──▶ conflict ──key is free──▶ present
type Presence struct {
	cfg  PresenceConfig
	wake chan struct{}

	mu     sync.Mutex
	status Status
	fast   map[string]time.Duration // intervals between reports that orders ask for, by their id
}

// PresenceConfig configures a Presence. Times are 0 for their defaults.
type PresenceConfig struct {
	Client *etcd.Client
	Key    string // of the fleet
	Node   spec.Node
	Lease  etcd.LeaseID // of the process before this one, which this relay goes on with; 0: none
	// Report returns what is to be reported now, without Node, Zone and At.
	Report func() Report
	// Carry carries out an order, and returns the answer without Order, Node and At.
	Carry func(context.Context, Order) Answer
	// Drain is called when the relay shall take no new flows, and with nil when it shall again.
	Drain func(*DrainOrder)
	// Tell is called with what an operator should know.
	Tell func(level slog.Level, message string, err error)
	// Leased is called with the lease, whenever there is another one.
	Leased func(etcd.LeaseID)
	Checks *Checks // nil: none

	TTL      time.Duration // how long the relay is present after its last word; 15 s
	Interval time.Duration // between reports in which only numbers have changed; 20 s
	Least    time.Duration // between two reports; 1 s
}

// Status says how a presence is.
type Status struct {
	Present  bool
	Since    time.Time // since when it is as it is
	Reported time.Time // the last report that was written
	Reports  int64     // reports written
	Failures int64     // requests to etcd that failed
	Err      error     // the last one failed: why
	Conflict string    // who has the same id; empty: nobody
}

// The defaults of PresenceConfig. A report is about a kilobyte and is a write to all servers of etcd; keeping a
// lease alive is neither. 1,000 relays are 50 reports and 200 keepalives per second.
const (
	defaultTTL      = 15 * time.Second
	defaultInterval = 20 * time.Second
	defaultLeast    = time.Second
)

// NewPresence returns a Presence, which does nothing before Run.
func NewPresence(cfg PresenceConfig) *Presence {
	for d, def := range map[*time.Duration]time.Duration{&cfg.TTL: defaultTTL, &cfg.Interval: defaultInterval, &cfg.Least: defaultLeast} {
		if *d <= 0 {
			*d = def
		}
	}
	if cfg.Tell == nil {
		cfg.Tell = func(slog.Level, string, error) {}
	}
	if cfg.Leased == nil {
		cfg.Leased = func(etcd.LeaseID) {}
	}
	return &Presence{cfg: cfg, wake: make(chan struct{}, 1), fast: map[string]time.Duration{}}
}

// Changed says that the report may say something new.
func (p *Presence) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Status returns how the presence is.
func (p *Presence) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *Presence) update(f func(*Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.status)
}

// Run is present until ctx ends. Afterwards the lease is still there: see Leave.
func (p *Presence) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := false
	wait := remote.Backoff{Min: time.Second, Max: p.cfg.TTL}
	c := &candidate{p: p, lease: p.cfg.Lease}
	for ctx.Err() == nil {
		err := c.apply(ctx)
		if err == nil {
			if !begun {
				begun = true
				running.Go(func() { p.followOrders(ctx) })
			}
			if p.cfg.Checks != nil {
				p.cfg.Checks.present(c.lease)
			}
			wait.Working()
			err = c.stay(ctx)
			if p.cfg.Checks != nil {
				p.cfg.Checks.present(0)
			}
		}
		if ctx.Err() != nil {
			return
		}
		p.failed(err)
		var taken *takenError
		if errors.As(err, &taken) {
			remote.Sleep(ctx, p.cfg.TTL/5+rand.N(p.cfg.TTL/10))
			continue
		}
		wait.Wait(ctx)
	}
}

// Leave ends the lease, and with it everything that the relay has in etcd. A process that hands over to another one
// does not call it.
func (p *Presence) Leave(ctx context.Context, lease etcd.LeaseID) {
	if lease != 0 {
		p.cfg.Client.Revoke(ctx, lease)
	}
}

// failed notes an error, and tells it the first time.
func (p *Presence) failed(err error) {
	first := false
	p.update(func(s *Status) {
		first = s.Err == nil
		if s.Present {
			s.Present, s.Since = false, time.Now()
		}
		s.Err = err
		s.Failures++
	})
	if first && !errors.As(err, new(*takenError)) { // which is told when it is known what it means
		p.cfg.Tell(slog.LevelWarn, "no contact with the fleet", err)
	}
}

// worked notes that etcd has answered.
func (p *Presence) worked(reported bool) {
	again := false
	p.update(func(s *Status) {
		again = s.Err != nil
		if !s.Present {
			s.Present, s.Since = true, time.Now()
		}
		s.Err, s.Conflict = nil, ""
		if reported {
			s.Reported = time.Now()
			s.Reports++
		}
	})
	if again {
		p.cfg.Tell(slog.LevelInfo, "contact with the fleet again", nil)
	}
}

// takenError says that another relay has the id.
type takenError struct {
	by    string
	waits time.Duration // it may be a process of this relay that was killed: how long its lease lasts at most; 0: it is not
}

func (e *takenError) Error() string {
	if e.waits > 0 {
		return fmt.Sprintf("there is a report with this id from %s; if that was killed, it is gone in %v", e.by, e.waits)
	}
	return "the id is taken: " + e.by
}

// A candidate is the part of a Presence that only its goroutine uses.
type candidate struct {
	p      *Presence
	lease  etcd.LeaseID // 0: none
	until  time.Time    // when the lease ends, unless it is kept alive
	mod    int64        // revision at which this relay last wrote the key
	unsaid bool         // the last report could not be written
	last   Report       // written
	at     time.Time    // when it was
	looked time.Time    // when there was last a report to write or not

	other struct { // who has the id
		created int64
		since   time.Time
		told    bool
	}
}

// apply gets a lease, if there is none, and the key.
func (c *candidate) apply(ctx context.Context) error {
	cfg := &c.p.cfg
	if c.lease != 0 {
		if _, err := cfg.Client.KeepAlive(ctx, c.lease); errors.Is(err, etcd.ErrNoLease) {
			c.lease = 0
		} else if err != nil {
			return err
		}
	}
	if c.lease == 0 {
		lease, err := cfg.Client.Grant(ctx, cfg.TTL)
		if err != nil {
			return err
		}
		c.lease = lease
		cfg.Leased(lease)
	}
	c.until = time.Now().Add(cfg.TTL)
	key := nodeKey(cfg.Key, cfg.Node.ID)
	report, text := c.report()
	r, err := cfg.Client.Do(ctx, etcd.Txn{
		If:   []etcd.Compare{etcd.Absent(key)},
		Then: []etcd.Op{etcd.Put(key, text, c.lease)},
		Else: []etcd.Op{etcd.Get(key)},
	})
	switch {
	case err != nil:
		return err
	case r.Succeeded:
		c.mod = r.Revision
	case len(r.Answers[0].KVs) == 1 && r.Answers[0].KVs[0].Lease == c.lease: // of the process before, or an earlier attempt
		c.mod = r.Answers[0].KVs[0].Mod
		if err := c.write(ctx, text); err != nil {
			return err
		}
	case len(r.Answers[0].KVs) == 1:
		return c.taken(ctx, r.Answers[0].KVs[0], text)
	default:
		return errors.New("the answer has no key")
	}
	c.other.since, c.other.told = time.Time{}, false
	c.last, c.at = report, time.Now()
	c.p.worked(true)
	return nil
}

// taken handles that another relay has the id. That may be a process of this relay which was killed: then its
// lease ends soon.
func (c *candidate) taken(ctx context.Context, kv etcd.KV, text []byte) error {
	cfg, now := &c.p.cfg, time.Now()
	begins := c.other.since.IsZero() || c.other.created != kv.Create
	if begins {
		c.other.created, c.other.since = kv.Create, now
	}
	by := "another relay"
	if r, err := ParseReport(kv.Value); err == nil {
		by = fmt.Sprintf("%s, which runs since %s", shorten(r.Host.Name), r.Since.UTC().Format(time.RFC3339))
	}
	err := &takenError{by: by}
	if now.Sub(c.other.since) < cfg.TTL+cfg.TTL/3 {
		err.waits = cfg.TTL
		if begins {
			cfg.Tell(slog.LevelInfo, "not yet in the fleet: "+err.Error(), nil)
		}
		return err
	}
	c.p.update(func(s *Status) { s.Conflict = by })
	if !c.other.told {
		c.other.told = true
		cfg.Tell(slog.LevelError, "another relay has the same id "+cfg.Node.ID+": this one does not report and gets no orders; allowed: --node with an id of its own", err)
	}
	conflict := conflictsPrefix(cfg.Key) + cfg.Node.ID + "/" + fmt.Sprintf("%016x", c.lease)
	if _, put := cfg.Client.Put(ctx, conflict, text, c.lease); put != nil {
		return errors.Join(err, put)
	}
	return err
}

// stay keeps the lease alive and reports, until that fails.
func (c *candidate) stay(ctx context.Context) error {
	cfg := &c.p.cfg
	alive := time.NewTimer(c.aliveIn())
	defer alive.Stop()
	report := time.NewTimer(c.reportIn())
	defer report.Stop()
	wait := remote.Backoff{Min: cfg.TTL / 10, Max: cfg.TTL / 3}
	for {
		var err error
		wrote := false
		var begun time.Time
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			begun = time.Now()
			_, err = cfg.Client.KeepAlive(ctx, c.lease)
		case <-report.C:
			r, text := c.report()
			if r.equal(&c.last) && time.Since(c.at) < c.p.interval() {
				report.Reset(c.reportIn())
				continue
			}
			if err = c.write(ctx, text); err == nil {
				c.last, c.at, wrote = r, time.Now(), true
			}
		case <-c.p.wake:
			report.Reset(max(0, cfg.Least-time.Since(c.looked)))
			continue
		}
		var lost *lostError
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if c.unsaid = c.unsaid && !wrote; !c.unsaid { // to keep a lease alive needs no rights, but to report does
				c.p.worked(wrote)
				wait.Working()
			}
			// Neither keeps the other from being done: a report does not keep the lease alive, and one that is to
			// be written soon must not wait for the next interval.
			if wrote {
				report.Reset(c.reportIn())
			} else {
				c.until = begun.Add(cfg.TTL)
				alive.Reset(c.aliveIn())
			}
		case errors.Is(err, etcd.ErrNoLease), errors.As(err, &lost):
			return err
		default: // etcd is away; it gives leases their time again when it is back
			c.p.failed(err)
			if time.Now().After(c.until) && cfg.Checks != nil {
				cfg.Checks.present(0)
			}
			next := wait.Next()
			alive.Reset(next)
			report.Reset(next + cfg.Least)
		}
		if err == nil && cfg.Checks != nil {
			cfg.Checks.present(c.lease)
		}
	}
}

// lostError says that the key is no longer this relay's.
type lostError struct{}

func (*lostError) Error() string { return "the key of this relay is gone" }

// write writes a report over the one before. The lease is kept alive by that as little as by any other write. A
// report that got no answer may be written later, but not over a newer one: each compares what this relay wrote last.
func (c *candidate) write(ctx context.Context, text []byte) error {
	cfg := &c.p.cfg
	key := nodeKey(cfg.Key, cfg.Node.ID)
	c.unsaid = true
	for range 2 {
		res, err := cfg.Client.Do(ctx, etcd.Txn{
			If:   []etcd.Compare{etcd.ModIs(key, c.mod)},
			Then: []etcd.Op{etcd.Put(key, text, c.lease)},
			Else: []etcd.Op{etcd.Get(key)},
		})
		switch {
		case err != nil:
			return err
		case res.Succeeded:
			c.mod, c.unsaid = res.Revision, false
			return nil
		case len(res.Answers[0].KVs) != 1 || res.Answers[0].KVs[0].Lease != c.lease:
			return &lostError{}
		}
		c.mod = res.Answers[0].KVs[0].Mod // of a report whose answer was lost
	}
	return errors.New("something else writes the report of this relay")
}

// report returns the present report.
func (c *candidate) report() (Report, []byte) {
	cfg := &c.p.cfg
	c.looked = time.Now()
	r := cfg.Report()
	r.Node, r.Zone, r.At = cfg.Node.ID, cfg.Node.Zone, time.Now()
	r.Bound()
	return r, r.text()
}

// aliveIn returns the time until the lease is to be kept alive: a third of its time, at most.
func (c *candidate) aliveIn() time.Duration {
	most := c.p.cfg.TTL / 3
	return most - rand.N(most/5+1)
}

// reportIn returns the time until the next report, if nothing happens.
func (c *candidate) reportIn() time.Duration {
	d := c.p.interval()
	return max(0, d-time.Since(c.at)) + rand.N(d/5+1)
}

// interval returns the time between reports.
func (p *Presence) interval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.cfg.Interval
	for _, every := range p.fast {
		d = min(d, every)
	}
	return max(d, p.cfg.Least)
}
