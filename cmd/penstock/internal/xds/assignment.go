package xds

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// An Assignment is what a ClusterLoadAssignment says.
type Assignment struct {
	Name    string
	Members []Member
	// Factor is the overprovisioning factor in percent, 0 if it is not set. Weighted says that members count by their
	// weights when the health of their priority is computed.
	Factor   int
	Weighted bool
	// LeftOut are the endpoints that are no members, each with the reason, and Ignored the fields that are not
	// done. Both have at most maxProblems.
	LeftOut, Ignored []Problem
}

// An endpointCache has the endpoints of an assignment as they were read before, by their bytes: a control plane
// sends all of them whenever one changes.
type endpointCache map[string]endpointEntry

// An endpointEntry is what an LbEndpoint says.
type endpointEntry struct {
	member Member
	weight uint64 // as it was sent; 0: not at all
}

// placed is a locality of a priority.
type placed struct {
	priority int
	locality string
}

// maxFactor bounds the overprovisioning factor, in percent. A level of which so few are healthy takes all flows.
const maxFactor = 1_000_000

// An assignmentReader reads the endpoints of an assignment.
type assignmentReader struct {
	names  bool          // host names are endpoints
	strict bool          // an endpoint that is wrong is an error, and not left out
	cache  endpointCache // of endpoints without a problem; nil: none

	a       *Assignment
	at      map[spec.Endpoint]int // indexes of members
	heavy   map[placed]uint32     // weights of localities
	weights []uint64              // by member
	wrong   []Problem             // of the endpoints that were left out
}

// read reads an assignment. Of an endpoint that is there several times, the first one of the lowest priority is
// used: where localities are listed in no fixed order, it has the same place each time.
func (r *assignmentReader) read(o *object) *Assignment {
	total := 0
	for _, locality := range o.objects("endpoints") {
		total += len(locality.values)
	}
	total = min(total, maxMembers)
	r.a = &Assignment{Name: o.text("cluster_name"), Members: make([]Member, 0, total)}
	r.at, r.weights, r.heavy = make(map[spec.Endpoint]int, total), make([]uint64, 0, total), map[placed]uint32{}
	policy := o.object("policy")
	if n, ok := policy.number("overprovisioning_factor"); ok && n > 0 {
		r.a.Factor = int(min(n, maxFactor))
	} else if ok {
		policy.warn("overprovisioning_factor", "ignored: 0 is not a factor")
	}
	r.a.Weighted = policy.flag("weighted_priority_health")
	for _, locality := range o.objects("endpoints") {
		if !r.locality(locality) {
			break
		}
	}
	if len(r.a.Members) == 0 {
		for _, p := range r.wrong { // nothing would be left: what was there before goes on
			o.d.fail(p.Path, p.Text)
		}
	}
	for i := range r.a.Members {
		m := &r.a.Members[i]
		m.Locality.Weight = r.heavy[placed{m.Priority, m.Locality.Name}]
	}
	r.setWeights()
	if len(r.cache) > 2*len(r.a.Members)+100 {
		clear(r.cache) // most of it has gone
	}
	return r.a
}

// locality reads the endpoints of a locality, and reports whether there may be more.
func (r *assignmentReader) locality(o *object) bool {
	l := o.object("locality")
	zone := l.text("zone")
	name := localityName(l.text("region"), zone, l.text("sub_zone"))
	priority, _ := o.number("priority")
	if priority > maxPriority {
		r.reject(o, []Problem{{o.path("priority"), fmt.Sprintf("%d is not a priority; allowed: 0 to %d", priority, maxPriority)}}, "the locality")
		return true
	}
	if zone != "" && !spec.ValidNode(zone) {
		l.warn("zone", "ignored: %s is not the name of a zone; allowed: letters, digits, _, . and -", ads.OneLine(zone))
		zone = ""
	}
	if w, ok := o.number("load_balancing_weight"); ok && l != nil { // of several the last, as in Envoy
		r.heavy[placed{int(priority), name}] = uint32(min(w, 1<<32-1))
	}
	index := 0
	for _, v := range o.values {
		if v.f.of != &endpointTable {
			continue
		}
		if len(r.a.Members) >= maxMembers {
			o.fail("lb_endpoints", "more than %d members", maxMembers)
			return false
		}
		e, ok := r.endpoint(o, v, index)
		if o.d.values > maxValues {
			o.fail("lb_endpoints", "more than %d values", maxValues)
			return false
		}
		if index++; !ok {
			continue
		}
		e.member.Zone, e.member.Priority, e.member.Locality.Name = zone, int(priority), name
		r.add(o, e)
	}
	return true
}

