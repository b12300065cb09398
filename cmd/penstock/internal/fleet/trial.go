package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A Trial is a version that some relays run before the others. Its key has a lease, so that it ends when this
// process does: the canaries then go back by themselves.
//
//	Try ──▶ Watch ──good──▶ Promote
//	          └──bad, or it took too long──▶ TakeBack
type Trial struct {
	Version  Version
	Canaries []string // names of relays
	Others   int      // further relays that are ready
	LeftOut  int      // relays that are not, or are drained

	o      *Operator
	cfg    TrialConfig
	state  State // what the version is compared with; once it is tried, with the canary
	lease  etcd.LeaseID
	view   *reportView
	judge  *judge
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex
	until time.Time // when the lease ends, unless it is kept alive
	lost  bool      // it has ended
}

// TrialConfig says how a version is tried. Times are 0 for their defaults.
type TrialConfig struct {
	Share   float64       // of the relays; at least one tries the version
	Before  time.Duration // for how long the relays are watched before; 5 s
	Silence time.Duration // after which a canary that does not report keeps the trial from ending well; 4 s
}

// defaultBefore is TrialConfig.Before. The last report of a relay is up to 24 s old, and begins that time.
const defaultBefore = 5 * time.Second

// trialTTL is how long a canary stays after the death of who tries it.
const trialTTL = 15 * time.Second

// ErrNoRelays is returned if no relay reports that could be a canary.
var ErrNoRelays = errors.New("no relay reports to this fleet, so that nobody could try the version; without --canary, it is published")

// ErrFirst is returned if there is no version that canaries could go back to.
var ErrFirst = errors.New("nothing has been published before, so that canaries could not go back; allowed: the first version without --canary")

// Try watches the relays for a while, and then gives a share of them a draft to run. The caller must end the trial with Promote
// or TakeBack.
func (o *Operator) Try(ctx context.Context, s State, d Draft, cfg TrialConfig) (*Trial, error) {
	switch {
	case s.Canary != nil && !d.EndCanary:
		return nil, &ConflictError{State: s}
	case s.Problem != nil:
		return nil, fmt.Errorf("%s: %w", configKey(o.Key), s.Problem)
	case s.Current.Version == 0:
		return nil, ErrFirst
	}
	if cfg.Before <= 0 {
		cfg.Before = defaultBefore
	}
	if cfg.Silence <= 0 {
		cfg.Silence = defaultSilence
	}
	v, oldest, err := o.next(ctx, &s, &d)
	if err != nil {
		return nil, err
	}
	t := &Trial{Version: v, o: o, cfg: cfg, state: s}
	present, _, err := t.present(ctx)
	if err != nil {
		return nil, err
	}
	if t.lease, err = o.Client.Grant(ctx, trialTTL); err != nil {
		return nil, err
	}
	t.until = time.Now().Add(trialTTL)
	alive, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.ended.Go(func() { t.keepAlive(alive) })
	t.view = o.watchReports(alive)
	t.judge = newJudge(cfg.Silence)
	t.hurry(ctx, present, ReportEvery(len(present)))
	c := Canary{Version: v.Version, Hash: v.Hash, Share: cfg.Share, By: shorten(o.By), Since: v.At}
	if err = t.watchBefore(ctx); err == nil {
		err = t.choose(ctx, &c)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	t.hurry(ctx, t.Canaries, 1)
	ops := []etcd.Op{
		etcd.Put(versionKey(o.Key, v.Version), encode(&v), 0),
		etcd.Put(configKey(o.Key), encode(&Current{s.Current.Version, s.Current.Hash, v.Version}), 0),
		etcd.Put(canaryKey(o.Key), encode(&c), t.lease),
		o.entry("canary", v.Version, strings.TrimSuffix(fmt.Sprintf("%d of %d relays: %s", c.Relays, c.Relays+t.Others, v.Message), ": ")),
	}
	if err := o.commit(ctx, &s, &v, append(ops, o.prune(oldest, s.Current.Version)...)); err != nil {
		t.close()
		return nil, err
	}
	if t.state, err = o.State(ctx); err == nil && (t.state.Canary == nil || t.state.Canary.Version != v.Version) {
		err = &ConflictError{State: t.state}
	}
	if err != nil {
		t.close() // which takes the canary back, or it ends by itself
		return nil, fmt.Errorf("the trial was not begun, or ends within %v: %w", trialTTL, err)
	}
	t.judge.begin(v.Version, t.Canaries)
	return t, nil
}

// present returns the relays that have their configuration from here, and those of them that are ready and not drained. It
// is an error if one runs a later version than there has been: it stays with that until a number as high is given.
func (t *Trial) present(ctx context.Context) (all, healthy []string, err error) {
	nodes, err := t.o.Nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		if !n.Present() || n.Error == "" && n.Version == 0 {
			continue
		}
		if last := t.state.Current.Last; n.Version > last && n.Version-last < maxLead {
			return nil, nil, fmt.Errorf("%s runs version %d, and there have been only %d: etcd was restored from a backup, and a trial would have all other relays go back to version %d; allowed: to publish without --canary what they shall run", n.Node, n.Version, last, t.state.Current.Version)
		}
		all = append(all, n.Node)
		if n.Healthy() {
			healthy = append(healthy, n.Node)
		}
	}
	if len(all) == 0 {
		return nil, nil, ErrNoRelays
	}
	return all, healthy, nil
}

