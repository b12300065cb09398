// Package testcost is for tests only: what the relay costs where that can be counted exactly, as a table that
// only gets smaller by itself. A test that counts calls Check. The table is in table.go.
package testcost

import "testing"

// row is a cost.
type row struct {
	of, what string
	most     int64
	slack    int64  // how much less still counts as the same; 0 for what is exactly repeatable
	why      string // it is not less
}

// Check fails the test if a cost is above its row in the table, and if it is below, so that what was
// gained is not lost again unnoticed.
func Check(tb testing.TB, of, what string, n int64) {
	tb.Helper()
	for i := range table {
		r := &table[i]
		if r.of != of || r.what != what {
			continue
		}
		switch {
		case n > r.most:
			tb.Errorf("%s: %d %s, and %d in the table. Find what costs more. If it must, raise the row in internal/testcost/table.go, "+
				"in a commit that says why", of, n, what, r.most)
		case n < r.most-r.slack:
			tb.Errorf("%s: %d %s, and %d in the table. That is better: write %d into the row in internal/testcost/table.go, so that it stays", of, n, what, r.most, n)
		}
		return
	}
	tb.Errorf("%s: %d %s, and no row in internal/testcost/table.go", of, n, what)
}
