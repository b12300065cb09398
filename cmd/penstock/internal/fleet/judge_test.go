package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The canaries of a version are the same for every relay, are as many as asked for, and other ones for the next
// version.
func TestChooseCanaries(t *testing.T) {
	var nodes []string
	for i := range 200 {
		nodes = append(nodes, fmt.Sprintf("edge-%d", i))
	}
	before := ""
	for version := int64(1); version <= 50; version++ {
		for _, share := range []float64{0.001, 0.05, 0.5, 1} {
			chosen, below := chooseCanaries(nodes, version, share)
			if want := max(1, int(math.Round(share*200))); len(chosen) != want {
				t.Fatalf("%d of 200 for %v", len(chosen), share)
			}
			c := Canary{Version: version, Below: below}
			n := 0
			for _, node := range nodes {
				if c.Has(node) {
					n++
				}
			}
			if n != len(chosen) {
				t.Fatalf("version %d: %d relays take themselves for canaries, and %d were chosen", version, n, len(chosen))
			}
			if share == 0.05 {
				if now := strings.Join(chosen, " "); now == before {
					t.Errorf("version %d has the same canaries as the one before", version)
				} else {
					before = now
				}
			}
		}
	}
	if chosen, below := chooseCanaries(nil, 1, 1); len(chosen) != 0 || below != "" {
		t.Errorf("of nobody: %v, %q", chosen, below)
	}
}

// A judgeCase is a trial by relay "c" while relay "o" goes on, told by a few reports.
type judgeCase struct {
	before  []map[string]Report // before the trial
	steps   []map[string]Report // during it; the last one is looked at after the end
	late    bool                // the last one is looked at as late as may be
	outcome Outcome
	why     string
}

// reportAt returns a report of a relay after some seconds, that has served so many flows well.
func reportAt(seconds int, version, flows int64, change ...func(*Report)) Report {
	s := &Served{Begun: flows, Ends: map[string]int64{"end": flows}, Sizes: []int64{0, 0, 0, flows}, FirstByte: []int64{flows}, BytesDown: 5000 * flows}
	r := Report{Version: version, State: "ready", Since: time.Unix(0, 0), At: time.Unix(int64(seconds), 0), Begun: flows, Served: s, Penstock: "v1"}
	for _, f := range change {
		f(&r)
	}
	return r
}

// ends makes so many flows end with a cause, with that many bytes down.
func ends(cause string, n int64, size int) func(*Report) {
	return func(r *Report) {
		var more Served
		more.Begun, more.Ends, more.Sizes = n, map[string]int64{cause: n}, make([]int64, size+1)
		more.Sizes[size] = n
		r.Served.add(&more)
		r.Begun += n
		if cause == "refused" {
			r.Refusals += n
		}
	}
}

func connectsFail(n int64) func(*Report) {
	return func(r *Report) { r.Served.ConnectFailures += n; r.ConnectFailures += n }
}

// old makes a report one of a version of the program that does not say how clients are served.
func old(r *Report) { r.Served = nil }

