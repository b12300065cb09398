package fleet

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var publishes = flag.Int("publishes", 200, "simulated publishes of harmless versions, and a tenth as many of each outage")

// A kind of flows: how many of a listener's are so, and what a relay counts of each.
type kind struct {
	weight float64
	cause  string // of its end; empty: it stays open
	size   int    // class of the bytes down
	wait   int    // class of the time until the first byte
	fails  int64  // connects that failed
}

// served is a kind of flows whose clients are served.
func servedKind(weight float64, size int) kind { return kind{weight, "end", size, 0, 0} }

// A service is what comes to a listener, and what becomes of it.
type service struct {
	name  string
	rate  float64 // flows in a second at a relay
	kinds []kind
}

// A change is what a version does to a service; false: the listener is gone.
type change func(*service) bool

// replace makes a part of the flows another kind.
func replace(part float64, by kind) change {
	return func(s *service) bool {
		for i := range s.kinds {
			s.kinds[i].weight *= 1 - part
		}
		by := by
		by.weight = part
		s.kinds = append(s.kinds, by)
		return true
	}
}

// faster makes clients come more or less often: those that wait for each other.
func faster(factor float64, c change) change {
	return func(s *service) bool {
		s.rate *= factor
		return c(s)
	}
}

// smaller makes all answers a kind with fewer bytes, and clients come more or less often.
func smaller(factor float64, by kind) change {
	return func(s *service) bool {
		if s.name != "web" || s.kinds[0].size < by.size+2 {
			return true
		}
		return faster(factor, replace(1, by))(s)
	}
}

func inService(name string, c change) change {
	return func(s *service) bool { return s.name != name || c(s) }
}

func unchanged(*service) bool { return true }

// outages are versions that must not be promoted, with what clients see.
var outages = map[string]change{
	"listener at another address":      inService("web", func(s *service) bool { s.rate = 0; return true }),
	"listener removed":                 inService("web", func(*service) bool { return false }),
	"member closes at once":            faster(3, replace(1, kind{cause: "end"})),
	"member is silent":                 faster(0.3, replace(1, kind{})),
	"member is silent, clients leave":  faster(0.5, replace(1, kind{cause: "client-reset"})),
	"member resets at once":            replace(1, kind{cause: "upstream-reset"}),
	"member resets in mid-stream":      replace(0.4, kind{cause: "upstream-reset", size: 3}),
	"idle time-out too short":          replace(0.6, kind{cause: "idle", size: 1}),
	"first-byte time-out too short":    replace(0.6, kind{cause: "first-byte"}),
	"life too short":                   replace(0.5, kind{cause: "life", size: 3}),
	"half of the names without route":  replace(0.5, kind{cause: "refused"}),
	"most clients denied":              replace(0.9, kind{cause: "refused"}),
	"wrong certificate":                replace(1, kind{cause: "client-tls"}),
	"member of another protocol":       smaller(2, servedKind(0, 2)),
	"bandwidth of 1 KB/s":              smaller(0.1, kind{size: 1}),
	"max-flows too small":              replace(0.3, kind{cause: "queue-timeout"}),
	"half of the members dead":         replace(0.5, kind{cause: "end", size: 4, fails: 1}),
	"member that cannot be reached":    faster(0.2, replace(1, kind{cause: "connect-timeout", fails: 2})),
	"member far away":                  faster(0.3, replace(1, kind{cause: "end", size: 4, wait: 2})),
	"one listener of several closes":   inService("web", replace(1, kind{cause: "end"})),
	"UDP member that answers nothing":  inService("dns", replace(1, kind{cause: "idle"})),
	"PROXY header that is not awaited": smaller(1, servedKind(0, 1)),
}

// A simulation is a fleet with clients, in virtual time.
type simulation struct {
	*rand.Rand
	relays   []*simulated
	canaries []string
	common   float64 // factor of all rates
	drift    float64 // of common, in a second
	together float64 // flows that begin at the same time
	incident [2]float64
	now      float64
}

type simulated struct {
	Report
	services []service
	own      float64 // factor of its rates
	restless float64 // how much that changes
	mod      int64
}

// calmly is an incident that does not happen.
var calmly = [2]float64{-1, -1}

