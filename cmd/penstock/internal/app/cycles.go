package app

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// updateCycles looks for cycles with the current members, including those found by DNS. From then
// on, flows are refused that would return to their listener.
func (d *daemon) updateCycles() {
	f := d.active.Load()
	members := map[string][]cycle.Member{}
	for _, g := range d.set.Snapshot() {
		for _, m := range g.Members {
			members[g.Name] = append(members[g.Name], cycle.Member{Addr: m.Addr, Ports: m.Ports})
		}
	}
	found := f.ownListeners.Find(f.Listeners, func(g *spec.Group) []cycle.Member { return members[g.Name] })
	if len(found) == 0 {
		d.hooks.Cycles.Store(nil)
		return
	}
	if old := d.hooks.Cycles.Load(); old == nil || len(*old) != len(found) {
		for h, steps := range found {
			d.log.Error("member leads back to its listener; it gets no flows", "listener", h.Listener, "member", h.Member.String(), "through", strings.Join(steps, " > "))
		}
	}
	d.hooks.Cycles.Store(&found)
}
