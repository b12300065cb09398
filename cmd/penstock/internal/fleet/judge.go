package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Outcome says how a trial goes.
type Outcome int

// The outcomes.
const (
	Undecided Outcome = iota
	Good
	Bad
)

// Progress says how far a version has come.
type Progress struct {
	Outcome Outcome
	Why     string // of Bad, and of Undecided what is missing
	Run     int    // how many of those who shall run the version do
	Of      int
	Refused []string // who has refused it, with the reason
	// Canaries and Others count what happened since the canaries run the version.
	Canaries, Others Sums
}

// Sums count flows of several relays.
type Sums struct {
	Begun, Refusals, ConnectFailures, Failed int64
}

func (s *Sums) add(now, before *Report) {
	s.Begun += now.Begun - before.Begun
	s.Refusals += now.Refusals - before.Refusals
	s.ConnectFailures += now.ConnectFailures - before.ConnectFailures
	s.Failed += now.Failed - before.Failed
}

// The canaries are worse than the others if at least worseCount of their flows were refused, failed to connect or
// failed otherwise, and the share of these in their flows is more than worseShare above that of the others. Both are
// documented in docs/fleet.md.
const (
	worseCount = 5
	worseShare = 0.05
)

// A judge follows reports of a trial.
type judge struct {
	version  int64
	canaries map[string]bool
	first    map[string]Report // where counting begins
	prior    map[string]Report // the first report of each
	seen     map[string]bool   // canaries that have reported
	before   Sums              // of the canaries, before the trial: what they are compared with if there is nobody else
}

func newJudge(version int64, canaries []string) *judge {
	j := &judge{version: version, canaries: map[string]bool{}, first: map[string]Report{}, prior: map[string]Report{}, seen: map[string]bool{}}
	for _, name := range canaries {
		j.canaries[name] = true
	}
	return j
}

// look judges the present reports; nil: there are none yet.
func (j *judge) look(reports map[string]Report, now, end time.Time) Progress {
	p := Progress{Of: len(j.canaries)}
	if reports == nil {
		if now.After(end) {
			p.Outcome, p.Why = Bad, "no reports could be read"
		}
		return p
	}
	var missing, gone []string
	for _, name := range slices.Sorted(maps.Keys(j.canaries)) {
		r, present := reports[name]
		switch {
		case !present && j.seen[name]:
			gone = append(gone, name)
		case present && r.Refused != nil && r.Refused.Version == j.version:
			p.Refused = append(p.Refused, name+": "+r.Refused.Error)
		case present && r.Version == j.version:
			p.Run++
		default:
			missing = append(missing, name)
		}
		j.seen[name] = j.seen[name] || present
	}
	others := 0
	for name, r := range reports {
		if _, ok := j.prior[name]; !ok {
			j.prior[name] = r
		}
		canary := j.canaries[name]
		if canary && r.Version != j.version {
			continue
		}
		first, ok := j.first[name]
		if !ok || r.Begun < first.Begun || r.Refusals < first.Refusals || r.ConnectFailures < first.ConnectFailures || r.Failed < first.Failed {
			if canary && !ok {
				j.before.add(&r, &Report{})
			}
			first = r // or the relay was started anew
			j.first[name] = r
		}
		if canary {
			p.Canaries.add(&r, &first)
		} else {
			p.Others.add(&r, &first)
			others++
		}
	}
	compared := p.Others
	if others == 0 {
		compared = j.before
	}
	worse := worseThan(&p.Canaries, &compared)
	switch {
	case len(p.Refused) > 0:
		p.Outcome, p.Why = Bad, "refused by "+p.Refused[0]
		if n := len(p.Refused) - 1; n > 0 {
			p.Why += fmt.Sprintf(", and by %d more", n)
		}
	case len(gone) > 0:
		p.Outcome, p.Why = Bad, "no longer there: "+gone[0]
	case worse != "":
		p.Outcome, p.Why = Bad, worse
	case now.Before(end):
		if len(missing) > 0 {
			p.Why = "not run yet by " + missing[0]
		}
	case len(missing) > 0:
		p.Outcome, p.Why = Bad, "not run in time by "+missing[0]
	default:
		p.Outcome = Good
		if why := membersDown(reports, j.prior, j.canaries); why != "" {
			p.Outcome, p.Why = Bad, why
		}
	}
	return p
}

// worseThan says what is worse with the canaries; empty: nothing.
func worseThan(c, others *Sums) string {
	for _, kind := range []struct {
		what string
		of   func(*Sums) int64
	}{
		{"connects failed", func(s *Sums) int64 { return s.ConnectFailures }},
		{"flows were refused", func(s *Sums) int64 { return s.Refusals }},
		{"flows failed", func(s *Sums) int64 { return s.Failed }},
	} {
		n, most := kind.of(c), kind.of(others)
		if n < worseCount {
			continue
		}
		here, there := shareOf(n, c.Begun), shareOf(most, others.Begun)
		if here > there+worseShare {
			return fmt.Sprintf("%d %s on the canaries, %.1f%% of their flows, and %.1f%% elsewhere", n, kind.what, 100*here, 100*there)
		}
	}
	return ""
}

func shareOf(n, all int64) float64 {
	if n <= 0 {
		return 0
	}
	return float64(n) / float64(max(n, all))
}

// membersDown says which group of a canary has no member left that is up, although it had one before, or is new;
// empty: none.
func membersDown(reports, prior map[string]Report, canaries map[string]bool) string {
	for _, name := range slices.Sorted(maps.Keys(canaries)) {
		r := reports[name]
		for _, group := range slices.Sorted(maps.Keys(r.Groups)) {
			g := r.Groups[group]
			before, had := prior[name].Groups[group]
			if g.All > 0 && g.Up == 0 && (!had || before.Up > 0) {
				return fmt.Sprintf("no member of the group %q is up on %s", group, name)
			}
		}
	}
	return ""
}

// progressOf says how many relays run a version. It is Good if all do, and Bad if some have refused it and the
// others run it.
func progressOf(reports map[string]Report, version int64) Progress {
	var p Progress
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		r := reports[name]
		if r.Version == 0 && (r.Refused == nil || r.Refused.Version == 0) {
			continue // its configuration is from elsewhere
		}
		p.Of++
		switch {
		case r.Refused != nil && r.Refused.Version == version:
			p.Refused = append(p.Refused, name+": "+r.Refused.Error)
		case r.Version >= version:
			p.Run++
		case p.Why == "":
			p.Why = "not run yet by " + name
		}
	}
	switch {
	case p.Run == p.Of:
		p.Outcome = Good
	case p.Run+len(p.Refused) == p.Of:
		p.Outcome, p.Why = Bad, "refused by "+p.Refused[0]
	}
	return p
}
