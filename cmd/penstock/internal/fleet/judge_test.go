package fleet

import (
	"fmt"
	"math"
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

func TestJudge(t *testing.T) {
	begin := time.Now()
	end := begin.Add(time.Minute)
	flows := func(version, begun, refusals, connects, failed int64) Report {
		return Report{Version: version, Begun: begun, Refusals: refusals, ConnectFailures: connects, Failed: failed}
	}
	type reports = map[string]Report
	up := func(r Report, up int) Report {
		r.Groups = map[string]Group{"web": {Up: up, All: 2}}
		return r
	}
	refused := func(r Report) Report {
		r.Refused = &Refused{Version: 2, Error: "no"}
		return r
	}
	for name, c := range map[string]struct {
		steps   []reports // the last one at the end
		outcome Outcome
		why     string
	}{
		"nothing known":   {[]reports{nil}, Bad, "no reports"},
		"good":            {[]reports{{"c": flows(1, 9, 0, 0, 0), "o": flows(1, 9, 0, 0, 0)}, {"c": flows(2, 9, 0, 0, 0), "o": flows(1, 9, 0, 0, 0)}, {"c": flows(2, 1000, 0, 4, 0), "o": flows(1, 99, 0, 0, 0)}}, Good, ""},
		"never ran":       {[]reports{{"c": flows(1, 9, 0, 0, 0)}, {"c": flows(1, 9, 0, 0, 0)}}, Bad, "not run in time by c"},
		"never there":     {[]reports{{"o": flows(1, 9, 0, 0, 0)}}, Bad, "not run in time by c"},
		"gone":            {[]reports{{"c": flows(2, 9, 0, 0, 0)}, {}}, Bad, "no longer there: c"},
		"refused":         {[]reports{{"c": refused(flows(1, 9, 0, 0, 0))}}, Bad, "refused by c: no"},
		"connects":        {[]reports{{"c": flows(2, 0, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 100, 0, 10, 0), "o": flows(1, 1000, 0, 10, 0)}}, Bad, "10 connects failed on the canaries, 10.0% of their flows, and 1.0% elsewhere"},
		"as elsewhere":    {[]reports{{"c": flows(2, 0, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 100, 0, 10, 0), "o": flows(1, 1000, 0, 90, 0)}}, Good, ""},
		"refusals":        {[]reports{{"c": flows(2, 0, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 5, 5, 0, 0), "o": flows(1, 1000, 0, 0, 0)}}, Bad, "5 flows were refused on the canaries, 100.0%"},
		"failed":          {[]reports{{"c": flows(2, 0, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 10, 0, 0, 9), "o": flows(1, 1000, 0, 0, 0)}}, Bad, "9 flows failed"},
		"before it ran":   {[]reports{{"c": flows(1, 0, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 100, 0, 50, 0), "o": flows(1, 100, 0, 0, 0)}, {"c": flows(2, 200, 0, 50, 0), "o": flows(1, 200, 0, 0, 0)}}, Good, ""},
		"alone, as ever":  {[]reports{{"c": flows(2, 100, 0, 10, 0)}, {"c": flows(2, 200, 0, 20, 0)}}, Good, ""},
		"alone, worse":    {[]reports{{"c": flows(2, 100, 0, 10, 0)}, {"c": flows(2, 200, 0, 60, 0)}}, Bad, "50 connects failed"},
		"started anew":    {[]reports{{"c": flows(2, 100, 50, 50, 50), "o": flows(1, 0, 0, 0, 0)}, {"c": flows(2, 3, 0, 0, 0), "o": flows(1, 0, 0, 0, 0)}}, Good, ""},
		"members down":    {[]reports{{"c": up(flows(1, 0, 0, 0, 0), 2)}, {"c": up(flows(2, 0, 0, 0, 0), 0)}}, Bad, `no member of the group "web" is up on c`},
		"down before":     {[]reports{{"c": up(flows(1, 0, 0, 0, 0), 0)}, {"c": up(flows(2, 0, 0, 0, 0), 0)}}, Good, ""},
		"new group, down": {[]reports{{"c": flows(1, 0, 0, 0, 0)}, {"c": up(flows(2, 0, 0, 0, 0), 0)}}, Bad, "no member"},
	} {
		j := newJudge(2, []string{"c"})
		var p Progress
		for i, r := range c.steps {
			now := begin
			if i == len(c.steps)-1 {
				now = end.Add(time.Second)
			}
			p = j.look(r, now, end)
		}
		if p.Outcome != c.outcome || !strings.Contains(p.Why, c.why) {
			t.Errorf("%s: %d, %q; want %d, %q", name, p.Outcome, p.Why, c.outcome, c.why)
		}
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

// Relays that have their configuration from elsewhere are not waited for.
func TestProgressOf(t *testing.T) {
	p := progressOf(map[string]Report{"file": {}, "bad-file": {Refused: &Refused{Error: "x"}}, "new": {Version: 3}}, 3)
	if p.Outcome != Good || p.Run != 1 || p.Of != 1 {
		t.Errorf("%+v", p)
	}
	p = progressOf(map[string]Report{"old": {Version: 2}, "refuses": {Version: 2, Refused: &Refused{Version: 3, Error: "x"}}}, 3)
	if p.Outcome != Undecided || p.Of != 2 || len(p.Refused) != 1 || p.Why == "" {
		t.Errorf("%+v", p)
	}
}
