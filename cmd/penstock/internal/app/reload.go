package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// reloads read the configuration again. They are counted, and the last failure is remembered.
type reloads struct {
	// load reads the configuration; nil: there is no file. Its parts that are in registries come from remotes. Both are set before the first
	// configuration is applied.
	load    func() (*spec.Config, config.Warnings, error)
	remotes *sources.Remotes

	// order is held from reading the configuration until it is the running one. Otherwise an
	// earlier reading could replace a later one.
	order sync.Mutex

	mu     sync.Mutex
	good   int64
	bad    int64
	failed *api.FailedReload // the last one, if it failed
	asked  keeping.Reloads   // of all workers
	left   bool              // the worker before has left one to this one, which is not ready yet
}

// count counts a reload that was carried out, or is due in the next worker.
func (r *reloads) count(due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = keeping.Reloads{Number: r.asked.Number + 1, Due: due}
}

// all returns what the next worker is told of reloads.
func (r *reloads) all() keeping.Reloads {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// saved returns what is saved of reloads. What the worker before has left is due until this one is ready: if it dies before, the next one
// has the configuration of the worker before.
func (r *reloads) saved() keeping.Reloads {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.asked
	s.Due = s.Due || r.left
	return s
}

// ready notes that what this worker has read is in effect, and reports whether that was left to it.
func (r *reloads) ready() (left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, r.left = r.left, false
	return left
}

func (r *reloads) lastFailed() *api.FailedReload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// The names of the counts of reloads, which go on in the next worker.
const (
	reloadsGood = "reloads.good"
	reloadsBad  = "reloads.bad"
)

// Reload reads the configuration again and makes it the running one. If it is invalid nothing
// changes, and the error and the log say why.
func (d *daemon) Reload(ctx context.Context) (api.Diff, error) {
	return d.reload(ctx, admin.Actor(ctx))
}

// reload is Reload for by: an operator, a signal, or a change of the file.
func (d *daemon) reload(ctx context.Context, by string) (api.Diff, error) {
	d.reloads.order.Lock()
	defer d.reloads.order.Unlock()
	old := d.active.Load()
	d.reloads.remotes.Take()
	cfg, warnings, err := d.reloads.read()
	var diff config.Diff
	var told api.Diff
	if err == nil {
		logWarnings(d.log.Logger, warnings)
		diff = config.Compare(old.Config, cfg)
		told = d.describeDiff(diff, cfg)
		if d.handingOver.Load() {
			return d.leaveReload(by, told), nil
		}
		err = d.apply(ctx, cfg)
	} else if missing := d.sandboxed.MissingFiles(); len(missing) > 0 {
		err = fmt.Errorf("%w: %w", &needsMore{"the configuration", missing}, err)
	}
	if d.refusedBySandbox(err) {
		if d.keeping.Up() && !d.replacedInVain() {
			return d.reloadByAnother(ctx, by, told, err)
		}
		err = withoutReplacement(d.sandboxed.Explain(err))
	}
	d.settleRemotes(err)
	if errors.Is(err, net.ErrClosed) && d.handingOver.Load() { // it was not when this began
		return d.leaveReload(by, told), nil
	}
	if errors.Is(err, net.ErrClosed) { // the engine's answer: nothing is wrong with the configuration
		d.notifyManager() // which was told that a reload has begun
		return api.Diff{}, api.NewProblem(http.StatusServiceUnavailable, "this process ends: it hands over to another worker, or drains", "the same request, again")
	}
	defer func() {
		d.notifyManager()
		d.fleet.changed()
		d.saveState(savedSources) // the next worker tells, too, that the last reload failed
	}()
	d.reloads.count(false) // whatever has become of it, none is due
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	if err != nil {
		d.reloads.bad++
		d.keeping.Values.GoOn(reloadsBad, d.reloads.bad)
		problem := badConfig(err)
		d.reloads.failed = &api.FailedReload{Time: time.Now(), Errors: problem.Errors}
		for _, e := range strings.Split(config.Message(err), "\n") {
			d.log.Error("configuration rejected; nothing changed", "by", by, "error", e)
		}
		d.log.eventBy(by, slog.LevelError, "reload", old.Source, problem.Error())
		return api.Diff{}, problem
	}
	d.reloads.good++
	d.keeping.Values.GoOn(reloadsGood, d.reloads.good)
	d.reloads.failed = nil
	d.log.level.Set(logs.LevelOf(cfg.Log.Level))
	d.log.Info("reloaded", "by", by, "source", cfg.Source, "changes", len(told.Changes), "flows", told.Flows)
	later := d.keysForLater(diff)
	if len(later.service) > 0 {
		d.log.Warn("some changes take effect only after a restart", "keys", strings.Join(later.service, ", "))
	}
	if len(later.worker) > 0 {
		d.log.Info("another worker takes over, because a running one cannot change these", "keys", strings.Join(later.worker, ", "))
		before := d.keeping.LastUpgrade().ID
		if err := d.keeping.Restart(); err != nil {
			d.log.Error("no other worker", "error", err)
		}
		d.background.Go(func() { d.watchReplacement(before, d.keysNotChanged(by, later.worker)) })
	}
	d.log.eventBy(by, slog.LevelInfo, "reload", cfg.Source, "configuration loaded")
	told.Applied = true
	return told, nil
}

// reloadByAnother hands over to another worker to apply what this one cannot. If that one rejects the configuration,
// too, the error says why.
func (d *daemon) reloadByAnother(ctx context.Context, by string, told api.Diff, why error) (api.Diff, error) {
	d.notifyManager()
	d.reloads.count(true) // should this worker die before the other one takes over
	d.saveState(savedSources)
	if err := d.replace(ctx, by, why, d.reloadNotReplaced(by)); err != nil {
		d.reloads.count(false)
		d.saveState(savedSources)
		return api.Diff{}, badConfig(err)
	}
	told.NewWorker, told.Applied, told.TLSFlows = true, true, d.tlsEnds()
	d.log.eventBy(by, slog.LevelInfo, "reload", d.active.Load().Source, "another worker takes over: "+why.Error())
	return told, nil
}

// leaveReload leaves a reload to the next worker, because this one hands over.
func (d *daemon) leaveReload(by string, told api.Diff) api.Diff {
	d.log.Info("the next worker reloads, because this one hands over", "by", by)
	d.reloads.count(true)
	d.saveState(savedSources)
	told.NewWorker, told.Applied, told.TLSFlows = true, true, d.tlsEnds()
	return told
}

// settleRemotes says what has become of the versions that a reload has taken from registries.
func (d *daemon) settleRemotes(err error) {
	d.tellNotKept(d.reloads.remotes.Settle(err))
}

// tellNotKept logs that a version could not be written to disk.
func (d *daemon) tellNotKept(failed error) {
	if failed != nil {
		d.log.Warn("the last good configuration is not on the disk: a start without the registry would use an older one, or wait", "error", failed)
	}
}

// tellRemote logs something about a registry.
func (d *daemon) tellRemote(level slog.Level, subject, message string) {
	d.log.Log(context.Background(), level, message, "source", subject)
	d.log.event(level, "reload", subject, message)
}

// notifyManager tells the service manager that the daemon serves, and whether the last reload
// failed.
func (d *daemon) notifyManager() {
	status := "serving"
	if f := d.reloads.lastFailed(); f != nil && len(f.Errors) > 0 {
		status = "serving with the previous configuration; the last reload failed: " + f.Errors[0].Message
	}
	if err := d.keeping.Manager().Ready(status); err != nil {
		d.log.Warn("cannot notify the service manager", "error", err)
	}
}

// read reads the configuration as a reload does.
func (r *reloads) read() (*spec.Config, config.Warnings, error) {
	if r.load == nil {
		return nil, nil, api.NewProblem(http.StatusConflict, "this daemon has no configuration file: it was started by penstock relay", "")
	}
	return r.load()
}

// FileDiff returns what a reload would change now.
func (d *daemon) FileDiff(context.Context) (api.Diff, error) {
	cfg, _, err := d.reloads.read()
	if err != nil {
		return api.Diff{}, badConfig(err)
	}
	return d.describeDiff(config.Compare(d.active.Load().Config, cfg), cfg), nil
}

// Diff returns what the configuration in text would change.
func (d *daemon) Diff(_ context.Context, text []byte) (api.Diff, error) {
	old := d.active.Load()
	cfg, err := config.Parse("request", text, rules.Everywhere...)
	if err != nil {
		return api.Diff{}, badConfig(err)
	}
	// The token files are not read.
	cfg.Admin.Token, cfg.Admin.ReadToken = old.Admin.Token, old.Admin.ReadToken
	return d.describeDiff(config.Compare(old.Config, cfg), cfg), nil
}

// laterKeys are changed keys that a reload does not apply.
type laterKeys struct {
	worker  []string // another worker of the same keeper does
	service []string // the next start of the service does
}

// keysForLater returns the changed keys that a reload does not apply.
func (d *daemon) keysForLater(diff config.Diff) (l laterKeys) {
	worker := &l.service
	if d.keeping.Up() {
		worker = &l.worker
	}
	for _, c := range slices.Concat(diff.Restart, diff.Settings) {
		switch when := sandboxneeds.WhenChanged(c.Key); {
		case when == sandboxneeds.NextService:
			l.service = append(l.service, c.Key)
		case when == sandboxneeds.NextWorker, when == sandboxneeds.ByKeeper && !d.keeping.Up():
			*worker = append(*worker, c.Key)
		}
	}
	return l
}

// keepUntilRestart returns next with the settings that a reload does not apply taken from old, so
// that the running configuration is what is really running, and the next one is compared with
// that.
func keepUntilRestart(old, next *spec.Config) *spec.Config {
	kept := *next
	kept.Engine, kept.Admin, kept.Log.Format, kept.Keeper, kept.Sandbox = old.Engine, old.Admin, old.Log.Format, old.Keeper, old.Sandbox
	if old.Keeper != nil && next.Keeper != nil {
		k := *next.Keeper
		k.KeepAfter = old.Keeper.KeepAfter
		kept.Keeper = &k
	}
	return &kept
}

// badConfig returns the API's answer to an invalid configuration.
func badConfig(err error) *api.Problem {
	var problem *api.Problem
	var errs config.Errors
	switch {
	case errors.As(err, &problem):
		return problem
	case !errors.As(err, &errs):
		return api.BadConfig([]api.ConfigError{{Message: err.Error()}})
	}
	list := make([]api.ConfigError, len(errs))
	for i, e := range errs {
		list[i] = api.ConfigError{Source: e.File, Line: e.Line, Column: e.Column, Message: e.Message(), Allowed: e.Allowed}
	}
	return api.BadConfig(list)
}

// describeDiff converts a diff for the API and counts the open flows that each change ends, now or
// after a drain. A flow whose route keeps such flows continues.
func (d *daemon) describeDiff(diff config.Diff, cfg *spec.Config) api.Diff {
	old := d.active.Load()
	later := d.keysForLater(diff)
	out := api.Diff{Hash: spec.HashOf(cfg.Text), Restart: len(later.service) > 0, NewWorker: len(later.worker) > 0}
	if out.NewWorker {
		out.TLSFlows = d.tlsEnds()
	}
	type key struct{ kind, name string }
	place := map[key]int{}
	add := func(kind, name, what string, changes []config.Change) {
		if what == "" {
			return
		}
		c := api.Change{Kind: kind, Name: name, What: changeNames[what]}
		if kind == "setting" {
			c.Restart, c.NewWorker = slices.Contains(later.service, name), slices.Contains(later.worker, name)
		}
		for _, f := range changes {
			c.Fields = append(c.Fields, f.Key)
		}
		place[key{kind, name}] = len(out.Changes)
		out.Changes = append(out.Changes, c)
	}
	for _, c := range diff.Restart {
		add("setting", c.Key, config.Changed, []config.Change{c})
	}
	for _, c := range diff.Settings {
		add("setting", c.Key, config.Changed, []config.Change{c})
	}
	for _, l := range diff.Listeners {
		add("listener", l.Name, l.What, l.Changes)
		for _, r := range l.Routes {
			add("route", l.Name+"/"+r.Name, r.What, r.Changes)
		}
	}
	for _, g := range diff.Groups {
		add("group", g.Name, g.What, g.Changes)
		for _, m := range g.Members {
			add("member", g.Name+"/"+m.Name, m.What, m.Changes)
		}
	}
	hooks.EachFlow(d.engine, func(_ *relay.FlowInfo, p *hooks.State) {
		n := p.Names()
		l := p.Listener()
		if plan := old.planOf(l); plan != nil {
			l = plan.Spec // by its present name
			n.Listener = l.Name
		}
		loses, ends := diff.Loses(n.Listener, n.Route, n.Group, n.Member)
		if goesOn(p, l, cfg) {
			loses, ends = diff.Loses("", "", n.Group, n.Member)
		}
		if w := p.Target(); !loses || !ends && (w == nil || w.Route.Removed.What == "keep") {
			return
		}
		out.Flows++
		for _, k := range []key{{"listener", n.Listener}, {"route", n.Listener + "/" + n.Route}, {"group", n.Group}, {"member", n.Group + "/" + n.Member}} {
			if at, ok := place[k]; ok {
				out.Changes[at].Flows++
			}
		}
	})
	return out
}

// goesOn reports whether a flow's listener, which is now as given, only gets another name in a
// configuration, and the flow's route leads to the same group.
func goesOn(p *hooks.State, now *spec.Listener, cfg *spec.Config) bool {
	w := p.Target()
	if w == nil || slices.ContainsFunc(cfg.Listeners, func(l *spec.Listener) bool { return l.Name == now.Name }) {
		return false
	}
	key := bindKeyOf(now, 0)
	i := slices.IndexFunc(cfg.Listeners, func(l *spec.Listener) bool { return bindKeyOf(l, 0) == key })
	return i >= 0 && slices.ContainsFunc(cfg.Listeners[i].AllRoutes(), func(r *spec.Route) bool {
		return r.Name == w.Route.Name && w.In(r)
	})
}

// changeNames maps the names of changes in package config to those of the API.
var changeNames = map[string]string{config.New: "added", config.Gone: "removed", config.Changed: "changed"}