func TestJudge(t *testing.T) {
	type reports = map[string]Report
	up := func(n int) func(*Report) {
		return func(r *Report) { r.Groups = map[string]Group{"web": {Up: n, All: 2}} }
	}
	none := func(r *Report) { r.Groups = map[string]Group{"web": {}} }
	refused := func(r *Report) { r.Refused = &Refused{Version: 2, Error: "no"} }
	restarted := func(r *Report) { r.Since = time.Unix(95, 0) }
	crashed := func(r *Report) { r.Crashes++ }
	drained := func(r *Report) { r.State = "drained" }
	listeners := func(flows map[string]int64) func(*Report) { // NAME, or NAME@URL
		return func(r *Report) {
			r.Begun, r.Served, r.Listeners = 0, &Served{}, map[string]Listener{}
			for name, n := range flows {
				name, at, ok := strings.Cut(name, "@")
				if !ok {
					at = "unix:@" + name
				}
				l := Served{Begun: n, Ends: map[string]int64{"end": n}, Sizes: []int64{0, 0, 0, n}}
				r.Listeners[name] = Listener{l, Socket{Listen: at}}
				r.Served.add(&l)
				r.Begun += n
			}
		}
	}
	// As it goes on when nothing happens: 10 flows a second at each relay.
	before := []reports{{"c": reportAt(100, 1, 1000), "o": reportAt(100, 1, 1000)}, {"c": reportAt(110, 1, 1100), "o": reportAt(110, 1, 1100)}}
	start := reports{"c": reportAt(111, 2, 1110), "o": reportAt(111, 1, 1110)}
	c := func(r Report) []reports { return []reports{start, {"c": r, "o": reportAt(131, 1, 1310)}} }
	alone := []reports{{"c": reportAt(100, 1, 1000)}, {"c": reportAt(110, 1, 1100)}}
	ab := func(b int64) []reports { // two listeners, of which one has a tenth as many flows a second as flows before
		return []reports{{"c": reportAt(100, 1, 0, listeners(map[string]int64{"a": 9000, "b": b}))}, {"c": reportAt(110, 1, 0, listeners(map[string]int64{"a": 9900, "b": b + b/10}))}}
	}
	idle := func(version int64, at int) Report { return reportAt(at, version, 0) }
	for name, tt := range map[string]judgeCase{
		"good":        {before, c(reportAt(131, 2, 1310)), false, Good, ""},
		"nothing":     {before, []reports{nil}, true, Bad, "no reports"},
		"never ran":   {before, []reports{{"c": reportAt(131, 1, 1300), "o": start["o"]}}, false, Bad, "not run in time by c"},
		"never there": {nil, []reports{{"o": start["o"]}}, false, Bad, "not run in time by c"},
		"gone":        {before, []reports{start, {"o": start["o"]}}, false, Bad, "no longer there: c"},
		"refused":     {before, []reports{{"c": reportAt(111, 1, 1100, refused), "o": start["o"]}}, false, Bad, "refused by c: no"},
		"restarted":   {before, c(reportAt(131, 2, 1310, restarted)), false, Bad, "c was started again"},
		"crashed":     {before, c(reportAt(131, 2, 1310, crashed)), false, Bad, "c has crashed"},
		"counts anew": {before, c(reportAt(131, 2, 310)), false, Bad, "c counts anew"},
		"drained":     {before, c(reportAt(131, 2, 1310, drained)), true, Bad, "c is drained"},

		"refusals":           {before, c(reportAt(131, 2, 1280, ends("refused", 30, 0))), false, Bad, "30 of 200 flows on the canaries were refused, 15.0%; before 0.0%; elsewhere 0.0%"},
		"connects":           {before, c(reportAt(131, 2, 1310, connectsFail(30))), false, Bad, "30 connects failed for 200 flows on the canaries, 15.0%"},
		"as elsewhere":       {before, []reports{start, {"c": reportAt(131, 2, 1310, connectsFail(30)), "o": reportAt(131, 1, 1310, connectsFail(29))}}, false, Good, ""},
		"as before":          {[]reports{before[0], {"c": reportAt(110, 1, 1070, ends("refused", 30, 0)), "o": before[1]["o"]}}, []reports{{"c": reportAt(111, 2, 1080, ends("refused", 30, 0)), "o": start["o"]}, {"c": reportAt(131, 2, 1230, ends("refused", 80, 0)), "o": reportAt(131, 1, 1310)}}, false, Good, ""},
		"member closes":      {before, c(reportAt(131, 2, 1110, ends("end", 200, 0))), false, Bad, "200 of 200 flows on the canaries got no byte from their upstream, 100.0%"},
		"never answered":     {before, c(reportAt(131, 2, 1110, ends("", 200, 0))), false, Bad, "got no byte"},
		"resets":             {before, c(reportAt(131, 2, 1270, ends("upstream-reset", 40, 3))), false, Bad, "ended by upstream-reset, 20.0%"},
		"idle":               {before, c(reportAt(131, 2, 1250, ends("idle", 60, 3))), false, Bad, "ended by idle"},
		"as somebody asked":  {before, c(reportAt(131, 2, 1250, ends("removed", 60, 3))), false, Good, ""},
		"smaller answers":    {before, c(reportAt(131, 2, 1110, ends("end", 200, 1))), false, Bad, "got less than 128 bytes"},
		"a few":              {before, c(reportAt(131, 2, 1306, ends("first-byte", 4, 0))), false, Good, ""},
		"nobody comes":       {before, c(reportAt(131, 2, 1110)), false, Bad, "0 flows began on the canaries, where 200 were to be expected"},
		"hardly anybody":     {before, c(reportAt(131, 2, 1120)), false, Bad, "10 flows began on the canaries, where 200 were to be expected"},
		"half of them":       {before, c(reportAt(131, 2, 1210)), false, Good, ""},
		"nobody anywhere":    {before, []reports{{"c": reportAt(111, 2, 1110), "o": reportAt(111, 1, 1100)}, {"c": reportAt(131, 2, 1110), "o": reportAt(131, 1, 1100)}}, true, Unjudged, "no flow was seen by the canaries"},
		"hardly any load":    {[]reports{{"c": reportAt(100, 1, 10)}, {"c": reportAt(110, 1, 11)}}, []reports{{"c": reportAt(111, 2, 11)}, {"c": reportAt(131, 2, 16)}}, false, Undecided, "only 5 flows on the canaries so far"},
		"and it is late":     {[]reports{{"c": reportAt(100, 1, 10)}, {"c": reportAt(110, 1, 11)}}, []reports{{"c": reportAt(111, 2, 11)}, {"c": reportAt(131, 2, 16)}}, true, Good, "only 5 flows were seen by the canaries"},
		"too few to tell":    {[]reports{{"c": reportAt(100, 1, 10)}, {"c": reportAt(110, 1, 11)}}, []reports{{"c": reportAt(111, 2, 11)}, {"c": reportAt(131, 2, 15)}}, true, Unjudged, "only 4 flows were seen by the canaries"},
		"never anybody":      {[]reports{{"c": idle(1, 100)}, {"c": idle(1, 110)}}, []reports{{"c": idle(2, 111)}, {"c": idle(2, 131)}}, false, Unjudged, "no flow was seen by the canaries, nor elsewhere"},
		"too short":          {before, []reports{start, {"c": reportAt(113, 2, 1110, ends("upstream-reset", 40, 0)), "o": reportAt(113, 1, 1130)}}, false, Undecided, "have run the version for less than 3s"},
		"too short, late":    {before, []reports{start, {"c": reportAt(113, 2, 1130), "o": reportAt(113, 1, 1130)}}, true, Unjudged, "have run the version for less than 3s"},
		"somebody elsewhere": {[]reports{{"c": idle(1, 100), "o": idle(1, 100)}, {"c": idle(1, 110), "o": idle(1, 110)}}, []reports{{"c": idle(2, 111), "o": idle(1, 111)}, {"c": idle(2, 131), "o": reportAt(131, 1, 50)}}, true, Bad, "no flow was seen by the canaries, and 50 elsewhere"},

		"alone":             {alone, []reports{{"c": start["c"]}, {"c": reportAt(131, 2, 1310)}}, false, Good, ""},
		"alone, worse":      {alone, []reports{{"c": start["c"]}, {"c": reportAt(131, 2, 1250, ends("no-upstream", 60, 0))}}, false, Bad, "ended by no-upstream, 30.0%; before 0.0%"},
		"alone, never seen": {nil, []reports{{"c": idle(2, 111)}, {"c": reportAt(131, 2, 5, ends("no-upstream", 60, 0))}}, false, Bad, "ended by no-upstream"},

		"older canary":         {before, c(reportAt(131, 2, 1310, old)), false, Unjudged, "do not report how clients are served: c (Penstock v1)"},
		"older canary, worse":  {[]reports{{"c": reportAt(110, 1, 1100, old)}}, []reports{{"c": reportAt(111, 2, 1110, old)}, {"c": reportAt(131, 2, 1270, ends("refused", 40, 0), old)}}, false, Bad, "were refused"},
		"older relays besides": {[]reports{{"c": reportAt(100, 1, 1000), "o": reportAt(100, 1, 1000, old)}, {"c": reportAt(110, 1, 1100), "o": reportAt(110, 1, 1100, old)}}, []reports{start, {"c": reportAt(131, 2, 1110, ends("end", 200, 0)), "o": reportAt(131, 1, 1310, old)}}, false, Bad, "got no byte"},

		"members down":     {[]reports{{"c": reportAt(110, 1, 1100, up(2))}}, []reports{start, {"c": reportAt(131, 2, 1310, up(0))}}, false, Bad, `no member of the group "web" is up on c`},
		"members gone":     {[]reports{{"c": reportAt(110, 1, 1100, up(2))}}, []reports{start, {"c": reportAt(131, 2, 1310, none)}}, false, Bad, `no member of the group "web" is up on c`},
		"new group, empty": {before, c(reportAt(131, 2, 1310, none)), false, Good, ""},
		"down before":      {[]reports{{"c": reportAt(110, 1, 1100, up(0))}}, []reports{start, {"c": reportAt(131, 2, 1310, up(0))}}, false, Good, ""},
		"new group, down":  {before, c(reportAt(131, 2, 1310, up(0))), false, Bad, "no member"},

		"one listener":     {ab(1000), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990, "b": 1110}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790, "b": 1110}))}}, false, Bad, `listener "b": 0 flows began on the canaries, where 200 were`},
		"a listener less":  {ab(1000), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790}))}}, false, Bad, `listeners that are gone, ["b"]: 100 flows began there in the 10 seconds before`},
		"seldom, and gone": {ab(50), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790}))}}, false, Bad, `["b"]: 5 flows began there`},
		"gone, not used":   {ab(9), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790}))}}, false, Good, ""},
		"seldom, none":     {ab(50), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990, "b": 55}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790, "b": 55}))}}, false, Undecided, `not sure yet: listener "b": 0 flows began`},
		"a listener more":  {ab(1000), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990, "b": 1110, "c": 0}))}, {"c": reportAt(131, 2, 2000, listeners(map[string]int64{"a": 11790, "b": 1310, "c": 0}))}}, false, Good, ""},
		"seldom used":      {ab(20), []reports{{"c": reportAt(111, 2, 0, listeners(map[string]int64{"a": 9990, "b": 21}))}, {"c": reportAt(131, 2, 1800, listeners(map[string]int64{"a": 11790, "b": 21}))}}, true, Good, ""},
	} {
		j := newJudge(defaultSilence)
		mod := int64(0)
		seen := func(r reports) map[string]sighting {
			if r == nil {
				return nil
			}
			all := map[string]sighting{}
			for name, r := range r {
				mod++
				all[name] = sighting{r, mod, 0}
			}
			return all
		}
		for _, r := range tt.before {
			j.watch(seen(r))
		}
		j.begin(2, []string{"c"})
		var p Progress
		for i, r := range tt.steps {
			at := moment{}
			if i == len(tt.steps)-1 {
				at = moment{true, tt.late, max(1, mod)}
			}
			p = j.look(seen(r), at)
		}
		if p.Outcome != tt.outcome || !strings.Contains(p.Why, tt.why) {
			t.Errorf("%s: %d, %q; want %d, %q", name, p.Outcome, p.Why, tt.outcome, tt.why)
		}
	}
}

