package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Outcome says how a trial goes.
type Outcome int

// The outcomes.
const (
	Undecided Outcome = iota
	Good
	Bad
	Unjudged // nothing is wrong that could be seen, but nothing could be seen of how clients are served
)

// Progress says how far a version has come.
type Progress struct {
	Outcome Outcome
	Why     string // of Bad and Unjudged; of Undecided what is missing, and of Good what could not be judged
	Run     int    // how many of those who shall run the version do
	Of      int
	Refused []string // who has refused it, with the reason
	// Canaries and Others count what happened since the canaries run the version.
	Canaries, Others Served
}

// A sighting is the report of a relay as somebody sees it who follows the reports.
type sighting struct {
	Report
	mod    int64         // its revision
	silent time.Duration // for how long it has not changed, by the clock of the observer
}

// A moment is where a trial stands when it is judged.
type moment struct {
	ended bool // the version was tried for as long as was asked for
	late  bool // it was tried for as long as may be
	// after is a revision of etcd that is not before the end: reports must be later. 0: it is not known yet.
	after int64
}

// leastJudged is how many flows the canaries shall have begun before a trial ends well. If they do not come, it lasts up to
// longestTrial times as long, or as leastSeconds if that is more.
const (
	leastJudged  = 20
	longestTrial = 3
)

// defaultSilence is how long a canary may be silent. During a trial, reports come every second.
const defaultSilence = 4 * time.Second

// A judge follows reports of a trial, and says whether the canaries' clients are served as well as before, and as well as
// elsewhere. It has no clock and no randomness: what it says follows from the reports that it was given.
//
//	watch, before the version is tried ──begin──▶ look, until the outcome is not Undecided
type judge struct {
	version  int64
	canaries map[string]bool
	silence  time.Duration
	tracks   map[string]*track
}

// A track is what is known of one relay.
type track struct {
	first, before Report // the first report, and the last one before the version was tried, or before this relay ran it
	start, now    Report // since when it counts in the trial, and the last report
	counts        bool   // start and now are there
}

func newJudge(silence time.Duration) *judge {
	return &judge{canaries: map[string]bool{}, silence: silence, tracks: map[string]*track{}}
}

// watch notes reports before the version is tried.
func (j *judge) watch(reports map[string]sighting) {
	for name, r := range reports {
		t := j.tracks[name]
		if t == nil || startedAgain(&t.before, &r.Report) != "" {
			t = &track{first: r.Report}
			j.tracks[name] = t
		}
		t.before = r.Report
	}
}

// watched returns for how long all relays have been watched, by their own clocks.
func (j *judge) watched() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, t := range j.tracks {
		least = min(least, t.before.At.Sub(t.first.At))
	}
	return least
}

// begin says that a version is now tried by the canaries.
func (j *judge) begin(version int64, canaries []string) {
	j.version = version
	for _, name := range canaries {
		j.canaries[name] = true
	}
	for name, t := range j.tracks {
		if !j.canaries[name] {
			t.start, t.now, t.counts = t.before, t.before, true
		}
	}
}

// startedAgain says how a relay has ended between two reports; empty: it has not.
func startedAgain(before, now *Report) string {
	switch {
	case !now.Since.Equal(before.Since):
		return "was started again"
	case now.Crashes > before.Crashes:
		return "has crashed"
	case now.Begun < before.Begun:
		return "counts anew"
	}
	return ""
}

