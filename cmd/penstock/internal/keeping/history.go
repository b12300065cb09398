package keeping

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/keeper"
)

// history is what has happened to the workers of a keeper. It is a document that the keeper holds.
type history struct {
	Since  time.Time         `json:"since"` // the start of the first worker
	Starts map[string]int64  `json:"starts"`
	Last   *api.WorkerStart  `json:"last,omitempty"`
	Total  api.RestoredFlows `json:"total"`
	Pause  float64           `json:"pause"`
}

// readHistory returns what the workers before have written, or an empty history.
func readHistory(d *saved.Document) (h history) {
	text, err := d.Read()
	if err != nil || json.Unmarshal(text, &h) != nil {
		h = history{}
	}
	if h.Since.IsZero() {
		h.Since = time.Now()
	}
	return h
}

// add adds the start of a worker. starts are all starts that the keeper has counted: of workers that died before they had
// restored anything, it alone knows.
func (h *history) add(w *api.WorkerStart, starts map[keeper.Reason]int) {
	if h.Starts == nil {
		h.Starts = map[string]int64{}
	}
	h.Starts[w.Reason]++
	for r, n := range starts {
		if r != keeper.First {
			h.Starts[r.String()] = max(h.Starts[r.String()], int64(n))
		}
	}
	for _, n := range h.Starts {
		w.Number += n
	}
	h.Last = w
	h.Pause += w.Pause
	h.Total.Restored += w.Restored
	h.Total.Holding += w.Holding
	h.Total.Bytes += w.Bytes
	for _, l := range w.Lost {
		i := slices.IndexFunc(h.Total.Lost, func(t api.LostFlows) bool { return t.Reason == l.Reason })
		if i < 0 {
			h.Total.Lost = append(h.Total.Lost, api.LostFlows{Reason: l.Reason})
			i = len(h.Total.Lost) - 1
		}
		h.Total.Lost[i].Count += l.Count
	}
}