// A listener is known again by its name, or by where it listens. Whoever has got the clients of one that is gone may be any that
// has come, or has moved, or was there: its clients are missed only if these have too few.
func TestJudgeListenersThatChange(t *testing.T) {
	type flows = map[string]int64 // in a second, of listeners NAME@URL
	for name, tt := range map[string]struct {
		before, now flows
		outcome     Outcome
		why         string
	}{
		"nothing":                    {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"a@tcp://:1": 20, "b@udp://:2": 5}, Good, ""},
		"another name":               {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"a@tcp://:1": 20, "c@udp://:2": 5}, Good, ""},
		"another name, and silent":   {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"a@tcp://:1": 20, "c@udp://:2": 0}, Bad, `listeners ["b" "c"] together: 0 flows began on the canaries, where 100 were`},
		"all have other names":       {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"x@tcp://:1": 20, "y@udp://:2": 5}, Good, ""},
		"names exchanged":            {flows{"a@tcp://:1": 100, "b@tcp://:2": 5}, flows{"b@tcp://:1": 100, "a@tcp://:2": 5}, Good, ""},
		"names handed on":            {flows{"a@tcp://:1": 100, "b@tcp://:2": 5}, flows{"b@tcp://:1": 100, "c@tcp://:2": 5}, Good, ""},
		"gone":                       {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"a@tcp://:1": 20}, Bad, `listeners that are gone, ["b"]: 50 flows began there`},
		"several gone":               {flows{"a@tcp://:1": 20, "b@udp://:2": 5, "c@udp://:3": 5}, flows{"a@tcp://:1": 20}, Bad, `listeners that are gone, ["b" "c"]: 100 flows`},
		"gone, and another new":      {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"a@tcp://:1": 20, "c@udp://:3": 5}, Bad, `listeners that are gone, ["b"]: 50 flows`},
		"gone, and another renamed":  {flows{"a@tcp://:1": 20, "b@udp://:2": 5}, flows{"x@tcp://:1": 20}, Bad, `listeners that are gone, ["b"]: 50 flows`},
		"other protocol":             {flows{"a@tcp://:1": 20, "b@udp://:1": 5}, flows{"a@tcp://:1": 20, "b2@tcp://:2": 0}, Bad, `["b"]: 50 flows`},
		"moved":                      {flows{"a@tcp://10.0.0.1:1": 20}, flows{"a@tcp://10.0.0.2:1": 0}, Bad, `listener "a": 0 flows began on the canaries, where 400 were`},
		"moved with its clients":     {flows{"a@tcp://10.0.0.1:1": 20}, flows{"a@tcp://10.0.0.2:9": 20}, Good, ""},
		"moved, another name":        {flows{"a@tcp://10.0.0.1:1": 20}, flows{"b@tcp://10.0.0.2:1": 20}, Bad, `["a"]: 200 flows`},
		"all addresses":              {flows{"a@tcp://10.0.0.1:1": 20}, flows{"b@tcp://:1": 20}, Good, ""},
		"all addresses of IPv4":      {flows{"a@tcp://10.0.0.1:1": 20}, flows{"b@tcp://0.0.0.0:1": 20}, Good, ""},
		"one address":                {flows{"a@tcp://[::]:1": 20}, flows{"b@tcp://[2001:db8::1]:1": 20}, Good, ""},
		"range split":                {flows{"a@tcp://:30000-30999": 20}, flows{"a@tcp://:30000-30009": 1, "b@tcp://:30010-30999": 19}, Good, ""},
		"range split, part missing":  {flows{"a@tcp://:30000-30999": 20}, flows{"b@tcp://:30000-30009": 1}, Bad, `["a" "b"] together: 20 flows began on the canaries, where 400 were`},
		"ranges joined":              {flows{"a@tcp://:30000-30009": 20, "b@tcp://:30010-30999": 20}, flows{"c@tcp://:30000-30999": 40}, Good, ""},
		"address split off":          {flows{"a@udp://:53": 20}, flows{"a@udp://:53": 1, "b@udp://10.0.0.1:53": 19}, Good, ""},
		"successor was there":        {flows{"a@udp://:53": 1, "b@udp://10.0.0.1:53": 19}, flows{"a@udp://:53": 20}, Good, ""},
		"a path":                     {flows{"a@unix:///run/a b": 20}, flows{"b@unix:///run/a b": 20}, Good, ""},
		"handed down":                {flows{"a@inherit web": 20}, flows{"b@inherit web": 20}, Good, ""},
		"another one handed down":    {flows{"a@inherit web": 20}, flows{"b@inherit dns": 20}, Bad, `["a"]: 200 flows`},
		"new":                        {flows{"a@tcp://:1": 20}, flows{"a@tcp://:1": 20, "b@tcp://:2": 20}, Good, ""},
		"of an older relay, gone":    {flows{"a@": 20, "b@": 5}, flows{"a@": 20}, Bad, `listeners that are gone, ["b"]: 50 flows`},
		"of an older relay, renamed": {flows{"a@": 20, "b@": 5}, flows{"a@": 20, "c@": 5}, Good, ""},
		"one of many":                {manyListeners("", 30), manyListeners("listener-00@unix:@00", 30), Good, ""},
		"one of many, silent":        {manyListeners("", 30), manyListeners("listener-00@unix:@00", 0), Bad, "flows began on the canaries"},
		"of an older relay, silent":  {flows{"a@": 20, "b@": 5}, flows{"a@": 20, "b@": 0}, Bad, `listener "b": 0 flows began`},
	} {
		run := func(seconds int, version int64, rates flows, since int) map[string]sighting {
			r := reportAt(seconds, version, 0)
			r.Served, r.Listeners = &Served{}, map[string]Listener{}
			for l, n := range rates {
				l, at, _ := strings.Cut(l, "@")
				n *= int64(seconds - since)
				s := Served{Begun: n, Ends: map[string]int64{"end": n}, Sizes: []int64{0, 0, 0, n}}
				r.Listeners[l] = Listener{s, Socket{Listen: at}}
				r.Served.add(&s)
			}
			r.Bound()
			r.Begun = r.Served.Begun + int64(seconds)*100_000 // those of listeners that are gone are still counted
			return map[string]sighting{"c": {r, int64(seconds), 0}}
		}
		j := newJudge(defaultSilence)
		j.watch(run(100, 1, tt.before, 0))
		j.watch(run(110, 1, tt.before, 0))
		j.begin(2, []string{"c"})
		j.look(run(111, 2, tt.now, 111), moment{})
		p := j.look(run(131, 2, tt.now, 111), moment{ended: true, after: 1})
		if p.Outcome != tt.outcome || !strings.Contains(p.Why, tt.why) {
			t.Errorf("%s: %d, %q; want %d, %q", name, p.Outcome, p.Why, tt.outcome, tt.why)
		}
	}
}

