package console

import (
	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// flowRates are numbers per second.
type flowRates struct {
	Up      float64 `json:"bytes_up"`
	Down    float64 `json:"bytes_down"`
	Begun   float64 `json:"begun"`
	Refused float64 `json:"refused"`
	Failed  float64 `json:"failed"`
}

// rates are the numbers per second of everything in a sample.
type rates struct {
	Totals    flowRates            `json:"totals"`
	Busy      []float64            `json:"busy"` // share of the time, per loop
	CPU       float64              `json:"cpu"`  // seconds per second
	Listeners map[string]flowRates `json:"listeners"`
	Groups    map[string]flowRates `json:"groups"`
}

// ratesOf returns the rates between two samples. It returns false for samples of two
// processes or of the same moment.
func ratesOf(before, after *api.Sample) (r rates, ok bool) {
	seconds := after.Uptime - before.Uptime
	if seconds <= 0 {
		return rates{}, false
	}
	r = rates{Totals: perSecondOf(&before.Totals, &after.Totals, seconds), CPU: max(0, after.Resources.CPU-before.Resources.CPU) / seconds,
		Busy: make([]float64, len(after.Loops)), Listeners: map[string]flowRates{}, Groups: map[string]flowRates{}}
	for i := range min(len(before.Loops), len(after.Loops)) {
		r.Busy[i] = min(1, max(0, after.Loops[i].Busy-before.Loops[i].Busy)/seconds)
	}
	was := map[string]*api.Numbers{}
	for i := range before.Listeners {
		was[before.Listeners[i].Name] = &before.Listeners[i].Numbers
	}
	for i := range after.Listeners {
		if b := was[after.Listeners[i].Name]; b != nil {
			r.Listeners[after.Listeners[i].Name] = perSecondOf(b, &after.Listeners[i].Numbers, seconds)
		}
	}
	clear(was)
	for i := range before.Groups {
		was[before.Groups[i].Name] = &before.Groups[i].Numbers
	}
	for i := range after.Groups {
		if b := was[after.Groups[i].Name]; b != nil {
			r.Groups[after.Groups[i].Name] = perSecondOf(b, &after.Groups[i].Numbers, seconds)
		}
	}
	return r, true
}

// perSecondOf returns the rates between two samples. They are never negative: the counters
// of a listener that a reload replaced start at 0.
func perSecondOf(before, after *api.Numbers, seconds float64) flowRates {
	per := func(b, a int64) float64 { return max(0, float64(a-b)) / seconds }
	return flowRates{Up: per(before.BytesUp, after.BytesUp), Down: per(before.BytesDown, after.BytesDown), Begun: per(before.Begun, after.Begun),
		Refused: per(before.Refused, after.Refused), Failed: per(before.Failed, after.Failed)}
}

// history holds the latest values of a number, oldest first.
type history []float64

const maxHistory = 512

func (h *history) add(v float64) {
	*h = append(*h, v)
	if len(*h) > 2*maxHistory {
		*h = append((*h)[:0], (*h)[len(*h)-maxHistory:]...)
	}
}

// The glyphs of a sparkline, lowest first.
var (
	sparks      = []rune(" ▁▂▃▄▅▆▇█")
	asciiSparks = []rune(" .:-=+*#@")
)

// sparkline draws the latest values in width cells, the latest at the right. The greatest
// value has the highest glyph; a value other than 0 has at least the lowest.
func sparkline(h history, width int, glyphs []rune) string {
	if width <= 0 {
		return ""
	}
	h = h[max(0, len(h)-width):]
	most := 0.0
	for _, v := range h {
		most = max(most, v)
	}
	line := make([]rune, 0, width)
	for range width - len(h) {
		line = append(line, ' ')
	}
	for _, v := range h {
		i := 0
		if v > 0 && most > 0 {
			i = max(1, int(v/most*float64(len(glyphs)-1)+0.5))
		}
		line = append(line, glyphs[i])
	}
	return string(line)
}
