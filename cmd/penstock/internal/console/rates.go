package console

import (
	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// flux is what happens in a second.
type flux struct {
	Up      float64 `json:"bytes_up"`
	Down    float64 `json:"bytes_down"`
	Begun   float64 `json:"begun"`
	Refused float64 `json:"refused"`
	Failed  float64 `json:"failed"`
}

// rates are what happens in a second, of everything in a sample.
type rates struct {
	Totals    flux            `json:"totals"`
	Busy      []float64       `json:"busy"` // of each loop, the share of the time
	CPU       float64         `json:"cpu"`  // seconds a second
	Listeners map[string]flux `json:"listeners"`
	Groups    map[string]flux `json:"groups"`
}

// ratesOf is what happened between two samples. Those of two processes, or of the
// same moment, tell nothing.
func ratesOf(before, after *api.Sample) (r rates, ok bool) {
	seconds := after.Uptime - before.Uptime
	if seconds <= 0 {
		return rates{}, false
	}
	r = rates{Totals: fluxOf(&before.Totals, &after.Totals, seconds), CPU: max(0, after.Resources.CPU-before.Resources.CPU) / seconds,
		Busy: make([]float64, len(after.Loops)), Listeners: map[string]flux{}, Groups: map[string]flux{}}
	for i := range min(len(before.Loops), len(after.Loops)) {
		r.Busy[i] = min(1, max(0, after.Loops[i].Busy-before.Loops[i].Busy)/seconds)
	}
	was := map[string]*api.Numbers{}
	for i := range before.Listeners {
		was[before.Listeners[i].Name] = &before.Listeners[i].Numbers
	}
	for i := range after.Listeners {
		if b := was[after.Listeners[i].Name]; b != nil {
			r.Listeners[after.Listeners[i].Name] = fluxOf(b, &after.Listeners[i].Numbers, seconds)
		}
	}
	clear(was)
	for i := range before.Groups {
		was[before.Groups[i].Name] = &before.Groups[i].Numbers
	}
	for i := range after.Groups {
		if b := was[after.Groups[i].Name]; b != nil {
			r.Groups[after.Groups[i].Name] = fluxOf(b, &after.Groups[i].Numbers, seconds)
		}
	}
	return r, true
}

// fluxOf never is negative: a listener that a reload made anew counts from 0.
func fluxOf(before, after *api.Numbers, seconds float64) flux {
	per := func(b, a int64) float64 { return max(0, float64(a-b)) / seconds }
	return flux{Up: per(before.BytesUp, after.BytesUp), Down: per(before.BytesDown, after.BytesDown), Begun: per(before.Begun, after.Begun),
		Refused: per(before.Refused, after.Refused), Failed: per(before.Failed, after.Failed)}
}

// history are the youngest values of something, oldest first.
type history []float64

const remembered = 512

func (h *history) add(v float64) {
	*h = append(*h, v)
	if len(*h) > 2*remembered {
		*h = append((*h)[:0], (*h)[len(*h)-remembered:]...)
	}
}

// The glyphs of a sparkline, lowest first.
var (
	sparks      = []rune(" ▁▂▃▄▅▆▇█")
	asciiSparks = []rune(" .:-=+*#@")
)

// spark draws the youngest values in width cells, the youngest at the right. The
// greatest has the highest glyph; what is not 0 has at least the lowest.
func spark(h history, width int, glyphs []rune) string {
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
