package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/keeper"
)

// Members that are added or moved while the daemon runs are a part of what the process needs, as those of the configuration. One to
// which it may not connect is for the next worker, which takes over at once, as for a reload:
//
//	AddMember, SetMember ──▶ upstream.Next ──replace──▶ the next worker: its policy has the port, and the member is up
//	                                        ──failed───▶ forgotten, and refused
//
// Until then this one goes on with the members that it has. After a crash in between, the worker that is in the sandbox of the one before
// leaves them to the next one, too.

// memberNeeds returns what a member that is added, or moved to an address, needs and this process has given up. The error says that no
// other worker would have it, either, or that there can be none.
func (d *daemon) memberNeeds(g *spec.Group, to ...spec.Endpoint) (missing sandboxneeds.Needs, err error) {
	c := d.sandboxed
	if c == nil || !slices.ContainsFunc(to, func(e spec.Endpoint) bool { return !c.Permits(e) }) {
		return nil, nil
	}
	in := c.Input(d.active.Load().Config)
	in.Members[g.Name] = append(in.Members[g.Name], to...)
	needs := sandboxneeds.Of(in).AtRunTime()
	missing = c.Held().Missing(needs, nil)
	never := slices.DeleteFunc(needs.NotGranted(), func(n sandboxneeds.Need) bool { return !slices.Contains(missing, n) })
	more := &needsMore{"the member", missing}
	switch {
	case len(never) > 0:
		return nil, api.NewProblem(http.StatusConflict, fmt.Sprintf("the member needs %s, and members at run time get up to %d ports and nothing else beside what the configuration needs (sandbox)", never, sandboxneeds.MaxAtRunTime),
			"the member in the configuration, and a reload; or sandbox: {mode: off}")
	case !d.keeping.Up():
		return nil, api.NewProblem(http.StatusConflict, more.Error(), "the member in the configuration, and a restart of the service; or keeper: {}, with which another worker takes over; or sandbox: {mode: off}")
	}
	return missing, nil
}

// changeByAnother changes a member for the next worker, and hands over to it.
func (d *daemon) changeByAnother(ctx context.Context, group, name string, missing sandboxneeds.Needs, change func(upstream.Next) error) (api.Members, error) {
	d.reloads.order.Lock() // which may hand over to another worker, too
	defer d.reloads.order.Unlock()
	if err := change(d.set.Next()); err != nil {
		return api.Members{}, memberProblem(err)
	}
	d.saveState(savedSources)
	if err := d.replace(ctx, admin.Actor(ctx), &needsMore{"the member", missing}, d.membersNotReplaced); err != nil {
		d.set.Next().Discard()
		return api.Members{}, api.NewProblem(http.StatusConflict, "the member was not changed: "+err.Error(), "")
	}
	return api.Members{Members: d.membersNamed(group, name), NewWorker: true, TLSFlows: d.tlsEnds()}, nil
}

// membersNotReplaced forgets the members of the next worker, because there is none.
func (d *daemon) membersNotReplaced(u *keeper.Upgrade) {
	d.set.Next().Discard()
	d.saveState(savedSources)
	told := "members that were added or moved are left out, because the sandbox does not let this worker connect to them, and no other one could take over: " + u.Reason
	d.log.Error(told)
	d.log.event(slog.LevelError, "member", "daemon", told)
}

// leaveMembers hands over to another worker if operators of the one before wanted members to which this one may not connect, because it is
// in the sandbox of that one.
func (d *daemon) leaveMembers() {
	if !d.set.Next().Pending() {
		return
	}
	c := d.sandboxed
	missing := c.Held().Missing(sandboxneeds.Of(c.Input(d.active.Load().Config)).AtRunTime(), nil)
	if !d.keeping.InSandboxBefore() || !d.keeping.Up() {
		d.membersNotReplaced(&keeper.Upgrade{Reason: missing.String() + " is not granted to members at run time"})
		return
	}
	if u := d.keeping.NotReplaced(); u != nil {
		d.membersNotReplaced(u)
		return
	}
	before, err := d.replaceFor("the sandbox", &needsMore{"a member", missing})
	if err != nil {
		d.log.Error("no other worker", "error", err)
		return
	}
	d.background.Go(func() { d.watchReplacement(before, d.membersNotReplaced) })
}