// manyListeners returns more listeners than are listed, without one, at which so many flows begin in a second.
func manyListeners(without string, rate int64) map[string]int64 {
	all := map[string]int64{}
	for i := range maxListeners + 5 {
		all[fmt.Sprintf("listener-%02d@unix:@%02d", i, i)] = rate
	}
	delete(all, without)
	return all
}

// Interfaces tell sockets apart, unless one is of all.
func TestSocketOverlaps(t *testing.T) {
	on := func(i string) Socket { return Socket{"udp://:53", i} }
	if on("eth0").overlaps(on("eth1")) || !on("eth0").overlaps(on("eth0")) || !on("").overlaps(on("eth1")) || !on("eth0").overlaps(on("")) {
		t.Error("interfaces")
	}
	if (Socket{Listen: "tcp://:0"}).overlaps(Socket{Listen: "tcp://:80"}) {
		t.Error("any free port")
	}
}

// Whatever the times of their reports, canaries whose listener only got another name are not taken back, also if one of them comes
// from another version than the rest, or one that the new version goes back to; and a listener that is gone is.
func TestJudgeTimesOfReports(t *testing.T) {
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 9))
		gone := random.IntN(4) == 0
		names := []string{"dns", "dns-2", "dns-3", "aaa"}
		next := names[random.IntN(len(names))]
		relays := 2 + random.IntN(4)
		canaries := 1 + random.IntN(relays-1)
		type relay struct {
			old           string
			switches, off float64 // when it runs the version; when in a second it reports
			lag           float64 // until a report is seen
		}
		var all []relay
		for range relays {
			all = append(all, relay{names[random.IntN(len(names))], 10 + 3*random.Float64(), random.Float64(), 2 * random.Float64()})
		}
		at := func(i int, now float64) Report {
			r := all[i]
			now = math.Floor(now-r.lag+r.off) - r.off // of the last report that is seen
			report := Report{State: "ready", Version: 1, Since: time.Unix(-1000, 0), At: time.Unix(0, int64(now*1e9)), Served: &Served{}, Listeners: map[string]Listener{}}
			tried := i < canaries && now >= r.switches
			add := func(name, socket string, since, until, rate float64, has bool) {
				n := int64(rate * (until - since))
				s := Served{Begun: n, Ends: map[string]int64{"end": n}, Sizes: []int64{0, 0, 0, n}, FirstByte: []int64{n}}
				if has {
					l := report.Listeners[name]
					l.Served.add(&s)
					report.Listeners[name] = Listener{l.Served, Socket{Listen: socket}}
				}
				report.Served.add(&s)
			}
			until := now
			if tried {
				report.Version, until = 2, r.switches
			}
			add("web", "tcp://:80", -1000, now, 10, true)
			add(r.old, "udp://:53", -1000, until, 2, !tried || !gone && next == r.old)
			if tried && !gone {
				add(next, "udp://:53", until, now, 2, true)
			}
			report.Begun = report.Served.Begun
			return report
		}
		j := newJudge(defaultSilence)
		reports := func(now float64) map[string]sighting {
			seen := map[string]sighting{}
			for i := range all {
				r := at(i, now)
				seen[fmt.Sprint("relay-", i)] = sighting{r, r.At.Unix() + 100, 0}
			}
			return seen
		}
		now := 0.0
		for ; now < 10; now += 0.5 {
			j.watch(reports(now))
		}
		var chosen []string
		for i := range canaries {
			chosen = append(chosen, fmt.Sprint("relay-", i))
		}
		j.begin(2, chosen)
		var p Progress
		for ; p.Outcome == Undecided && now < 60; now += 0.5 {
			m := moment{ended: now > 20, late: now > 50}
			if m.ended {
				m.after = 1
			}
			p = j.look(reports(now), m)
		}
		if want := map[bool]Outcome{false: Good, true: Bad}[gone]; p.Outcome != want {
			t.Fatalf("seed %d: %d, %q; want %d: %q -> %q, gone: %t, %+v", seed, p.Outcome, p.Why, want, all[0].old, next, gone, all)
		}
	}
}

