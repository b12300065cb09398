package app

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
)

// forgetInterval is how often the counts of members that are gone lose their names.
const forgetInterval = time.Minute

// forgetMembers calls forgetGoneMembers from time to time until the daemon closes.
func (d *daemon) forgetMembers() {
	tick := time.NewTicker(forgetInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.forgetGoneMembers()
		case <-d.background.closing:
			return
		}
	}
}

// forgetGoneMembers removes the counters' series of members that are gone: those that no listener
// leads to any more. Series with open flows stay until a later call.
func (d *daemon) forgetGoneMembers() {
	type leads struct{ listener, route, group string }
	type member struct{ group, name string }
	routes, members := map[leads]bool{}, map[member]bool{}
	for _, l := range d.active.Load().Listeners {
		for _, r := range l.AllRoutes() {
			for g := range r.Groups() {
				routes[leads{l.Name, r.Name, g.Name}] = true
			}
		}
	}
	for _, g := range d.set.Snapshot() {
		for i := range g.Members {
			members[member{g.Name, g.Members[i].Name}] = true
		}
	}
	d.hooks.Accounting.Counters().Forget(func(k account.Key) bool {
		return !routes[leads{k.Listener, k.Route, k.Group}] || !members[member{k.Group, k.Member}]
	})
}
