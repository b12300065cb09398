package convert

import (
	"slices"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Share is how many of the clients that meet the conditions of a route, and that no route before has taken, it takes; zero: all of them.
type Share struct{ N, Of int }

// A part is one of the destinations of a route.
type part struct {
	to     *Group // nil: its clients are refused
	weight int
}

// joinShares joins routes that take a share of the clients with those behind them that have the same conditions. What none of these takes is
// refused, if nobody else would take it. Shares whose rest goes on to other conditions are left out.
func (l *Listener) joinShares() {
	var joined []Route
	for i := 0; i < len(l.Routes); i++ {
		r := l.Routes[i]
		if r.Share == (Share{}) {
			joined = append(joined, r)
			continue
		}
		rest, all := 1, 1 // all is the product of what shares are of, and the sum of weights and rest
		r.parts = nil
		complete := false
		for ; i < len(l.Routes) && sameConditions(l.Routes[i], r); i++ {
			next := l.Routes[i]
			n, of := next.Share.N, next.Share.Of
			if complete = of == 0; complete {
				n, of = 1, 1
			}
			if all > 1<<40 { // the next one would be too much: what is left of a trillion is one share here
				break
			}
			all *= of
			for j := range r.parts {
				r.parts[j].weight *= of
			}
			r.parts = append(r.parts, part{next.To, rest * n})
			if rest *= of - n; complete || rest == 0 {
				complete = true
				break
			}
		}
		if !complete {
			if i < len(l.Routes) {
				l.Comments = append(l.Comments, "Left out: a share of the clients for "+r.To.name+". The others have further conditions, and a route splits its own clients only.")
				i--
				continue
			}
			r.parts = append(r.parts, part{nil, rest})
		}
		r.reduce()
		joined = append(joined, r)
	}
	l.Routes = joined
}

// reduce makes the weights of parts as small as they can be, joins those of one group, and leaves out those that get nobody.
func (r *Route) reduce() {
	var parts []part
	most := 0
	for _, p := range r.parts {
		if i := slices.IndexFunc(parts, func(q part) bool { return q.to == p.to }); i >= 0 {
			parts[i].weight += p.weight
		} else if p.weight > 0 {
			parts = append(parts, p)
		}
	}
	for _, p := range parts {
		most = max(most, p.weight)
	}
	common := 0
	for _, p := range parts {
		for a, b := p.weight, common; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range parts {
		parts[i].weight /= common
		if most/common > spec.MaxPartWeight {
			parts[i].weight = max(1, parts[i].weight*spec.MaxPartWeight/(most/common))
		}
	}
	if r.parts = parts; len(parts) == 1 && parts[0].to != nil {
		r.To, r.parts = parts[0].to, nil
	}
}

func sameConditions(a, b Route) bool {
	return slices.Equal(a.From, b.From) && slices.Equal(a.SNI, b.SNI) && slices.Equal(a.ALPN, b.ALPN)
}

// groups returns the groups to which a route leads.
func (r *Route) groups() (list []*Group) {
	if r.parts == nil {
		return []*Group{r.To}
	}
	for _, p := range r.parts {
		if p.to != nil {
			list = append(list, p.to)
		}
	}
	return list
}

// destination writes where a route leads.
func (r *Route) destination() any {
	if r.parts == nil {
		return r.To.name
	}
	var list []string
	for _, p := range r.parts {
		what := "refuse: true"
		if p.to != nil {
			what = "group: " + Quote(p.to.name)
		}
		list = append(list, "{"+what+", weight: "+strconv.Itoa(p.weight)+"}")
	}
	return Raw("[" + strings.Join(list, ", ") + "]")
}