// localityName returns a name that no other locality has; empty: it has no parts.
func localityName(parts ...string) string {
	name := strings.Join(parts, "/")
	if strings.Trim(name, "/") == "" {
		return ""
	}
	for _, p := range parts {
		if p != "" && !spec.ValidNode(p) || len(name) > maxLocality {
			return fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprintf("%q", parts))))
		}
	}
	return name
}

// maxLocality is the maximum length of the name of a locality.
const maxLocality = 255

// endpoint reads an endpoint, and reports whether it is a member.
func (r *assignmentReader) endpoint(locality *object, v value, index int) (e endpointEntry, ok bool) {
	if e, ok = r.cache[string(v.b)]; ok {
		return e, true
	}
	d := &decoder{values: locality.d.values}
	o := d.message(&endpointTable, v.b, locality, v.f, index)
	e, ok = o.entry(r.names)
	locality.d.values = d.values
	for _, p := range d.warnings {
		locality.d.warn(p.Path, p.Text)
	}
	if len(d.errs) > 0 {
		what := "the endpoint"
		if ok {
			what = e.member.To.String()
		}
		r.reject(locality, d.errs, what)
		return e, false
	}
	if r.cache != nil && len(d.warnings) == 0 {
		r.cache[string(v.b)] = e
	} else if r.cache == nil {
		e.member.at = o
	}
	return e, ok
}

// reject says what is wrong with an endpoint, or with all of a locality.
func (r *assignmentReader) reject(o *object, errs []Problem, what string) {
	if r.strict {
		for _, p := range errs {
			o.d.fail(p.Path, p.Text)
		}
		return
	}
	r.leaveOut(errs[0].Path, errs[0].Text+"; "+what+" is left out")
	if len(r.wrong) < maxProblems {
		r.wrong = append(r.wrong, errs...)
	}
}

// add adds a member, unless it is there already with the same priority or a lower one.
func (r *assignmentReader) add(locality *object, e endpointEntry) {
	i, twice := r.at[e.member.To]
	if !twice {
		r.at[e.member.To] = len(r.a.Members)
		r.a.Members, r.weights = append(r.a.Members, e.member), append(r.weights, e.weight)
		return
	}
	if e.member.Priority < r.a.Members[i].Priority {
		r.a.Members[i], r.weights[i] = e.member, e.weight
	}
	if len(r.a.LeftOut) < maxProblems { // otherwise the text is not needed
		r.leaveOut(locality.path("lb_endpoints"), fmt.Sprintf("%s is there twice; the one of priority %d is used", e.member.To, r.a.Members[i].Priority))
	}
}

func (r *assignmentReader) leaveOut(path, text string) {
	if len(r.a.LeftOut) < maxProblems {
		r.a.LeftOut = append(r.a.LeftOut, Problem{path, text})
	}
}

// setWeights sets the weights of members; if one is above maxWeight, all are scaled down.
func (r *assignmentReader) setWeights() {
	heaviest := uint64(0)
	for _, w := range r.weights {
		heaviest = max(heaviest, w)
	}
	for i, w := range r.weights {
		w = max(w, 1)
		if heaviest > maxWeight {
			w = max(1, (w*maxWeight+heaviest/2)/heaviest)
		}
		r.a.Members[i].Weight = int(w)
	}
}

// parseAssignmentResource reads a resource of type ClusterLoadAssignment. The cache may be that of an earlier
// version.
func parseAssignmentResource(res ads.Resource, cache endpointCache) (*Assignment, error) {
	d := &decoder{}
	if res.URL != endpointsURL {
		return nil, fmt.Errorf("type %s; expected %s", ads.OneLine(res.URL), endpointsURL)
	}
	o := d.decode(&assignmentTable, res.Value)
	r := &assignmentReader{cache: cache}
	a := r.read(o)
	if a.Name == "" {
		a.Name = res.Name
	}
	if a.Name != res.Name {
		o.fail("cluster_name", "%s, but the resource is named %s", ads.OneLine(a.Name), ads.OneLine(res.Name))
	}
	if len(d.errs) > 0 {
		return nil, problems(d.errs)
	}
	a.Ignored = d.warnings
	return a, nil
}

// problems are errors as one.
type problems []Problem

func (p problems) Error() string {
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].String()
	}
	return strings.Join(texts, "\n")
}
