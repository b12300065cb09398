package relay

import (
	"fmt"
	"maps"
	"slices"

	"github.com/penstock/penstock/internal/simkernel"
	"github.com/penstock/penstock/internal/sys"
)

// simSeen is what runs have come through: the causes in records, the calls that processes have died in, and the states of flows between
// two turns.
type simSeen struct {
	causes map[Cause]int
	deaths map[simkernel.Call]int
	states map[uint64]int
	faults map[string]int // calls that have failed or moved less, because a step said so
	steps  [simKinds]int  // that had something to do
	costs  map[string]int // what was done to save time later
}

func (x *simSeen) init() {
	x.causes, x.deaths, x.states, x.faults, x.costs = make(map[Cause]int), make(map[simkernel.Call]int), make(map[uint64]int), make(map[string]int), make(map[string]int)
}

// counted returns what makes calls fail, and counts those that do.
func (x *simSeen) counted(fault func(simkernel.Call, int) (int, sys.Errno)) func(simkernel.Call, int) (int, sys.Errno) {
	return func(c simkernel.Call, most int) (int, sys.Errno) {
		n, e := fault(c, most)
		if e != 0 || n < most {
			x.faults[faultName(c, e)]++
		}
		return n, e
	}
}

func faultName(c simkernel.Call, e sys.Errno) string {
	if e == 0 {
		return string(c) + " short"
	}
	return fmt.Sprintf("%s: %s", c, e.Error())
}

func (x *simSeen) add(y *simSeen) {
	for c, n := range y.causes {
		x.causes[c] += n
	}
	for c, n := range y.deaths {
		x.deaths[c] += n
	}
	for c, n := range y.states {
		x.states[c] += n
	}
	for c, n := range y.faults {
		x.faults[c] += n
	}
	for c, n := range y.costs {
		x.costs[c] += n
	}
	for c, n := range y.steps {
		x.steps[c] += n
	}
}

func (x *simSeen) String() string {
	text := fmt.Sprintf("%d states of flows; died in %d kinds of calls; causes", len(x.states), len(x.deaths))
	for c := range causes {
		if n := x.causes[c]; n > 0 {
			text += fmt.Sprintf(" %s %d", c, n)
		}
	}
	return text
}

// simSeedsEnough is how many schedules, of seeds from simSeedsFirst on, do everything that schedules can do.
const (
	simSeedsFirst  = 3000
	simSeedsEnough = 2500
)

// simCostsWanted are what schedules must have done to save time.
var simCostsWanted = []string{costAhead, costLarger, costCopied, costBuiltin + "echo", costBuiltin + "discard", costKernelTLS, costUnixUrgent,
	"client: TLS 1.2", "client: TLS 1.3", "upstream: TLS 1.2", "upstream: TLS 1.3", "client: cut", "upstream: cut", "client: cut within a record", "upstream: cut within a record", "client: not TLS", "client: h2", "upstream: h2", "client: http/1.1", "upstream: not TLS", "client: urgent data beside TLS", "upstream: urgent data beside TLS",
	sayPreface, sayReply, sayAnswer, sayRudely + "0", sayRudely + "1", sayRudely + "2", sayRudely + "3", sayBeforeTLS, lingerSplit, lingerEnds, lingerDies}

// simKeeperWanted are what the keeper must have done.
var simKeeperWanted = []string{"upgrade: handing-over", "upgrade: refused", "upgrade: rolled-back", "upgrade: done"}

// simCauses are those that schedules must have.
var simCauses = []Cause{CauseEnd, CauseClientReset, CauseUpstreamReset, CauseIdle, CauseHalfClosed, CauseLife, CauseFirstByte, CauseQueueTimeout, CauseConnectTimeout, CauseRefused,
	CauseNoUpstream, CauseNoDescriptors, CauseClientGone, CauseClientFailed, CauseUpstreamFailed, CauseCrashed, CauseClosed, CauseDrained, CauseOverload, CauseClientTLS, CauseUpstreamTLS, CauseClientTruncated, CauseUpstreamTruncated, CauseClientClosed}

// missing returns what must happen and has not.
func (x *simSeen) missing() (all []string) {
	for kind, n := range x.steps {
		if n == 0 && (simKeepers || simKind(kind) != simKeeperActs) {
			all = append(all, "step "+simNames[kind])
		}
	}
	for _, some := range simFaultsWanted() {
		if !slices.ContainsFunc(some, func(fault string) bool { return x.faults[fault] > 0 }) {
			all = append(all, "fault "+some[0])
		}
	}
	wanted := simCostsWanted
	if simKeepers {
		wanted = slices.Concat(wanted, simKeeperWanted, []string{"keeper: worker-lingers"})
	}
	for _, what := range wanted {
		if x.costs[what] == 0 {
			all = append(all, what)
		}
	}
	for _, c := range simCauses {
		if x.causes[c] == 0 {
			all = append(all, fmt.Sprintf("cause %s", c))
		}
	}
	return all
}

// counts tells how often steps had something to do, and calls have failed.
func (x *simSeen) counts() string {
	text := "steps"
	for kind, n := range x.steps {
		text += fmt.Sprintf(" %s %d", simNames[kind], n)
	}
	text += fmt.Sprint("; costs ", x.costs, "; faults")
	for _, fault := range slices.Sorted(maps.Keys(x.faults)) {
		text += fmt.Sprintf(", %s %d", fault, x.faults[fault])
	}
	return text
}

// stateOf is what is told apart of a flow: all that is not a number of bytes or a time.
func (f *streamFlow) stateOf() uint64 {
	x := uint64(f.state)<<8 | uint64(f.cause)
	bit := func(is bool) {
		if x <<= 1; is {
			x |= 1
		}
	}
	for h := range f.half {
		buffer, piped := f.half[h].Memory()
		x = x<<3 | uint64(f.wait[h])
		for _, is := range []bool{f.tcp[h], f.odd[h], f.muted[h], f.recvOne(h), f.sendOne(h), buffer > 0, piped > 0, f.half[h].Spliced > 0, f.half[h].Lagging(), f.half[h].Ended()} {
			bit(is)
		}
	}
	for _, is := range []bool{f.pending, f.kept, f.inReady, f.inLagging, f.backlogFull, f.hungUp, f.ended, f.early != nil} {
		bit(is)
	}
	return x
}
