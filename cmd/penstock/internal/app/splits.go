package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// splits are the weights of parts that operators have changed at run time. Those of a route stay, over reloads and in the next worker, until the
// configuration has other parts or weights there than when they were changed.
type splits struct {
	mu      sync.Mutex
	changed map[routeName]keeping.Split
}

// routeName identifies a route.
type routeName struct{ listener, route string }

// weightsOf returns the weights of parts by their names.
func weightsOf(parts []spec.Part) map[string]int {
	m := map[string]int{}
	for i := range parts {
		m[parts[i].Name()] = parts[i].Weight
	}
	return m
}

// apply gives the parts of a listener's routes the weights that operators have chosen.
func (s *splits) apply(p *hooks.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range p.Spec.AllRoutes() {
		c, ok := s.changed[routeName{p.Spec.Name, r.Name}]
		if !ok || !maps.Equal(c.File, weightsOf(r.To)) {
			continue
		}
		p.SetWeights(r, c.Weights)
	}
}

// forget forgets the changes that a configuration has overtaken.
func (s *splits) forget(f *activeConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.changed, func(k routeName, c keeping.Split) bool {
		p := f.plans[k.listener]
		if p == nil {
			return true
		}
		r := p.RouteNamed(k.route)
		return r == nil || !maps.Equal(c.File, weightsOf(r.To))
	})
}

// set changes the weights of some parts of a route; nil: all are as in the file again.
func (s *splits) set(p *hooks.Plan, r *spec.Route, change map[string]int) error {
	file := weightsOf(r.To)
	if len(file) < 2 {
		return api.NewProblem(http.StatusConflict, fmt.Sprintf("route %s of listener %s has one part", r.Name, p.Spec.Name), "a route whose to is a list of parts")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := routeName{p.Spec.Name, r.Name}
	weights := maps.Clone(file)
	if c, ok := s.changed[k]; ok && change != nil {
		weights = maps.Clone(c.Weights)
	}
	for _, name := range slices.Sorted(maps.Keys(change)) {
		if _, ok := file[name]; !ok {
			return api.NotFound("part", name, strings.Join(slices.Sorted(maps.Keys(file)), ", "))
		}
		if w := change[name]; w < 0 || w > spec.MaxPartWeight {
			return api.NewProblem(http.StatusBadRequest, fmt.Sprintf("weight of %s: %d", name, w), fmt.Sprintf("0 to %d", spec.MaxPartWeight))
		}
		weights[name] = change[name]
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(weights)), func(n int) bool { return n > 0 }) {
		return api.NewProblem(http.StatusConflict, "all weights would be 0: no client would have a part", "a weight of at least 1 for one part")
	}
	p.SetWeights(r, weights)
	if delete(s.changed, k); !maps.Equal(weights, file) {
		s.changed[k] = keeping.Split{Listener: k.listener, Route: k.route, File: file, Weights: weights}
	}
	return nil
}

// saved returns the changes for the next worker, in order.
func (s *splits) saved() []keeping.Split {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.changed), func(a, b keeping.Split) int {
		return strings.Compare(a.Listener+"/"+a.Route, b.Listener+"/"+b.Route)
	})
}

// restore takes over the changes that the worker before has saved, as far as they are some that operators could have made.
func (s *splits) restore(list []keeping.Split) {
	s.changed = map[routeName]keeping.Split{}
	for _, c := range list {
		sum, good := 0, len(c.File) > 1 && maps.EqualFunc(c.File, c.Weights, func(_, _ int) bool { return true })
		for _, w := range c.Weights {
			good = good && w >= 0 && w <= spec.MaxPartWeight
			sum += w
		}
		if good && sum > 0 {
			s.changed[routeName{c.Listener, c.Route}] = c
		}
	}
}

// SetSplit changes the weights of the parts of a route, and returns the route.
func (d *daemon) SetSplit(listener, route string, change api.SplitChange) (api.Route, error) {
	if err := d.changeSplit(listener, route, change); err != nil {
		return api.Route{}, err
	}
	d.saveState(savedSources) // a change that was answered is known to the next worker
	for _, l := range d.Listeners() {
		for i := range l.Routes {
			if l.Name == listener && l.Routes[i].Name == route {
				return l.Routes[i], nil
			}
		}
	}
	return api.Route{}, api.NotFound("route", route, "") // a reload has removed it meanwhile
}

func (d *daemon) changeSplit(listener, route string, change api.SplitChange) error {
	d.active.switching.RLock() // a reload either finds the change, or makes the plan that is changed
	defer d.active.switching.RUnlock()
	p := d.active.Load().plans[listener]
	if p == nil {
		return api.NotFound("listener", listener, "those of /v1/listeners")
	}
	r := p.RouteNamed(route)
	if r == nil {
		return api.NotFound("route", route, "those of listener "+listener+" in /v1/listeners")
	}
	return d.splits.set(p, r, change.Weights)
}

// splitDifferences returns how the weights of parts differ from the file, and writes the parts as the file would have them.
func (d *daemon) splitDifferences(yaml *strings.Builder) (list []api.SplitDifference) {
	var defaults strings.Builder
	for _, c := range d.splits.saved() {
		diff := api.SplitDifference{Listener: c.Listener, Route: c.Route}
		p := d.active.Load().plans[c.Listener]
		if p == nil || p.RouteNamed(c.Route) == nil {
			continue // a reload has just removed it
		}
		r := p.RouteNamed(c.Route)
		parts := slices.Clone(r.To)
		for i := range parts {
			name := parts[i].Name()
			if parts[i].Weight = c.Weights[name]; parts[i].Weight != c.File[name] {
				diff.Parts = append(diff.Parts, api.PartDifference{Name: name, File: c.File[name], Running: parts[i].Weight})
			}
		}
		list = append(list, diff)
		if r != p.Spec.Default { // a list of routes would replace that of the file
			fmt.Fprintf(yaml, "# listener %s, route %s: to: %s\n", c.Listener, r.Name, config.PartsText(parts))
			continue
		}
		key, _ := json.Marshal(c.Listener)
		fmt.Fprintf(&defaults, "  %s: {to: %s}\n", key, config.PartsText(parts))
	}
	if defaults.Len() > 0 {
		yaml.WriteString("listeners:\n" + defaults.String())
	}
	return list
}
