package convert

import (
	"math/bits"
	"reflect"
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
	weight int64
}

// joinShares joins routes that take a share of the clients with those behind them that have the same conditions. What none of these takes is
// refused, if nobody else would take it. Shares whose rest goes on to other conditions are left out.
func (l *Listener) joinShares() {
	var joined []Route
	for i := 0; i < len(l.Routes); i++ {
		r := l.Routes[i]
		if r.Share == (Share{}) {
			if r.To == nil {
				r.parts = []part{{nil, 1}}
			}
			joined = append(joined, r)
			continue
		}
		rest := int64(1) // the weight of the clients that no part has taken
		r.parts = nil
		complete := false
		for ; i < len(l.Routes) && sameConditions(l.Routes[i], r); i++ {
			next := l.Routes[i]
			n, of := int64(next.Share.N), int64(next.Share.Of)
			if complete = of == 0; complete {
				n, of = 1, 1
			}
			for j := range r.parts {
				r.parts[j].weight *= of
			}
			r.add(next.To, rest*n)
			if rest *= of - n; complete || rest == 0 {
				complete = true
				break
			}
			all := append(r.parts, part{nil, rest})
			shrink(all, maxWeight)
			r.parts, rest = all[:len(r.parts)], all[len(r.parts)].weight
		}
		if !complete {
			if i < len(l.Routes) {
				l.Comments = append(l.Comments, "Left out: a share of the clients for "+r.toName()+". The others have further conditions, and a route splits its own clients only.")
				i--
				continue
			}
			r.add(nil, rest)
		}
		shrink(r.parts, spec.MaxPartWeight)
		if len(r.parts) == 1 && r.parts[0].to != nil {
			r.To, r.parts = r.parts[0].to, nil
		}
		joined = append(joined, r)
	}
	l.Routes = joined
}

// add adds a part, or adds to that of the same group, unless it gets nobody.
func (r *Route) add(to *Group, weight int64) {
	switch i := slices.IndexFunc(r.parts, func(p part) bool { return p.to == to }); {
	case weight == 0:
	case i >= 0:
		r.parts[i].weight += weight
	default:
		r.parts = append(r.parts, part{to, weight})
	}
}

// maxWeight is the greatest weight between two steps of joinShares: multiplied with what a share is of, it does not overflow.
const maxWeight = 1 << 40

// shrink divides the weights of parts by what they have in common, and if one is still more than most, makes all smaller in proportion, but 1
// at least. None is 0.
func shrink(parts []part, most int64) {
	greatest, common := int64(0), int64(0)
	for _, p := range parts {
		greatest = max(greatest, p.weight)
		for a, b := p.weight, common; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	greatest /= common
	for i := range parts {
		p := &parts[i]
		if p.weight /= common; greatest > most {
			high, low := bits.Mul64(uint64(p.weight), uint64(most))
			weight, _ := bits.Div64(high, low, uint64(greatest))
			p.weight = max(1, int64(weight))
		}
	}
}

func sameConditions(a, b Route) bool {
	return reflect.DeepEqual(a.Condition, b.Condition) && a.Silence == b.Silence
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
		list = append(list, "{"+what+", weight: "+strconv.FormatInt(p.weight, 10)+"}")
	}
	return Raw("[" + strings.Join(list, ", ") + "]")
}

// toName returns the name of where a route leads.
func (r *Route) toName() string {
	if r.To == nil {
		return "refused"
	}
	return r.To.name
}