// newSimulation returns a fleet under some load, which varies.
func newSimulation(seed uint64) *simulation {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 1)), common: 1, incident: calmly}
	n := 1 + s.IntN(12)
	s.drift = s.NormFloat64() * 0.01
	s.together = 1 + s.ExpFloat64()
	rate := math.Exp(s.Float64()*5) / 2 // 0.5 to 75 in a second
	sizes := 1 + s.IntN(5)
	web := service{"web", rate, []kind{servedKind(0.7, sizes), servedKind(0.27, min(7, sizes+2)), {0.02, "client-reset", sizes, 0, 0}, {0.01, "no-upstream", 0, 0, 1}}}
	services := []service{web}
	if s.IntN(2) == 0 {
		services = append(services, service{"dns", rate / 2, []kind{{0.9, "idle", 2, 0, 0}, {0.1, "idle", 0, 0, 0}}})
	}
	if rate > 4 && s.IntN(2) == 0 { // what is in front looks whether somebody listens
		services[0].kinds = append(services[0].kinds, kind{s.Float64() / services[0].rate, "end", 0, 0, 0})
	}
	if s.IntN(4) == 0 {
		services = append(services, service{"seldom", 0.05, []kind{servedKind(1, 3)}})
	}
	restless := s.Float64() * 0.1
	if s.IntN(4) == 0 && n > 1 {
		from := s.Float64() * 60
		s.incident = [2]float64{from, from + 20}
	}
	for i := range n {
		r := &simulated{own: math.Exp(s.NormFloat64() * 0.3), restless: restless}
		r.Node, r.State, r.Version, r.Penstock = fmt.Sprint("relay-", i), "ready", 1, "test"
		r.Since = time.Unix(0, 0)
		r.Served, r.Listeners = &Served{}, map[string]Listener{}
		for _, sv := range services {
			sv.kinds = slices.Clone(sv.kinds)
			for k := range sv.kinds {
				sv.kinds[k].weight *= math.Exp(s.NormFloat64() * 0.2) // relays are not equal
			}
			r.services = append(r.services, sv)
		}
		s.relays = append(s.relays, r)
		if i == 0 || s.Float64() < 0.2 {
			s.canaries = append(s.canaries, r.Node)
		}
	}
	if len(s.canaries) == len(s.relays) && n > 1 {
		s.canaries = s.canaries[:1]
	}
	return s
}

// step lets a second pass, and relays report.
func (s *simulation) step() {
	s.now++
	s.common *= math.Exp(s.drift)
	for _, r := range s.relays {
		r.own *= math.Exp(s.NormFloat64() * r.restless)
		r.own = min(max(r.own, 0.3), 3)
		for i := range r.services {
			s.serve(r, &r.services[i])
		}
		r.mod++
		r.At = time.Unix(1000, 0).Add(time.Duration((s.now + s.Float64()*0.1) * float64(time.Second)))
	}
}

func (s *simulation) serve(r *simulated, sv *service) {
	n := s.poisson(sv.rate*r.own*s.common/s.together) * int64(math.Round(s.together))
	kinds := sv.kinds
	if s.now > s.incident[0] && s.now < s.incident[1] {
		kinds = append(slices.Clone(kinds), kind{0.5, "upstream-reset", 0, 0, 0})
	}
	all := 0.0
	for _, k := range kinds {
		all += k.weight
	}
	got := Served{Begun: n, Ends: map[string]int64{}, Sizes: make([]int64, 8), FirstByte: make([]int64, 4)}
	for _, k := range kinds {
		m := s.binomial(n, min(1, k.weight/all))
		all -= k.weight
		n -= m
		got.Sizes[k.size] += m
		got.ConnectFailures += m * k.fails
		if k.cause != "" {
			got.Ends[k.cause] += m
			if k.size > 0 {
				got.FirstByte[k.wait] += m
			}
		}
	}
	l := r.Listeners[sv.name]
	var next, sum Served
	next.add(&l.Served)
	next.add(&got)
	r.Listeners[sv.name] = Listener{next, Socket{Listen: "unix:@" + sv.name}}
	sum.add(r.Served)
	sum.add(&got)
	r.Served, r.Begun = &sum, sum.Begun
}

// age makes the relays look as if they had served an hour of the load that they are made for.
func (s *simulation) age() {
	for _, r := range s.relays {
		for i := range r.services {
			together := s.together
			r.services[i].rate, s.together = 3600*r.services[i].rate, 1
			s.serve(r, &r.services[i])
			r.services[i].rate, s.together = r.services[i].rate/3600, together
		}
		r.Since = time.Unix(1000-3600, 0)
	}
}

func (s *simulation) poisson(mean float64) int64 {
	if mean > 30 {
		return max(0, int64(math.Round(mean+s.NormFloat64()*math.Sqrt(mean))))
	}
	n, p := int64(0), math.Exp(-mean)
	for x := s.Float64(); x > p; x *= s.Float64() {
		n++
	}
	return n
}

func (s *simulation) binomial(n int64, p float64) (k int64) {
	if mean := float64(n) * p; n > 60 && mean > 10 && float64(n)-mean > 10 {
		return min(n, max(0, int64(math.Round(mean+s.NormFloat64()*math.Sqrt(mean*(1-p))))))
	}
	for range n {
		if s.Float64() < p {
			k++
		}
	}
	return k
}

