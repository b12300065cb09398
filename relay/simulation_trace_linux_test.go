package relay

import (
	"flag"
	"fmt"

	"github.com/penstock/penstock/internal/simkernel"
)

var simulateTrace = flag.Bool("simulate.trace", false, "print each step of a schedule, what there is before it, and the calls of all processes in it: with -simulate.schedule, or a seed and -simulate.shrink=false")

// traceStep prints a step and what there is before it, and has calls printed from now on.
func (s *simulation) traceStep(i int, step fmt.Stringer, describe func() string) {
	if !*simulateTrace {
		return
	}
	fmt.Printf("step %d: %v, at %v, %d processes\n%s", i, step, s.world.Elapsed(), s.processes, describe())
	s.world.Trace = func(c simkernel.Call, n int) { fmt.Println("  ", c, n) }
}
