package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// splits are the weights of parts that operators have changed at run time: of this relay, until the configuration has other parts or weights there
// than when they were changed; and of the fleet, which hold for all configurations that have the parts and weights of then. A change of the fleet
// overtakes those of this relay, which are made where there is no fleet, or while its etcd does not answer.
type splits struct {
	asking  sync.Mutex // one request at a time; locked before the others
	setting sync.Mutex // held until a plan has the weights that were read; locked before mu

	mu    sync.Mutex
	own   map[routeName]spec.SplitChange
	fleet map[routeName]spec.RouteSplits
}

// routeName identifies a route.
type routeName struct{ listener, route string }

func (k routeName) String() string { return k.listener + "/" + k.route }

func compareRoutes(a, b routeName) int { return strings.Compare(a.String(), b.String()) }

// weights returns the weights that the parts of a route have, and whether the fleet has them.
func (s *splits) weights(listener string, r *spec.Route) (weights map[string]int, ofFleet bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, file := routeName{listener, r.Name}, spec.WeightsOf(r.To)
	if c, ok := s.own[k]; ok && maps.Equal(c.File, file) {
		return c.Weights, false
	}
	if all, ok := s.fleet[k]; ok {
		if c := all.For(file); c != nil {
			return c.Weights, true
		}
	}
	return file, false
}

// base returns the weights that a request changes: those of this relay, if it has some of its own, and otherwise those of the fleet, which another
// relay may have changed just now. known is what etcd has; nil: that is not known.
func (s *splits) base(k routeName, r *spec.Route, known *spec.RouteSplits) map[string]int {
	weights, _ := s.weights(k.listener, r)
	file := spec.WeightsOf(r.To)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.own[k]; known == nil || ok && maps.Equal(c.File, file) {
		return weights
	}
	if c := known.For(file); c != nil {
		return c.Weights
	}
	return file
}

// apply gives the parts of a listener's routes the weights that operators have chosen.
func (s *splits) apply(p *hooks.Plan) {
	for _, r := range p.Spec.AllRoutes() {
		if len(r.To) > 1 {
			weights, _ := s.weights(p.Spec.Name, r)
			p.SetWeights(r, weights)
		}
	}
}

// forget forgets the changes of this relay that a configuration has overtaken.
func (s *splits) forget(f *activeConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.own, func(k routeName, c spec.SplitChange) bool {
		p := f.plans[k.listener]
		if p == nil {
			return true
		}
		r := p.RouteNamed(k.route)
		return r == nil || !maps.Equal(c.File, spec.WeightsOf(r.To))
	})
}

// setOwn notes a change of this relay.
func (s *splits) setOwn(k routeName, c spec.SplitChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.fleet[k]
	if maps.Equal(c.File, c.Weights) && all.For(c.File) == nil {
		delete(s.own, k)
		return
	}
	s.own[k] = c
}

// dropOwn forgets a change of this relay, because the fleet has been told what holds.
func (s *splits) dropOwn(k routeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, k)
}

// fleetHas notes what the fleet has, and returns the routes of which that is news. What is older than what is known is left out.
func (s *splits) fleetHas(ch fleet.SplitsChange) (news []routeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := map[routeName]bool{}
	for _, b := range ch.Broken {
		listed[routeName{b.Listener, b.Route}] = true
	}
	for _, r := range slices.Concat(ch.Changed, ch.Undone) {
		k := routeName{r.Listener, r.Route}
		listed[k] = true
		was, ok := s.fleet[k]
		if newer := r.Revision > was.Revision || ch.All && r.Revision != was.Revision; !newer || !ok && len(r.Changes) == 0 {
			continue
		}
		s.fleet[k] = r
		delete(s.own, k)
		news = append(news, k)
	}
	for k, was := range s.fleet {
		if ch.All && !listed[k] {
			delete(s.fleet, k)
			if len(was.Changes) > 0 {
				delete(s.own, k)
				news = append(news, k)
			}
		}
	}
	slices.SortFunc(news, compareRoutes)
	return news
}

// fleetBy returns who has changed the weights of a route for the fleet last; empty: nobody.
func (s *splits) fleetBy(k routeName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.fleet[k]; len(r.Changes) > 0 {
		return config.PlainLine(r.Changes[0].By)
	}
	return ""
}

