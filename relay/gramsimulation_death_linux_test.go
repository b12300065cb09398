package relay

import (
	"fmt"
	"testing"
)

// TestDeathWithoutRoute takes the route to the upstream of a flow away where no socket can be made to ask for another route with. There is one to the other
// upstream, or none. The process dies in front of its first call, then behind it, and so on.
func TestDeathWithoutRoute(t *testing.T) {
	asked := map[string]int{}
	for _, missing := range []int{1, 3} { // to the flow's upstream, or to both
		for seed := range 5 { // of the faults: sockets fail with EMFILE
			for place := range 40 {
				text := fmt.Sprintf("routes 2: {connect 0 0} {connect 0 0} {send 0 0} {turn 2 0} {settle 0 0} {routeGoes 0 %d} {fault %d 0} {send 0 0} {die %d 0} {turn 0 0} {heal 0 0} {send 0 0} {turn 2 0} {settle 0 0} {routeComes 0 3} {send 0 0} {settle 0 0}",
					missing, 10+gramFaultKinds*seed, place)
				x, err := parseGramSchedule(text)
				if err != nil {
					t.Fatal(err)
				}
				at, s := x.run()
				if s.wrong != nil {
					t.Fatalf("step %d: %v\n%s", at, s.wrong, text)
				}
				for call, n := range s.seen.deaths {
					asked[fmt.Sprint(missing, " ", call)] += n
				}
			}
		}
	}
	for _, missing := range []int{1, 3} {
		if asked[fmt.Sprint(missing, " connect")] == 0 {
			t.Errorf("no process has died in a connect: %v", asked)
		}
	}
}

// TestDeathWithoutUpstream takes all routes away from a flow that has gone from one upstream to the other so often that its hook has none for it any more. It ends
// while a reply to its client waits, which is sent first: the process dies in front of each call, and the next one ends the flow.
func TestDeathWithoutUpstream(t *testing.T) {
	const moves = "{routeGoes 0 1} {send 0 16} {turn 2 0} {sleep 1500 0} {routeComes 0 1} {routeGoes 1 1} {send 0 16} {turn 2 0} {sleep 1500 0} {routeComes 1 1} {routeGoes 0 1} {send 0 16} {turn 2 0} {upstreamRead 1 20} {sleep 1500 0} "
	died := 0
	for place := range 30 {
		text := fmt.Sprintf("phase 1000000000, routes 3, onUnreachable 0: {connect 0 0} {connect 0 0} {send 0 16} {turn 2 0} {upstreamRead 0 20} {turn 2 0} "+moves+
			"{routeGoes 1 1} {answer 0 16} {send 0 16} {die %d 0} {turn 0 0} {heal 0 0} {turn 2 0} {routeComes 0 3} {send 0 16} {settle 0 0}", place)
		x, err := parseGramSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		at, s := x.run()
		if s.wrong != nil {
			t.Fatalf("step %d: %v\n%s", at, s.wrong, text)
		}
		if f := s.flows[0]; (s.deaths == 0 || s.seen.deaths["send-batch"] > 0) && (f.records != 1 || f.record.Cause != CauseUpstreamRefused) {
			t.Errorf("place %d: the flow ends with %v, %d records", place, f.record.Cause, f.records)
		}
		died += s.seen.deaths["send-batch"]
	}
	if died == 0 {
		t.Error("no process has died that sent something")
	}
}
