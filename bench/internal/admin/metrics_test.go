//go:build linux

package admin

import "testing"

func TestMetricsParser(t *testing.T) {
	m := ParseMetrics([]byte(`# HELP penstock_a_total A.
# TYPE penstock_a_total counter
penstock_a_total{listener="x",cause="y z"} 3
penstock_a_total{listener="x",cause="w"} 4
# TYPE penstock_g gauge
penstock_g{listener="x"} 1
# TYPE penstock_h histogram
penstock_h_bucket{listener="x",le="+Inf"} 2
penstock_h_sum{listener="x"} 1.5
`))
	if got := m.Sum("penstock_a_total", "listener")["x"]; got != 7 {
		t.Errorf("sum = %v", got)
	}
	for series, grows := range map[string]bool{`penstock_g{listener="x"}`: false, `penstock_h_sum{listener="x"}`: true, `penstock_a_total{listener="x",cause="w"}`: true} {
		if m.Grows[series] != grows {
			t.Errorf("%s may only grow: %v", series, m.Grows[series])
		}
	}
}
