package relay

import (
	"fmt"
	"maps"
	"slices"
)

// gramSeen is what runs have come through, like simSeen.
type gramSeen struct {
	*simSeen
	steps [gramDoes]int  // that had something to do
	marks map[string]int // turns after which something was seen
}

// The marks that schedules must have.
const (
	markStray      = "datagrams that go from loop to loop"
	markAstray     = "flows whose datagrams may reach another loop"
	markRegrouped  = "a listener whose sockets have changed"
	markOwn        = "flows with a socket of their own"
	markSniffed    = "flows that hold datagrams of clients that are sniffed"
	markReleased   = "flows that sent what they had held"
	markTurned     = "clients that were turned away with what was held"
	markPatience   = "clients that said too little in time"
	markTaken      = "datagrams that the hook took away"
	markLimited    = "datagrams that were above a bandwidth"
	markPreface    = "flows whose next datagram begins with a preface"
	markSeveral    = "addresses with several flows"
	markNamed      = "flows whose clients a proxy has named, in mode "
	markDrained    = "a drain that has returned"
	markDrainEnded = "the deadline of a drain"
	markSucceeded  = "datagrams that somebody else got while the relay drained"
	markRemoved    = "flows that were ended because their upstream was removed"
	markFull       = "as many flows as may begin in a tick"
	markBuiltin    = "flows whose upstream is built in: "
	markAway       = "flows that have lost something for want of a route"
	markBack       = "flows whose route is back"
	markElsewhere  = "flows that went on to another upstream for want of a route"
	markOther      = "loops that have no socket of the listener"
)

var gramMarks = []string{markStray, markAstray, markRegrouped, markOwn, markOther, markSniffed, markReleased, markTurned, markPatience, markTaken, markLimited, markPreface, markSeveral, markNamed + "1", markNamed + "2", markNamed + "3",
	markAway, markBack, markElsewhere, markDrained, markDrainEnded, markSucceeded, markRemoved, markFull, markBuiltin + Echo.String(), markBuiltin + Discard.String()}

// gramCauses are the causes that schedules must have.
var gramCauses = []Cause{CauseIdle, CauseRefused, CauseAnswered, CauseUpstreamRefused, CauseNoUpstream, CauseEvicted, CauseCrashed, CauseClosed, CauseOverload, CauseDrained, CauseKilled}

// gramSeedsEnough is how many schedules do everything that schedules can do.
const gramSeedsEnough = 600

func (x *gramSeen) init(of *simSeen) {
	of.init()
	x.simSeen, x.marks = of, make(map[string]int)
}

func (x *gramSeen) add(y *gramSeen) {
	x.simSeen.add(y.simSeen)
	for c, n := range y.steps {
		x.steps[c] += n
	}
	for c, n := range y.marks {
		x.marks[c] += n
	}
}

// mark counts what is there after a turn.
func (s *gramSimulation) mark() {
	mark := func(name string, is bool) {
		if is {
			s.seen.marks[name]++
		}
	}
	sh, ports, loops, astray := &s.core.datagrams, 0, 0, false
	mark(markStray, sh.strays.Load() > 0)
	mark(markRegrouped, len(sh.regrouped) > 0)
	mark(markOwn, sh.own.Load() > 0)
	for _, d := range sh.all {
		ports += len(d.ports)
		for _, p := range d.ports {
			astray = astray || p.address.astray.Load() > 0
		}
		if len(d.ports) > 0 {
			loops++
		}
	}
	mark(markAstray, astray)
	mark(markOther, s.kind.network != 3 && ports > 0 && loops < len(sh.all))
}

// missing returns what must happen and has not.
func (x *gramSeen) missing() (all []string) {
	for kind, n := range x.steps {
		if n == 0 && (simKeepers || gramDo(kind) < gramKeeperActs) {
			all = append(all, "step "+gramNames[kind])
		}
	}
	for _, some := range gramFaultsWanted() {
		if x.faults[some] == 0 {
			all = append(all, "fault "+some)
		}
	}
	for _, name := range gramMarks {
		if x.marks[name] == 0 {
			all = append(all, name)
		}
	}
	if simKeepers {
		for _, what := range simKeeperWanted {
			if x.costs[what] == 0 {
				all = append(all, what)
			}
		}
	}
	for _, c := range gramCauses {
		if x.causes[c] == 0 {
			all = append(all, fmt.Sprintf("cause %s", c))
		}
	}
	return all
}

func (x *gramSeen) String() string {
	text := fmt.Sprintf("died in %d kinds of calls; causes", len(x.deaths))
	for c := range causes {
		if n := x.causes[c]; n > 0 {
			text += fmt.Sprintf(" %s %d", c, n)
		}
	}
	text += "; steps"
	for kind, n := range x.steps {
		text += fmt.Sprintf(" %s %d", gramNames[kind], n)
	}
	text += fmt.Sprint("; the keeper ", x.costs, "; faults")
	for _, fault := range slices.Sorted(maps.Keys(x.faults)) {
		text += fmt.Sprintf(", %s %d", fault, x.faults[fault])
	}
	text += "; turns with"
	for _, name := range slices.Sorted(maps.Keys(x.marks)) {
		text += fmt.Sprintf(", %s %d", name, x.marks[name])
	}
	return text
}