// saved returns the changes for the next worker, in order.
func (s *splits) saved() (own []keeping.Split, ofFleet []spec.RouteSplits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(s.own), compareRoutes) {
		own = append(own, keeping.Split{Listener: k.listener, Route: k.route, SplitChange: s.own[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.fleet), compareRoutes) {
		ofFleet = append(ofFleet, s.fleet[k])
	}
	return own, ofFleet
}

// restore takes over the changes that the worker before has saved, as far as they are some that operators could have made.
func (s *splits) restore(own []keeping.Split, ofFleet []spec.RouteSplits) {
	s.own, s.fleet = map[routeName]spec.SplitChange{}, map[routeName]spec.RouteSplits{}
	for _, c := range own {
		if c.Valid() {
			s.own[routeName{c.Listener, c.Route}] = c.SplitChange
		}
	}
	for _, r := range ofFleet {
		if !slices.ContainsFunc(r.Changes, func(c spec.SplitChange) bool { return !c.Valid() }) {
			s.fleet[routeName{r.Listener, r.Route}] = r
		}
	}
}

// SetSplit changes the weights of the parts of a route, here and in the whole fleet, and returns the route.
func (d *daemon) SetSplit(ctx context.Context, listener, route string, change api.SplitChange) (api.Route, error) {
	d.splits.asking.Lock()
	defer d.splits.asking.Unlock()
	k := routeName{listener, route}
	r, err := d.routeToSplit(k, change)
	if err != nil {
		return api.Route{}, err
	}
	now, by := time.Now().UTC().Truncate(time.Millisecond), config.PlainLine(admin.Actor(ctx))
	var all spec.RouteSplits
	told, failed := d.inFleet(ctx, func(ctx context.Context, client *etcd.Client, key string) (err error) {
		o := fleet.Operator{Client: client, Key: key, By: d.fleet.node.ID}
		if by != "" {
			o.By = by + " at " + o.By
		}
		all, err = o.SetSplit(ctx, listener, route, func(known *spec.RouteSplits) (spec.SplitChange, string, error) {
			c, err := newSplit(r, d.splits.base(k, r, known), change, by, now)
			return c, config.PartsText(partsWith(r.To, c.Weights)), err
		})
		return err
	})
	if refused := (*api.Problem)(nil); errors.As(failed, &refused) {
		return api.Route{}, refused
	}
	if !told || failed != nil {
		c, err := newSplit(r, d.splits.base(k, r, nil), change, by, now)
		if err != nil {
			return api.Route{}, err
		}
		d.splits.setOwn(k, c)
	} else {
		d.splits.fleetHas(fleet.SplitsChange{Changed: []spec.RouteSplits{all}})
		d.splits.dropOwn(k)
	}
	d.splitChanged(k)
	d.saveState(savedSources) // a change that was answered is known to the next worker
	for _, l := range d.Listeners() {
		for i := range l.Routes {
			if r := &l.Routes[i]; l.Name == listener && r.Name == route {
				if failed != nil {
					r.Error = "the fleet was not told: " + config.OneLine(failed)
				}
				return *r, nil
			}
		}
	}
	return api.Route{}, api.NotFound("route", route, "") // a reload has removed it meanwhile
}

// routeToSplit returns the route of a change, which has parts of these names, and weights that parts can have.
func (d *daemon) routeToSplit(k routeName, change api.SplitChange) (*spec.Route, error) {
	p := d.active.Load().plans[k.listener]
	if p == nil {
		return nil, api.NotFound("listener", k.listener, "those of /v1/listeners")
	}
	r := p.RouteNamed(k.route)
	if r == nil {
		return nil, api.NotFound("route", k.route, "those of listener "+k.listener+" in /v1/listeners")
	}
	if len(r.To) < 2 {
		return nil, api.NewProblem(http.StatusConflict, fmt.Sprintf("route %s of listener %s has one part", r.Name, p.Spec.Name), "a route whose to is a list of parts")
	}
	file := spec.WeightsOf(r.To)
	for _, name := range slices.Sorted(maps.Keys(change.Weights)) {
		if _, ok := file[name]; !ok {
			return nil, api.NotFound("part", name, strings.Join(slices.Sorted(maps.Keys(file)), ", "))
		}
		if w := change.Weights[name]; w < 0 || w > spec.MaxPartWeight {
			return nil, api.NewProblem(http.StatusBadRequest, fmt.Sprintf("weight of %s: %d", name, w), fmt.Sprintf("0 to %d", spec.MaxPartWeight))
		}
	}
	return r, nil
}

// newSplit returns what a change makes of the weights of a route's parts.
func newSplit(r *spec.Route, weights map[string]int, change api.SplitChange, by string, at time.Time) (spec.SplitChange, error) {
	c := spec.SplitChange{File: spec.WeightsOf(r.To), By: by, At: at}
	if c.Weights = maps.Clone(c.File); change.Weights != nil {
		c.Weights = maps.Clone(weights)
		maps.Copy(c.Weights, change.Weights)
	}
	if !c.Valid() {
		return c, api.NewProblem(http.StatusConflict, "all weights would be 0: no client would have a part", "a weight of at least 1 for one part")
	}
	return c, nil
}

// partsWith returns parts with other weights.
func partsWith(parts []spec.Part, weights map[string]int) []spec.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Weight = weights[parts[i].Name()]
	}
	return parts
}

