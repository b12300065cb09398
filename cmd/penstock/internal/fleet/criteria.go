package fleet

import (
	"fmt"
	"math"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// How much a share of flows may grow, by what it is a share of.
const (
	marginFaults = 0.05
	marginKinds  = 0.30 // of flows with so many bytes, or so long until the first one: clients differ
)

// A criterion is a share of flows that should not grow.
type criterion struct {
	text   string // with so many of how many flows
	margin float64
	fault  bool // there should be none: so it is judged also where there is nothing to compare with
	share  func(*Served) share
}

// share is k of n.
type share struct{ k, n int64 }

func (s share) ratio() float64 {
	if s.k <= 0 {
		return 0
	}
	return float64(s.k) / float64(max(s.k, s.n))
}

// above returns by how many standard deviations a share is greater than another one.
func (s share) above(base share) float64 {
	p, q := s.ratio(), base.ratio()
	n, m := float64(max(s.k, s.n)), float64(max(base.k, base.n))
	pooled := (p*n + q*m) / (n + m)
	return (p - q) / math.Sqrt(dispersion*pooled*(1-pooled)*(1/n+1/m))
}

// bounds returns between what a share lies, but for chance: Wilson's interval, of z standard deviations to each side.
func (s share) bounds(z float64) (low, high float64) {
	if s.k+s.n == 0 {
		return 0, 1
	}
	n, p := float64(max(s.k, s.n))/dispersion, s.ratio()
	middle, half := p+z*z/(2*n), z*math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return (middle - half) / (1 + z*z/n), (middle + half) / (1 + z*z/n)
}

// The causes of flows' ends: those that are the relay's or its upstreams' fault, those that depend on the clients, too, and
// those that are not judged by themselves: as they should be, or as somebody has asked for.
var (
	causesOfFaults = []string{"no-upstream", "connect-timeout", "no-descriptors", "no-ports", "upstream-failed", "queue-timeout", "first-byte", "upstream-refused", "crashed", "overload", "upstream-tls", "internal"}
	causesOfBoth   = []string{"upstream-reset", "client-reset", "client-gone", "client-failed", "client-tls", "client-truncated", "upstream-truncated", "idle", "half-closed", "life", "evicted"}
	causesNot      = []string{"end", "client-closed", "answered", "refused", "drained", "closed", "removed", "killed", "down", "failback", "rebalanced"}
)

// KnowsCause reports whether a cause is judged, or is known not to be.
func KnowsCause(name string) bool {
	return slices.Contains(causesOfFaults, name) || slices.Contains(causesOfBoth, name) || slices.Contains(causesNot, name)
}

// criteria are what is compared, what is easiest to understand first.
var criteria = makeCriteria()

func makeCriteria() []criterion {
	list := []criterion{
		{"%d of %d flows on the canaries were refused", marginFaults, true, func(s *Served) share { return share{s.Ends["refused"], s.Begun} }},
		{"%d connects failed for %d flows on the canaries", marginFaults, true, func(s *Served) share { return share{s.ConnectFailures, s.Begun} }},
	}
	for i, cause := range slices.Concat(causesOfFaults, causesOfBoth) {
		list = append(list, criterion{"%d of %d flows on the canaries ended by " + cause, marginFaults, i < len(causesOfFaults), func(s *Served) share { return share{s.Ends[cause], s.Ended()} }})
	}
	list = append(list, criterion{"%d of %d flows on the canaries got no byte from their upstream", marginFaults, false, func(s *Served) share { return share{firstOf(s.Sizes, 1), total(s.Sizes)} }})
	for i, bound := range FirstByteBounds {
		list = append(list, criterion{fmt.Sprintf("%%d of %%d flows on the canaries waited more than %gs for their first byte", bound), marginKinds, false, func(s *Served) share {
			return share{total(s.FirstByte) - firstOf(s.FirstByte, i+1), total(s.FirstByte)}
		}})
	}
	for i, bound := range spec.SizeBounds[1:] {
		list = append(list, criterion{fmt.Sprintf("%%d of %%d flows on the canaries got less than %d bytes", bound+1), marginKinds, false, func(s *Served) share {
			return share{firstOf(s.Sizes, i+2), total(s.Sizes)}
		}})
	}
	return list
}

// firstOf returns the sum of the first n numbers.
func firstOf(list []int64, n int) int64 { return total(list[:min(n, len(list))]) }
