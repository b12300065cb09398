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