func (s *simulation) reports() map[string]sighting {
	all := make(map[string]sighting, len(s.relays))
	for _, r := range s.relays {
		report := r.Report
		report.Listeners = map[string]Listener{}
		for name, l := range r.Listeners {
			report.Listeners[name] = l
		}
		all[r.Node] = sighting{report, r.mod, 0}
	}
	return all
}

// publish tries a version that changes services, and returns how that ends, and after how many seconds.
func (s *simulation) publish(wait float64, c change) (Progress, float64) {
	s.age()
	for range 3 {
		s.step()
	}
	j := newJudge(defaultSilence)
	j.watch(s.reports()) // which are up to 24 seconds old
	for range 1 + s.IntN(24) {
		s.step()
	}
	for {
		s.step()
		j.watch(s.reports())
		if j.watched() >= defaultBefore {
			break
		}
	}
	j.begin(2, s.canaries)
	begun := s.now
	s.step()
	for _, r := range s.relays {
		if !slices.Contains(s.canaries, r.Node) {
			continue
		}
		r.Version = 2
		var left []service
		for _, sv := range r.services {
			sv.kinds = slices.Clone(sv.kinds)
			if c(&sv) {
				left = append(left, sv)
			} else {
				delete(r.Listeners, sv.name)
			}
		}
		r.services = left
	}
	for {
		passed := s.now - begun
		if passed > 4*60*longestTrial {
			return Progress{Why: "no end"}, passed
		}
		at := moment{ended: passed > wait, late: passed > longestTrial*wait}
		if at.ended {
			at.after = 1
		}
		if p := j.look(s.reports(), at); p.Outcome != Undecided {
			return p, passed
		}
		s.step()
	}
}

// Of harmless versions under load that varies hardly any is taken back, also while all relays have trouble with
// their members, and of outages none is promoted that enough clients have met. -publishes 20000 tries more of them.
func TestJudgeUnderLoad(t *testing.T) {
	var calm, calmBad, troubled, troubledBad, unjudged int
	for seed := range *publishes {
		s := newSimulation(uint64(seed))
		p, _ := s.publish(10+50*s.Float64(), unchanged)
		bad := 0
		if p.Outcome == Bad {
			bad = 1
			t.Logf("seed %d: taken back after a harmless change: %s", seed, p.Why)
		}
		if p.Outcome == Unjudged {
			unjudged++
		}
		if s.incident[1] > 0 {
			troubled, troubledBad = troubled+1, troubledBad+bad
		} else {
			calm, calmBad = calm+1, calmBad+bad
		}
	}
	t.Logf("harmless: %d of %d taken back, and %d of %d while all relays had trouble; %d could not be judged", calmBad, calm, troubledBad, troubled, unjudged)
	if calmBad > 2+calm/500 || troubledBad > 3+troubled/33 {
		t.Errorf("%d of %d, and %d of %d, is too much", calmBad, calm, troubledBad, troubled)
	}
	for _, name := range slices.Sorted(maps.Keys(outages)) {
		tried, promoted, few, sum := 0, 0, 0, 0.0
		for seed := range *publishes / 10 {
			s := newSimulation(uint64(seed))
			s.incident = calmly
			if !s.concerns(outages[name]) {
				continue
			}
			tried++
			p, took := s.publish(10+50*s.Float64(), outages[name])
			sum += took
			switch {
			case p.Outcome == Unjudged:
				few++
			case p.Outcome == Undecided:
				t.Errorf("%s: seed %d: never decided: %s", name, seed, p.Why)
			case p.Outcome == Good:
				promoted++
				t.Logf("%s: seed %d: promoted after %d flows: %s", name, seed, p.Canaries.Begun, p.Why)
				if p.Canaries.Begun > 60 {
					t.Errorf("%s: seed %d: promoted: %+v", name, seed, p.Canaries)
				}
			}
		}
		t.Logf("%s: %d of %d promoted, %d not judged for want of flows; decided after %.0f s", name, promoted, tried, few, sum/float64(tried))
		if promoted > 1+tried/50 {
			t.Errorf("%s: %d of %d were promoted", name, promoted, tried)
		}
	}
}

// concerns reports whether a version changes something for the clients that there are.
func (s *simulation) concerns(c change) bool {
	for _, sv := range s.relays[0].services {
		was := fmt.Sprint(sv)
		sv.kinds = slices.Clone(sv.kinds)
		if !c(&sv) || fmt.Sprint(sv) != was {
			return true
		}
	}
	return false
}
