//go:build linux

package admin

import (
	"strconv"
	"strings"
)

// Metrics is one scrape: values by series, and which of them may only grow.
type Metrics struct {
	Values map[string]float64
	Grows  map[string]bool
}

// ParseMetrics reads the text format of Prometheus.
func ParseMetrics(text []byte) Metrics {
	m := Metrics{Values: make(map[string]float64), Grows: make(map[string]bool)}
	kinds := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); len(f) == 4 && f[0] == "#" && f[1] == "TYPE" {
			kinds[f[2]] = f[3]
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			continue
		}
		series := line[:i]
		name, _, _ := strings.Cut(series, "{")
		m.Values[series] = v
		family := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && kinds[base] == "histogram" {
				family = base
			}
		}
		m.Grows[series] = strings.HasPrefix(name, "penstock_") && (kinds[family] == "counter" || kinds[family] == "histogram")
	}
	return m
}

// Label returns the value of a label of a series.
func Label(series, name string) string {
	_, rest, ok := strings.Cut(series, name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Sum adds up the series of a metric, by one of its labels.
func (m Metrics) Sum(metric, by string) map[string]float64 {
	sums := make(map[string]float64)
	for series, v := range m.Values {
		if name, _, _ := strings.Cut(series, "{"); name == metric {
			sums[Label(series, by)] += v
		}
	}
	return sums
}

// Total adds up all series of a metric.
func (m Metrics) Total(metric string) (total float64) {
	for _, v := range m.Sum(metric, "") {
		total += v
	}
	return total
}