// look judges the present reports; nil: there are none yet.
func (j *judge) look(reports map[string]sighting, at moment) Progress {
	p := Progress{Of: len(j.canaries)}
	if reports == nil {
		if at.late {
			p.Outcome, p.Why = Bad, "no reports could be read"
		}
		return p
	}
	var bad, missing, hold string
	first := func(text *string, format string, args ...any) {
		if *text == "" {
			*text = fmt.Sprintf(format, args...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(j.canaries)) {
		r, present := reports[name]
		t := j.tracks[name]
		switch {
		case !present && t != nil:
			first(&bad, "no longer there: %s", name)
			continue
		case !present:
			first(&missing, "not run yet by %s", name)
			continue
		case t == nil:
			t = &track{first: r.Report, before: r.Report}
			j.tracks[name] = t
		}
		if again := startedAgain(&t.before, &r.Report); again != "" {
			first(&bad, "%s %s", name, again)
		}
		switch {
		case r.Refused != nil && r.Refused.Version == j.version:
			p.Refused = append(p.Refused, name+": "+r.Refused.Error)
		case r.Version == j.version:
			p.Run++
			if !t.counts {
				t.start, t.counts = r.Report, true
			}
			t.now = r.Report
		default:
			t.before = r.Report
			first(&missing, "not run yet by %s", name)
		}
		switch {
		case r.silent >= j.silence:
			first(&hold, "%s has not reported for %v", name, r.silent.Truncate(time.Second))
		case r.State != "ready" && r.Version == j.version:
			first(&hold, "%s is %s", name, r.State)
		case at.ended && r.mod <= at.after:
			first(&hold, "%s has not reported since the end", name)
		}
	}
	j.others(reports)
	all, each := j.comparisons()
	p.Canaries, p.Others = all.now.Served, all.elsewhere.Served
	how := sure
	if at.late {
		how = sureEnough
	}
	worse := worseBy(each, all, how)
	if at.ended && at.after == 0 {
		first(&hold, "etcd does not answer")
	}
	switch {
	case len(p.Refused) > 0:
		p.Outcome, p.Why = Bad, "refused by "+p.Refused[0]
		if n := len(p.Refused) - 1; n > 0 {
			p.Why += fmt.Sprintf(", and by %d more", n)
		}
	case bad != "":
		p.Outcome, p.Why = Bad, bad
	case worse != "":
		p.Outcome, p.Why = Bad, worse
	case !at.ended:
		p.Why = cmp.Or(missing, hold)
	case missing != "":
		p.Outcome, p.Why = Bad, strings.Replace(missing, "yet", "in time", 1)
	case hold != "" && !at.late:
		p.Why = hold
	case hold != "":
		p.Outcome, p.Why = Bad, hold
	case !at.late && worseBy(each, all, suspicious) != "":
		p.Why = "not sure yet: " + worseBy(each, all, suspicious)
	default:
		if p.Outcome, p.Why = j.enough(all, at.late); p.Outcome != Undecided {
			if down := j.membersDown(); down != "" {
				p.Outcome, p.Why = Bad, down
			}
		}
	}
	return p
}

// others notes the reports of relays that are no canaries, run another version, and serve clients.
func (j *judge) others(reports map[string]sighting) {
	for name, r := range reports {
		if j.canaries[name] {
			continue
		}
		t := j.tracks[name]
		switch {
		case r.State != "ready" || r.Version == j.version:
			if t != nil {
				t.counts = false
			}
		case t == nil:
			j.tracks[name] = &track{first: r.Report, before: r.Report, start: r.Report, now: r.Report, counts: true}
		case !t.counts || startedAgain(&t.now, &r.Report) != "":
			t.first, t.before, t.start, t.now, t.counts = r.Report, r.Report, r.Report, r.Report, true
		default:
			t.now = r.Report
		}
	}
}

// worseBy says what is worse by one of several comparisons; empty: nothing.
func worseBy(each []*comparison, all *comparison, how certainty) string {
	for _, c := range append(each, all) {
		if text := c.worse(how); text != "" {
			return c.prefix() + text
		}
	}
	return ""
}

// enough says how a trial ends in which nothing was found to be worse. If there were few flows, it goes on until it is late.
func (j *judge) enough(all *comparison, late bool) (Outcome, string) {
	var silent []string // canaries that do not say how clients are served
	for _, name := range slices.Sorted(maps.Keys(j.canaries)) {
		if t := j.tracks[name]; t.now.Served == nil {
			silent = append(silent, fmt.Sprintf("%s (Penstock %s)", name, t.now.Penstock))
		}
	}
	if len(silent) == len(j.canaries) {
		return Unjudged, "the canaries do not report how clients are served: " + shorten(strings.Join(silent, ", "))
	}
	switch n := all.now.Begun; {
	case all.short() && !late:
		return Undecided, fmt.Sprintf("the canaries have run the version for less than %ds", leastSeconds)
	case all.short():
		return Unjudged, fmt.Sprintf("the canaries have run the version for less than %ds", leastSeconds)
	case n == 0 && all.before.Begun == 0 && all.elsewhere.Begun == 0: // nothing would change that
		return Unjudged, "no flow was seen by the canaries, nor elsewhere"
	case n < leastJudged && !late:
		return Undecided, fmt.Sprintf("only %d flows on the canaries so far", n)
	case n == 0 && all.elsewhere.Begun > 0:
		return Bad, fmt.Sprintf("no flow was seen by the canaries, and %d elsewhere", all.elsewhere.Begun)
	case n == 0:
		return Unjudged, "no flow was seen by the canaries"
	case n < leastFlows:
		return Unjudged, fmt.Sprintf("only %d flows were seen by the canaries", n)
	case n < leastJudged:
		return Good, fmt.Sprintf("only %d flows were seen by the canaries", n)
	case len(silent) > 0:
		return Good, "not judged, because they do not report how clients are served: " + shorten(strings.Join(silent, ", "))
	}
	return Good, ""
}

// membersDown says which group of a canary has no member left that is up, although it had one before, or is new;
// empty: none.
func (j *judge) membersDown() string {
	for _, name := range slices.Sorted(maps.Keys(j.canaries)) {
		t := j.tracks[name]
		if t == nil {
			continue
		}
		for _, group := range slices.Sorted(maps.Keys(t.now.Groups)) {
			g := t.now.Groups[group]
			before, had := t.before.Groups[group]
			if g.Up == 0 && (before.Up > 0 || !had && g.All > 0) { // a new one may be there before its first member
				return fmt.Sprintf("no member of the group %q is up on %s", group, name)
			}
		}
	}
	return ""
}
