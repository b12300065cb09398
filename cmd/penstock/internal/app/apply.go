package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// An application is a configuration on its way to be the running one.
type application struct {
	*daemon
	ctx     context.Context // its end ends lookups of listeners' names
	written *spec.Config    // as it was read
	old     *activeConfig

	others  host.Ports // what anybody had bound before; nil: some is this daemon's
	sockets map[bindKey]*hooks.Socket
	own     *cycle.Listeners
	servers map[string]*certs.Server // by listener
	lists   *lists.Table
	logs    *hooks.Logs
	next    *activeConfig // made when nothing can fail any more
	leaving []*spec.Group // groups that are removed, or whose members give way to a destination: as they were, they serve until no listener leads to them
}

// A stage is a part of the application of a configuration. All are prepared, in their order, and then all are committed. If one cannot be
// prepared, those before it and it are undone, the last one first, and nothing has changed.
type stage struct {
	name    string
	place   string // why it is where it is
	prepare func(*application) error
	commit  func(*application)
	undo    func(*application) // also if prepare has failed
}

// stages returns the parts of apply.
func stages() []stage {
	return []stage{
		{name: "needs", place: "what this process has given up is refused, or left to another one, before anything is opened",
			prepare: func(a *application) error { return a.checkNeeds(a.written) }},
		{name: "admin", place: "the next worker would go on without a port that somebody else has; nothing is opened to find out",
			prepare: func(a *application) error { return a.checkAdmin(&a.written.Admin) }},
		{name: "ports of others", place: "they are looked at before this daemon has the same",
			prepare: (*application).lookAtPorts, commit: func(a *application) { a.warnOfSharedPorts(a.sockets, a.others) }},
		{name: "sockets", place: "new ones are bound, and paused, while this process may still bind them",
			prepare: (*application).bind, undo: func(a *application) { a.closeListeners(a.sockets, a.listening.bound) }},
		{name: "cycles", place: "only now the ports of listeners are known that have any free one",
			prepare: func(a *application) error { return a.goWithout(cycle.Check(a.own, a.written.Listeners)) }},
		{name: "capabilities", place: "the sandbox takes them away, and options are tried on a socket",
			prepare: func(a *application) error { return a.goWithout(checkCapabilities(a.written.Groups)) }},
		{name: "certificates", place: "files may be readable only before the sandbox, or by another worker",
			prepare: func(a *application) (err error) { a.servers, err = a.openCertificates(a.written); return err }},
		{name: "files of TLS to members", place: "as certificates",
			prepare: func(a *application) error { return a.goWithout(a.checkClientFiles(a.written)) }},
		{name: "lists", place: "as certificates", prepare: (*application).openLists},
		{name: "logs", place: "files may be writable only before the sandbox, or by another worker; clients of the new listeners are in the new ones",
			prepare: (*application).openLogs, commit: func(a *application) { a.hooks.Accounting.Use(a.logs) }, undo: func(a *application) { a.logs.Close() }},
		{name: "sandbox", place: "everything is open that needs privileges, and nobody was accepted or asked yet",
			prepare: func(a *application) error { return a.enterSandbox(a.written, a.sockets) }},

		{name: "fleet's checks", place: "members are checked as soon as they are there, and whether their checks are shared must be known then",
			commit: (*application).makeNext},
		{name: "groups and listeners", place: "nothing can fail any more; whoever must not see some of both configurations waits meanwhile",
			commit: (*application).switchOver},
		{name: "lists from elsewhere", place: "they are loaded, and files of those that are gone removed, by what is active",
			commit: func(a *application) { a.pokeLists() }},
		{name: "old sockets", place: "new clients go by the new listeners already",
			commit: (*application).closeOld},
		{name: "members that lead back", place: "the members are those of the new groups", commit: func(a *application) { a.updateCycles() }},
		{name: "flows that end", place: "what was removed is known by what is there, and what groups say of flows is what they say now", commit: func(a *application) { a.flows.ScheduleEnds() }},
		{name: "fleet", place: "it reports what runs", commit: func(a *application) { a.fleet.use(a.next.Config) }},
		{name: "keeper", place: "the next worker begins with what runs, and with nothing that was refused", commit: (*application).tellKeeper},
	}
}

// apply makes cfg the running configuration, as a whole or not at all. New sockets are bound
// before anything changes; on an error nothing has changed. When the first one is applied, this process enters its
// sandbox: nobody was accepted, and nothing was asked, before. The end of ctx ends lookups of
// listeners' names.
func (d *daemon) apply(ctx context.Context, cfg *spec.Config) error {
	return d.applyStages(ctx, cfg, stages())
}

func (d *daemon) applyStages(ctx context.Context, cfg *spec.Config, stages []stage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := &application{daemon: d, ctx: ctx, written: cfg, old: d.active.Load()}
	for i := range stages {
		if stages[i].prepare == nil {
			continue
		}
		if err := stages[i].prepare(a); err != nil {
			for ; i >= 0; i-- {
				if undo := stages[i].undo; undo != nil {
					undo(a)
				}
			}
			return err
		}
	}
	for i := range stages {
		if commit := stages[i].commit; commit != nil {
			commit(a)
		}
	}
	return nil
}

