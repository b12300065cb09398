package xds

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// registryName is the name of the control plane among the registries of a text.
const registryName = "control-plane"

// A resourceError is what is wrong with one resource.
type resourceError struct {
	URL, Name string
	problems  []Problem
}

// maxReasons bounds the text of the errors of all resources: nobody reads more.
const maxReasons = 64 << 10

// assembleErrors are the errors of all resources.
type assembleErrors []resourceError

func (e assembleErrors) Error() string {
	var all problems
	size := 0
	for _, r := range e {
		for _, p := range r.problems {
			if size > maxReasons {
				continue
			}
			size += len(p.Path) + len(p.Text)
			path := place{kindOf(r.URL) + " " + ads.OneLine(r.Name), p.Path}
			all = append(all, Problem{path.String(), p.Text})
		}
	}
	return all.Error()
}

// kindOf returns what a type is called in messages.
func kindOf(url string) string {
	switch url {
	case listenerURL:
		return "Listener"
	case clusterURL:
		return "Cluster"
	case endpointsURL:
		return "ClusterLoadAssignment"
	}
	return "Configuration"
}

// An open reference keeps a set of resources from being assembled for now.
type openReference struct {
	from, to string
	path     string
}

func (r openReference) String() string {
	return fmt.Sprintf("Listener %s: %s: there is no Cluster %s", ads.OneLine(r.from), r.path, ads.OneLine(r.to))
}

// An assembly is the result of assembling Listeners and Clusters.
type assembly struct {
	text *Text
	eds  []string // names of the assignments that it uses
	open []openReference
}

// assemble makes a text of Listeners and Clusters. Clusters that no Listener uses are not looked at. The
// error is an [assembleErrors].
func assemble(registry spec.Registry, listeners, clusters map[string]ads.Resource) (*assembly, error) {
	a := &assembly{}
	var plans []*listenerPlan
	used := map[string]*cluster{}
	var order []string
	values := 0
	for i, name := range slices.Sorted(maps.Keys(listeners)) {
		l := newListener(listeners[name])
		if values += l.d.values; values > maxAllValues {
			return a, tooManyValues(listenerURL, name)
		}
		plans = append(plans, l)
		for c, to := range l.uses() {
			if to.cluster == "" {
				continue
			}
			r, ok := clusters[to.cluster]
			if !ok {
				a.open = append(a.open, openReference{l.name, to.cluster, to.path})
				continue
			}
			if used[to.cluster] == nil {
				used[to.cluster] = newCluster(r)
				order = append(order, to.cluster)
				if values += used[to.cluster].d.values; values > maxAllValues {
					return a, tooManyValues(clusterURL, to.cluster)
				}
			}
			if used[to.cluster].named && c.use.port == 0 {
				c.o.fail("", "it leads to the cluster %s, of hosts that clients name; allowed: behind the filter sni_dynamic_forward_proxy", ads.OneLine(to.cluster))
			}
			used[to.cluster].users[i] = true
			used[to.cluster].group(c.use)
		}
	}
	w := &writer{}
	writeRegistry(w, registry)
	w.line(0, "listeners:", place{})
	if len(plans) == 0 {
		return a, assembleErrors{{listenerURL, "*", []Problem{{"", "there is no Listener; a configuration without listeners is not applied"}}}}
	}
	names := map[string]string{}
	var errs assembleErrors
	for i, l := range plans {
		l.write(w, i, used, names)
	}
	w.line(0, "groups:", place{})
	for _, name := range slices.Sorted(slices.Values(order)) {
		c := used[name]
		for _, g := range c.groups {
			if other, taken := names["group "+g.name]; taken {
				c.o.fail("name", "the cluster %s has the same name here, %s", other, g.name)
				continue
			}
			names["group "+g.name] = c.name
			resource := "Cluster " + ads.OneLine(c.name)
			w.line(1, quote(g.name)+":", place{resource, ""})
			w.section(2, c.section(g), resource)
		}
		if c.eds != "" {
			a.eds = append(a.eds, c.eds)
		}
		errs = collect(errs, clusterURL, c.name, c.d)
	}
	if len(order) == 0 {
		w.line(1, "{}", place{})
	}
	a.text = &Text{}
	for _, l := range plans {
		errs = collect(errs, listenerURL, l.name, l.d)
		a.warn("Listener", l.name, l.d)
	}
	for _, name := range slices.Sorted(slices.Values(order)) {
		a.warn("Cluster", name, used[name].d)
	}
	if len(errs) > 0 {
		return a, errs
	}
	head := &writer{}
	head.line(0, "# Made of Envoy's resources. Ignored, each with a reason:", place{})
	for _, text := range a.text.Warnings {
		head.line(0, "# - "+ads.OneLine(text), place{})
	}
	if len(a.text.Warnings) == 0 {
		head = &writer{}
	}
	a.text.YAML, a.text.places = []byte(head.b.String()+w.b.String()), append(head.places, w.places...)
	return a, nil
}

// maxAllValues bounds the values of all resources together: each takes about a hundred bytes while they are
// assembled, and two on the wire.
const maxAllValues = 1 << 21