// splitChanged gives the parts of a route the weights that they have now, and returns them as text; empty: there is no such route.
func (d *daemon) splitChanged(k routeName) string {
	d.active.switching.RLock() // a reload either finds the change, or makes the plan that is changed
	defer d.active.switching.RUnlock()
	p := d.active.Load().plans[k.listener]
	if p == nil {
		return ""
	}
	r := p.RouteNamed(k.route)
	if r == nil || len(r.To) < 2 {
		return ""
	}
	d.splits.setting.Lock() // whoever read them before sets them before
	defer d.splits.setting.Unlock()
	weights, _ := d.splits.weights(k.listener, r)
	p.SetWeights(r, weights)
	return config.PartsText(partsWith(r.To, weights))
}

// maxBrokenSplits bounds what is said of values that cannot be read, at a time.
const maxBrokenSplits = 5

// followSplits takes over the weights of the fleet until ctx ends.
func (d *daemon) followSplits(ctx context.Context, c *etcd.Client, key string) {
	fleet.FollowSplits(ctx, c, key, d.fleetSplits)
}

// fleetSplits takes over weights of the fleet.
func (d *daemon) fleetSplits(ch fleet.SplitsChange) {
	for i, b := range ch.Broken {
		if i == maxBrokenSplits {
			d.log.Error("more weights of the fleet cannot be read", "routes", len(ch.Broken)-i)
			break
		}
		name := config.PlainLine(routeName{b.Listener, b.Route}.String())
		d.log.Error("weights of the fleet cannot be read; those of before hold", "route", name, "error", config.OneLine(b.Err))
		d.log.event(slog.LevelError, "split", name, "weights of the fleet cannot be read; those of before hold: "+config.OneLine(b.Err))
	}
	news := d.splits.fleetHas(ch)
	for _, k := range news {
		if text := d.splitChanged(k); text != "" {
			by := d.splits.fleetBy(k)
			d.log.Info("the fleet has set weights of parts", "route", k.String(), "to", text, "by", by)
			d.log.eventBy(by, slog.LevelInfo, "split", k.String(), "has by the fleet: "+text)
		}
	}
	if len(news) > 0 {
		d.saveState(savedSources)
	}
}

// splitDifferences returns how the weights of parts differ from the file, and writes the parts as the file would have them.
func (d *daemon) splitDifferences(yaml *strings.Builder) (list []api.SplitDifference) {
	var defaults strings.Builder
	f := d.active.Load()
	for _, l := range slices.Sorted(maps.Keys(f.plans)) {
		for _, r := range f.plans[l].Spec.AllRoutes() {
			weights, ofFleet := d.splits.weights(l, r)
			diff := api.SplitDifference{Listener: l, Route: r.Name, Fleet: ofFleet}
			for i := range r.To {
				name := r.To[i].Name()
				if weights[name] != r.To[i].Weight {
					diff.Parts = append(diff.Parts, api.PartDifference{Name: name, File: r.To[i].Weight, Running: weights[name]})
				}
			}
			if diff.Parts == nil {
				continue
			}
			list = append(list, diff)
			to := config.PartsText(partsWith(r.To, weights))
			if r != f.plans[l].Spec.Default { // a list of routes would replace that of the file
				fmt.Fprintf(yaml, "# listener %s, route %s: to: %s\n", l, r.Name, to)
				continue
			}
			key, _ := json.Marshal(l)
			fmt.Fprintf(&defaults, "  %s: {to: %s}\n", key, to)
		}
	}
	if defaults.Len() > 0 {
		yaml.WriteString("listeners:\n" + defaults.String())
	}
	return list
}
