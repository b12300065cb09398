package stat

import (
	"fmt"
	"math"
	"slices"
)

// Comparison is the result of comparing two versions whose rounds were taken in turn.
type Comparison struct {
	Ratio     float64 // median over the rounds of new / old
	Low, High float64 // the quartiles of these ratios
	Dearer    int     // rounds in which new was above old
	Rounds    int
	Chance    float64 // of this many dearer rounds or more if the two were equal (one-sided sign test)
}

// Compare compares new with old round by round. If a version has no rounds, the figures are NaN.
func Compare(new, old []float64) Comparison {
	c := Comparison{Rounds: min(len(new), len(old))}
	ratios := make([]float64, c.Rounds)
	for i := range ratios {
		ratios[i] = new[i] / old[i]
		if ratios[i] > 1 {
			c.Dearer++
		}
	}
	slices.Sort(ratios)
	c.Ratio, c.Low, c.High = Median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75)
	c.Chance = atLeast(c.Dearer, c.Rounds)
	return c
}

// Worse reports whether new is dearer than old: by more than the bound in the median, and in so
// many rounds that chance has a probability of less than one in twenty. Both are required, because
// the median alone moves with one bad minute of the machine, and the sign alone reacts to a
// difference of one per cent. Without rounds, Worse returns true, because nothing has been proved.
func (c Comparison) Worse(bound float64) bool {
	return c.Rounds == 0 || c.Ratio > bound && c.Chance < 0.05
}

func (c Comparison) String() string {
	return fmt.Sprintf("%.3f, quartiles %.3f to %.3f, dearer in %d of %d rounds (chance %.3f)", c.Ratio, c.Low, c.High, c.Dearer, c.Rounds, c.Chance)
}

// quantile interpolates between the sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// atLeast returns the probability that k or more of n tosses of a fair coin are heads.
func atLeast(k, n int) float64 {
	sum, combinations := 0.0, 1.0 // n over i
	for i := range n + 1 {
		if i >= k {
			sum += combinations
		}
		combinations = combinations * float64(n-i) / float64(i+1)
	}
	return sum / math.Pow(2, float64(n))
}