func tooManyValues(url, name string) error {
	return assembleErrors{{url, name, []Problem{{"", fmt.Sprintf("all resources together have more than %d values", maxAllValues)}}}}
}

func collect(errs assembleErrors, url, name string, d *decoder) assembleErrors {
	if len(d.errs) > 0 {
		errs = append(errs, resourceError{url, name, d.errs})
	}
	return errs
}

func (a *assembly) warn(kind, name string, d *decoder) {
	for _, p := range d.warnings {
		if len(a.text.Warnings) < maxProblems {
			path := place{kind + " " + ads.OneLine(name), p.Path}
			a.text.Warnings = append(a.text.Warnings, Problem{path.String(), p.Text}.String())
		}
	}
}

// writeRegistry writes the control plane as a registry, so that groups find their members in it.
func writeRegistry(w *writer, r spec.Registry) {
	if r.Servers == "" {
		return
	}
	var s, tls section
	s.set("xds", quoteList(r.ServerList()), "")
	for _, k := range []struct{ key, value string }{{"ca", r.CA}, {"certificate", r.Cert}, {"key", r.Key}, {"name", r.ServerName}} {
		if k.value != "" {
			tls.set(k.key, quote(k.value), "")
		}
	}
	if r.TokenFile != "" {
		s.set("token-file", quote(r.TokenFile), "")
	}
	s.in("tls").keys = tls.keys
	w.line(0, "registries:", place{})
	w.line(1, registryName+":", place{})
	w.section(2, &s, "")
}

// uses returns the chains with each cluster to which they lead.
func (l *listenerPlan) uses() iter.Seq2[*chain, destination] {
	all := slices.Clone(l.chains)
	if l.to != nil {
		all = append(all, l.to)
	}
	return func(yield func(*chain, destination) bool) {
		for _, c := range all {
			for _, to := range c.to {
				if !yield(c, to) {
					return
				}
			}
		}
	}
}

// write writes the listeners of a plan.
func (l *listenerPlan) write(w *writer, index int, clusters map[string]*cluster, names map[string]string) {
	resource := "Listener " + ads.OneLine(l.name)
	l.limit(index, clusters)
	for c, to := range l.uses() {
		if target := clusters[to.cluster]; target != nil && c.hashed && !target.hashes() {
			c.o.warn("", "hash policies are ignored: the cluster %s does not hash", ads.OneLine(to.cluster))
		}
	}
	parts := func(c *chain) string { // as the configuration has them
		var list []string
		for _, to := range c.to {
			group := nameOf(to.cluster)
			if target := clusters[to.cluster]; target != nil {
				group = target.group(c.use).name
			}
			if len(c.to) == 1 {
				return quote(group)
			}
			list = append(list, "{group: "+quote(group)+", weight: "+strconv.FormatUint(to.weight, 10)+"}")
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	routes := l.routes()
	for i, url := range l.urls {
		name := nameOf(l.name)
		if i > 0 {
			name = nameOf(l.name + "-" + strconv.Itoa(i+1))
		}
		if other, taken := names["listener "+name]; taken {
			l.o.fail("name", "the listener %s has the same name here, %s", other, name)
			continue
		}
		names["listener "+name] = l.name
		w.line(1, quote(name)+":", place{resource, ""})
		w.line(2, "listen: "+quote(url), place{resource, l.paths[i]})
		keys := l.keys
		if !l.sniffed {
			keys.keys = slices.DeleteFunc(slices.Clone(keys.keys), func(k keyLine) bool { return k.key == "sniff" })
		}
		w.section(2, &keys, resource)
		if len(routes) > 0 {
			w.line(2, "routes:", place{resource, "filter_chains"})
			for _, r := range routes {
				w.line(3, "- "+r.section(parts(r.chain)), place{resource, r.o.path("")})
			}
		}
		if l.to != nil {
			w.line(2, "to: "+parts(l.to), place{resource, l.to.path()})
			w.line(2, "timeouts: {"+l.to.timeouts()+"}", place{resource, l.to.o.path("")})
		}
	}
}

// limit sets a limit of flows where a cluster's max_connections has its counterpart in the listener.
func (l *listenerPlan) limit(index int, clusters map[string]*cluster) {
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		c := clusters[name]
		if !c.users[index] {
			continue
		}
		n := c.maxFlows("thresholds")
		if n == 0 || len(c.static) == 1 && len(c.users) != 1 {
			continue
		}
		alone := len(c.users) == 1 && len(l.urls) == 1
		for _, to := range l.uses() {
			alone = alone && to.cluster == name
		}
		if !alone {
			c.o.object("circuit_breakers").warn("thresholds", "max_connections is ignored: the cluster is not the only one of a single listener")
			continue
		}
		l.keys.in("limits").set("flows", strconv.Itoa(n), "")
	}
}

// hashes reports whether the cluster's policy hashes clients.
func (c *cluster) hashes() bool {
	if p := c.o.object("load_balancing_policy"); p != nil {
		for _, one := range p.objects("policies") {
			switch one.object("typed_extension_config").kind("typed_config") {
			case maglevPolicyTable.name, ringHashPolicyTable.name:
				return true
			}
		}
		return false
	}
	policy, _ := c.o.number("lb_policy")
	return policy == 2 || policy == 5
}