// A canary that is silent holds the trial, and so does one that has not reported since the end; when it is late, that is bad.
func TestJudgeSilence(t *testing.T) {
	j := newJudge(defaultSilence)
	look := func(mod int64, silent time.Duration, at moment) Progress {
		return j.look(map[string]sighting{"c": {reportAt(100+int(mod), 2, 1000+100*mod), mod, silent}}, at)
	}
	j.watch(map[string]sighting{"c": {reportAt(100, 1, 1000), 1, 0}})
	j.begin(2, []string{"c"})
	look(2, 0, moment{})
	if p := look(3, defaultSilence, moment{}); p.Outcome != Undecided || !strings.Contains(p.Why, "c has not reported for 4s") {
		t.Errorf("%+v", p)
	}
	if p := look(3, 9*time.Second, moment{ended: true, after: 5}); p.Outcome != Undecided || !strings.Contains(p.Why, "c has not reported for 9s") {
		t.Errorf("at the end: %+v", p)
	}
	if p := look(5, 0, moment{ended: true, after: 5}); p.Outcome != Undecided || !strings.Contains(p.Why, "c has not reported since the end") {
		t.Errorf("written before the end: %+v", p)
	}
	if p := look(6, 0, moment{ended: true}); p.Outcome != Undecided || p.Why != "etcd does not answer" {
		t.Errorf("without a revision: %+v", p)
	}
	if p := look(6, 9*time.Second, moment{ended: true, late: true, after: 5}); p.Outcome != Bad || !strings.Contains(p.Why, "c has not reported for 9s") {
		t.Errorf("late: %+v", p)
	}
	if p := look(6, 0, moment{ended: true, after: 5}); p.Outcome != Good {
		t.Errorf("after the end: %+v", p)
	}
}

