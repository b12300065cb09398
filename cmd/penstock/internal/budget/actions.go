package budget

// Action is what the daemon does about a lack of memory.
type Action int

// The actions, in the order of their thresholds.
const (
	Shrink          Action = iota // give back what is kept for later use, and hold less
	NoDatagramFlows               // begin no new datagram flows
	NoStreams                     // leave new clients of streams in the kernel's queues
	EndStalled                    // end stalled flows that hold most
	EndIdle                       // end flows that have been idle for longest
	NumActions      = int(EndIdle) + 1
)

// names and thresholds are by action. docs/running.md has them, too.
var (
	names      = [NumActions]string{"shrink", "no-datagram-flows", "no-streams", "end-stalled", "end-idle"}
	thresholds = [NumActions]float64{0.75, 0.80, 0.85, 0.90, 0.95}
)

// hysteresis is how far the pressure must fall below its threshold before an action ends.
const hysteresis = 0.05

// String returns the action's name in the API and in metrics.
func (a Action) String() string { return names[a] }

// Threshold returns the pressure from which the action is active.
func (a Action) Threshold() float64 { return thresholds[a] }

// active says which actions are active.
type active [NumActions]bool

// next returns which actions are active at a pressure, after those that were.
func (was active) next(pressure float64) (now active) {
	for a, limit := range thresholds {
		if was[a] {
			limit -= hysteresis
		}
		now[a] = pressure >= limit
	}
	return now
}