// choose chooses the canaries among the relays that are ready and not drained.
func (t *Trial) choose(ctx context.Context, c *Canary) error {
	all, healthy, err := t.present(ctx)
	if err != nil {
		return err
	}
	if len(healthy) == 0 {
		return fmt.Errorf("of %d relays none is ready, so that nobody could try the version; penstock fleet status shows why", len(all))
	}
	t.Canaries, c.Below = chooseCanaries(healthy, t.Version.Version, c.Share)
	c.Relays, t.Others, t.LeftOut = len(t.Canaries), len(healthy)-len(t.Canaries), len(all)-len(healthy)
	return nil
}

// watchBefore watches the relays until they have reported for as long as is needed, or for three times as long.
func (t *Trial) watchBefore(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); ; {
		t.judge.watch(t.view.reports())
		if passed := time.Since(begun); passed >= 3*t.cfg.Before || passed >= t.cfg.Before && t.judge.watched() >= t.cfg.Before {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// revoke ends a lease.
func (o *Operator) revoke(lease etcd.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	o.Client.Revoke(ctx, lease) // or it ends by itself
}

// hurry orders relays to report more often, for as long as the trial lasts. It is no failure if they do not.
func (t *Trial) hurry(ctx context.Context, nodes []string, every int) {
	order := Order{ID: newID(), Kind: OrderReport, By: t.o.By, At: time.Now(), Every: every}
	t.o.give(ctx, nodes, order.ID, encode(&order), t.lease)
}

// keepAlive keeps the lease alive until ctx ends.
func (t *Trial) keepAlive(ctx context.Context) {
	for remote.Sleep(ctx, trialTTL/5) == nil {
		ttl, err := t.o.Client.KeepAlive(ctx, t.lease)
		t.mu.Lock()
		switch {
		case err == nil:
			t.until = time.Now().Add(ttl)
		case errors.Is(err, etcd.ErrNoLease):
			t.lost = true
		}
		t.mu.Unlock()
	}
}

// close ends what is left of the trial.
func (t *Trial) close() {
	t.cancel()
	t.view.close()
	t.ended.Wait()
	t.o.revoke(t.lease)
}

// Promote makes the version the one that all relays run. The error is a ConflictError if somebody has ended the
// trial.
func (t *Trial) Promote(ctx context.Context) error {
	defer t.close()
	v, config := &t.Version, configKey(t.o.Key)
	trial := []etcd.Compare{etcd.ModIs(config, t.state.mod), etcd.ModIs(canaryKey(t.o.Key), t.state.canaryMod)}
	look := []etcd.Op{etcd.Get(config), etcd.Get(canaryKey(t.o.Key))}
	r, err := t.o.Client.Do(ctx, etcd.Txn{
		If: trial,
		Then: []etcd.Op{
			etcd.Put(config, encode(&Current{v.Version, v.Hash, v.Version}), 0),
			etcd.Delete(canaryKey(t.o.Key)), t.o.entry("promote", v.Version, v.Message),
		},
		Else: look,
	})
	failed := err
	if unanswered(err) {
		if r, err = t.o.settle(ctx, etcd.Txn{If: trial, Then: []etcd.Op{etcd.Put(config, encode(&t.state.Current), 0)}, Else: look}); err != nil {
			return &unknownError{"the version was published", "penstock history", failed}
		}
	}
	var now State
	if err == nil && !r.Succeeded {
		now = stateOf(r.Answers)
	}
	// A fence whose own answer was lost has written the configuration again, and left the trial as it was.
	fenced := r.Succeeded || now.Current == t.state.Current && now.canaryMod == t.state.canaryMod
	switch {
	case err != nil, failed != nil && fenced:
		return fmt.Errorf("the version was not published, and is taken back: %w", failed)
	case r.Succeeded, failed != nil && now.Current.Version == v.Version:
		return nil
	}
	return t.o.conflict(ctx, &t.state, now)
}

// TakeBack makes the canaries go back to the version before. If etcd does not answer, they do when the lease ends.
func (t *Trial) TakeBack(ctx context.Context, why string) error {
	defer t.close()
	r, err := t.o.Client.Do(ctx, etcd.Txn{
		If:   []etcd.Compare{etcd.ModIs(canaryKey(t.o.Key), t.state.canaryMod)},
		Then: []etcd.Op{etcd.Delete(canaryKey(t.o.Key)), t.o.entry("take-back", t.Version.Version, why)},
	})
	if err != nil {
		return fmt.Errorf("the canary ends by itself in %v: %w", trialTTL, err)
	}
	if !r.Succeeded { // it is gone already; who tries the version says why
		t.o.Log(ctx, "take-back", fmt.Sprintf("version %d", t.Version.Version), why)
	}
	return nil
}

// Watch looks at the relays' reports until the canaries have run the version for long enough, or something is
// wrong with them. If they have seen too few flows by then, or have run it for less than leastSeconds, it takes up to
// longestTrial times as long. tell is called about every second.
func (t *Trial) Watch(ctx context.Context, long time.Duration, tell func(Progress)) Progress {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	var at moment
	for {
		passed := time.Since(begun)
		over, why, revision := t.checkOver(ctx)
		at.ended, at.late = passed >= long, passed >= longestTrial*max(long, leastSeconds*time.Second)
		if at.ended && at.after == 0 {
			at.after = revision
		}
		p := t.judge.look(t.view.reports(), at)
		switch {
		case over && p.Outcome != Bad:
			p.Outcome, p.Why = Bad, why
		case why != "" && (p.Outcome == Good || p.Outcome == Unjudged):
			p.Outcome, p.Why = Undecided, why // the lease ends soon, or etcd answers
		}
		if tell(p); p.Outcome != Undecided {
			return p
		}
		select {
		case <-ctx.Done():
			p.Outcome, p.Why = Bad, "interrupted"
			return p
		case <-tick.C:
		}
	}
}

// checkOver reports whether the trial has ended without this process, and why. Otherwise it returns the revision of etcd, or why
// it does not answer.
func (t *Trial) checkOver(ctx context.Context) (over bool, why string, revision int64) {
	t.mu.Lock()
	lost, until := t.lost, t.until
	t.mu.Unlock()
	switch {
	case lost, time.Now().After(until):
		return true, fmt.Sprintf("etcd was away for %v, which has ended the trial", trialTTL), 0
	}
	s, err := t.o.State(ctx)
	if err != nil {
		return false, "etcd does not answer: " + err.Error(), 0
	}
	if s.canaryMod != t.state.canaryMod || s.mod != t.state.mod {
		why := "somebody has ended the trial"
		if e := (*ConflictError)(nil); errors.As(t.o.conflict(ctx, &t.state, s), &e) && e.By.Version != 0 {
			why += ": " + publishedBy(&e.By)
		}
		return true, why + "; penstock fleet log shows who did what", 0
	}
	return false, "", s.revision
}