// A difference leads from one text to the other, and is as small as it can be.
func TestLineDiff(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""},
		{"a\nb\n", "a\nb\n", ""},
		{"", "a\n", "+ a"},
		{"a", "", "- a"},
		{"a\nb\nc\n", "a\nx\nc\n", "  a|- b|+ x|  c"},
		{"1\n2\n3\n4\n5\n6\nb\n", "1\n2\n3\n4\n5\n6\nc\n", "  ... (3 lines)|  4|  5|  6|- b|+ c"},
		{"a\nb\nc\nd\n", "b\nd\ne\n", "- a|  b|- c|  d|+ e"},
	} {
		if got := strings.Join(LineDiff(c.a, c.b), "|"); got != c.want {
			t.Errorf("from %q to %q: %s, want %s", c.a, c.b, got, c.want)
		}
	}
	big := strings.Repeat("x\n", 3000)
	if got := LineDiff("a\n"+big, strings.Repeat("y\n", 3000)); len(got) != 6001 {
		t.Errorf("%d lines", len(got))
	}
}

// Relays that have their configuration from elsewhere are not waited for; those that were heard of only before are.
func TestProgressOf(t *testing.T) {
	p := progressOf(map[string]sighting{"file": {}, "bad-file": {Report: Report{Refused: &Refused{Error: "x"}}}, "new": {Report{Version: 3}, 8, 0}}, 3, 7)
	if p.Outcome != Good || p.Run != 1 || p.Of != 1 {
		t.Errorf("%+v", p)
	}
	p = progressOf(map[string]sighting{"old": {Report{Version: 2}, 8, 0}, "refuses": {Report{Version: 2, Refused: &Refused{Version: 3, Error: "x"}}, 8, 0}}, 3, 7)
	if p.Outcome != Undecided || p.Of != 2 || len(p.Refused) != 1 || p.Why != "not run yet by old" {
		t.Errorf("%+v", p)
	}
	p = progressOf(map[string]sighting{"dead": {Report{Version: 3}, 7, 12 * time.Second}, "new": {Report{Version: 3}, 8, 0}}, 3, 7)
	if p.Outcome != Undecided || p.Run != 1 || p.Of != 2 || p.Why != "dead has not reported for 12s" {
		t.Errorf("%+v", p)
	}
}
