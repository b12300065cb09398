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
// \tTry ──▶ Watch ──good──▶ Promote
// \t          └──bad, or it took too long──▶ TakeBack
type Trial struct {
	Version  Version
	Canaries []string // names of relays
	Others   int

	o      *Operator
	state  State // with the canary
	lease  etcd.LeaseID
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu    sync.Mutex
	until time.Time // when the lease ends, unless it is kept alive
	lost  bool      // it has ended
}

// trialTTL is how long a canary stays after the death of who tries it.
const trialTTL = 15 * time.Second

// ErrNoRelays is returned if no relay reports that could be a canary.
var ErrNoRelays = errors.New("no relay reports to this fleet, so that nobody could try the version; without --canary, it is published")

// ErrFirst is returned if there is no version that canaries could go back to.
var ErrFirst = errors.New("nothing has been published before, so that canaries could not go back; allowed: the first version without --canary")

// Try has a share of the relays run a draft. The caller must end the trial with Promote or TakeBack.
func (o *Operator) Try(ctx context.Context, s State, d Draft, share float64) (*Trial, error) {
	switch {
	case s.Canary != nil && !d.EndCanary:
		return nil, &ConflictError{State: s}
	case s.Problem != nil:
		return nil, fmt.Errorf("%s: %w", configKey(o.Key), s.Problem)
	case s.Current.Version == 0:
		return nil, ErrFirst
	}
	v, oldest, err := o.next(ctx, &s, &d)
	if err != nil {
		return nil, err
	}
	nodes, err := o.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var present []string
	for i := range nodes {
		if nodes[i].Present() && nodes[i].Error == "" && nodes[i].Report.Version != 0 {
			present = append(present, nodes[i].Node)
		}
	}
	if len(present) == 0 {
		return nil, ErrNoRelays
	}
	t := &Trial{Version: v, o: o}
	c := Canary{Version: v.Version, Hash: v.Hash, Share: share, By: shorten(o.By), Since: v.At}
	t.Canaries, c.Below = chooseCanaries(present, v.Version, share)
	c.Relays, t.Others = len(t.Canaries), len(present)-len(t.Canaries)
	if t.lease, err = o.Client.Grant(ctx, trialTTL); err != nil {
		return nil, err
	}
	t.until = time.Now().Add(trialTTL)
	ops := []etcd.Op{
		etcd.Put(versionKey(o.Key, v.Version), encode(&v), 0),
		etcd.Put(configKey(o.Key), encode(&Current{s.Current.Version, s.Current.Hash, v.Version}), 0),
		etcd.Put(canaryKey(o.Key), encode(&c), t.lease),
		o.entry("canary", v.Version, strings.TrimSuffix(fmt.Sprintf("%d of %d relays: %s", c.Relays, len(present), v.Message), ": ")),
	}
	if err := o.commit(ctx, &s, &v, append(ops, o.prune(oldest, s.Current.Version)...)); err != nil {
		o.revoke(t.lease)
		return nil, err
	}
	if t.state, err = o.State(ctx); err == nil && (t.state.Canary == nil || t.state.Canary.Version != v.Version) {
		err = &ConflictError{State: t.state}
	}
	if err != nil {
		o.revoke(t.lease) // which takes the canary back, or it ends by itself
		return nil, fmt.Errorf("the trial was not begun, or ends within %v: %w", trialTTL, err)
	}
	alive, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.ended.Go(func() { t.keepAlive(alive) })
	t.hurry(ctx, present)
	return t, nil
}

// revoke ends a lease.
func (o *Operator) revoke(lease etcd.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	o.Client.Revoke(ctx, lease) // or it ends by itself
}