func (a *application) lookAtPorts() error {
	if a.old.since.IsZero() && a.keeping.First() { // later, some are this daemon's
		a.others = host.PortsInUse()
	}
	return nil
}

func (a *application) bind() (err error) {
	a.sockets, err = a.bindListeners(a.ctx, a.written.Listeners)
	a.own = cycle.NewListeners(a.written.Listeners, func(l *spec.Listener) (list []relay.Addr) {
		for _, b := range bindKeysOf(l) {
			if p := a.sockets[b]; p != nil {
				list = append(list, p.Addr())
			}
		}
		return list
	})
	return err
}

func (a *application) openLogs() (err error) {
	a.logs, err = a.hooks.Accounting.Open(a.written, a.shortfall.accepted)
	return err
}

// makeNext makes what will be active.
func (a *application) makeNext() {
	cfg := a.written
	if !a.old.since.IsZero() {
		cfg = keepUntilRestart(a.old.Config, cfg)
	}
	a.next = &activeConfig{Config: cfg, since: time.Now(), total: admit.NewTotal(cfg.Limits, a.old.total), plans: map[string]*hooks.Plan{}, ownListeners: a.own, lists: a.lists}
	a.keeping.RestoreTotal(a.next.total)
	a.leaving = leavingGroups(a.old.Config, cfg)
	a.fleet.expect(cfg)
}

// switchOver makes groups and listeners those of the new configuration.
func (a *application) switchOver() {
	a.active.switching.Lock()
	defer a.active.switching.Unlock()
	cfg, groups := a.next.Config, slices.Clone(a.leaving)
	leaving := map[string]bool{}
	for _, g := range a.leaving {
		leaving[g.Name] = true
	}
	for _, g := range a.next.Groups {
		if !leaving[g.Name] {
			groups = append(groups, g)
		}
	}
	a.clients.Set((&spec.Config{Groups: groups}).ClientTLS())
	a.set.Apply(groups)
	for _, l := range cfg.Listeners {
		gate := admit.NewController(a.next.total, l, a.lists, a.gateBefore(l))
		a.keeping.RestoreLimits(l.Name, gate)
		s := hooks.NewPlan(l, gate, a.set, a.clients, a.hooks.Accounting.Counters(), a.lists)
		s.Certs = a.servers[l.Name]
		a.splits.apply(s)
		a.next.plans[l.Name] = s
		a.usePlan(l, s, a.sockets)
	}
	a.hooks.Names.SetLimits(cfg.Names)
	a.active.Store(a.next)
	a.splits.forget(a.next)
	if len(a.leaving) > 0 {
		a.set.Apply(cfg.Groups)
		a.clients.Set(cfg.ClientTLS())
	}
}

// gateBefore returns the admission that a listener goes on with: counts of limits are kept with the sockets, or if all are new, with the
// name; nil: there are none.
func (a *application) gateBefore(l *spec.Listener) *admit.Controller {
	for _, b := range bindKeysOf(l) {
		if p := a.sockets[b]; p != nil {
			if was := p.Plan.Load(); was != nil {
				return was.Gate
			}
		}
	}
	if was := a.old.plans[l.Name]; was != nil {
		return was.Gate
	}
	return nil
}

func (a *application) closeOld() {
	gone := a.listening.bound
	a.listening.bound = a.sockets
	a.closeListeners(gone, a.listening.bound)
}

func (a *application) tellKeeper() {
	if err := a.keeping.UseTimes(a.next.Keeper); err != nil {
		a.log.Warn("the keeper does not know the present times", "error", err)
	}
	if err := a.keeping.SaveConfig(a.written, a.addressesToKeep(a.written, a.listening.bound)); err != nil {
		a.log.Warn("the keeper does not have the present configuration", "error", err)
	}
}

// checkCapabilities tries the socket options of groups that need a capability: without it every
// flow would fail.
func checkCapabilities(groups []*spec.Group) error {
	for _, g := range groups {
		if err := host.CheckSocketOptions(&g.Dial); err != nil {
			if errors.Is(err, syscall.EPERM) {
				err = fmt.Errorf("%w; allowed: with CAP_NET_ADMIN", err)
			}
			return fmt.Errorf("group %s: %w", g.Name, err)
		}
	}
	return nil
}

// leavingGroups returns the groups of old that next does not have, or not with members: flows that wait in their queues are routed again when
// the queues end, and must find where the listeners lead then.
func leavingGroups(old, next *spec.Config) (leaving []*spec.Group) {
	named := map[string]*spec.Group{}
	for _, g := range next.Groups {
		named[g.Name] = g
	}
	for _, g := range old.Groups {
		if now := named[g.Name]; now == nil || now.Destination != nil && g.Destination == nil {
			leaving = append(leaving, g)
		}
	}
	return leaving
}