// hurry orders relays to report every second, for as long as the trial lasts. It is no failure if they do not.
func (t *Trial) hurry(ctx context.Context, nodes []string) {
	order := Order{ID: newID(), Kind: OrderReport, By: t.o.By, At: time.Now(), Every: 1}
	text := encode(&order)
	for len(nodes) > 0 {
		part := nodes[:min(len(nodes), maxOps)]
		nodes = nodes[len(part):]
		var ops []etcd.Op
		for _, node := range part {
			ops = append(ops, etcd.Put(nodeOrdersPrefix(t.o.Key, node)+order.ID, text, t.lease))
		}
		if _, err := t.o.Client.Do(ctx, etcd.Txn{Then: ops}); err != nil {
			return
		}
	}
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
	switch {
	case err != nil, failed != nil && r.Succeeded:
		return fmt.Errorf("the version was not published, and is taken back: %w", failed)
	case r.Succeeded:
		return nil
	}
	now := stateOf(r.Answers)
	if failed != nil && now.Current.Version == v.Version {
		return nil
	}
	return t.o.conflict(ctx, &t.state, now)
}

// TakeBack has the canaries go back to the version before. If etcd does not answer, they do when the lease ends.
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
// wrong with them. tell is called about every second.
func (t *Trial) Watch(ctx context.Context, long time.Duration, tell func(Progress)) Progress {
	view := t.o.watchReports(ctx)
	defer view.close()
	j := newJudge(t.Version.Version, t.Canaries)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(long)
	for {
		p := j.look(view.reports(), time.Now(), end)
		if ended, why := t.over(ctx); ended && p.Outcome != Bad {
			p.Outcome, p.Why = Bad, why
		} else if why != "" && p.Outcome == Good {
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

// over reports whether the trial has ended without this process, and why.
func (t *Trial) over(ctx context.Context) (bool, string) {
	t.mu.Lock()
	lost, until := t.lost, t.until
	t.mu.Unlock()
	switch {
	case lost, time.Now().After(until):
		return true, fmt.Sprintf("etcd was away for %v, which has ended the trial", trialTTL)
	}
	s, err := t.o.State(ctx)
	if err != nil {
		return false, "etcd does not answer: " + err.Error()
	}
	if s.canaryMod != t.state.canaryMod || s.mod != t.state.mod {
		why := "somebody has ended the trial"
		if e := (*ConflictError)(nil); errors.As(t.o.conflict(ctx, &t.state, s), &e) && e.By.Version != 0 {
			why += ": " + publishedBy(&e.By)
		}
		return true, why + "; penstock fleet log shows who did what"
	}
	return false, ""
}

// AwaitVersion looks at the relays' reports until all of them run a version or have refused it, or ctx ends.
func (o *Operator) AwaitVersion(ctx context.Context, version int64, tell func(Progress)) Progress {
	view := o.watchReports(ctx)
	defer view.close()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	p := Progress{Why: "no reports could be read"}
	for {
		if reports := view.reports(); reports != nil {
			p = progressOf(reports, version)
			tell(p)
		}
		if p.Outcome != Undecided {
			return p
		}
		select {
		case <-ctx.Done():
			return p
		case <-tick.C:
		}
	}
}

// A reportView has the present reports.
type reportView struct {
	mu     sync.Mutex
	nodes  map[string]Report
	listed bool
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

func (o *Operator) watchReports(ctx context.Context) *reportView {
	ctx, cancel := context.WithCancel(ctx)
	v := &reportView{nodes: map[string]Report{}, cancel: cancel}
	prefix := nodesPrefix(o.Key)
	v.ended.Go(func() {
		o.Client.Follow(ctx, prefix, func(ch etcd.Change) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.listed = true; ch.All {
				clear(v.nodes)
			}
			for _, key := range ch.Deleted {
				name, _ := below(key, prefix)
				delete(v.nodes, name)
			}
			for _, kv := range ch.KVs {
				name, ok := below(kv.Key, prefix)
				if r, err := ParseReport(kv.Value); ok && err == nil {
					v.nodes[name] = r
				}
			}
		}, nil)
	})
	return v
}

// reports returns a copy; nil: nothing is known yet.
func (v *reportView) reports() map[string]Report {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.listed {
		return nil
	}
	list := make(map[string]Report, len(v.nodes))
	for name, r := range v.nodes {
		list[name] = r
	}
	return list
}

func (v *reportView) close() {
	v.cancel()
	v.ended.Wait()
}
