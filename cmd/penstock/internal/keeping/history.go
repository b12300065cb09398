package keeping

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
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
func (h *history) add(w *api.WorkerStart, starts *keeper.StartCounts) {
	if h.Starts == nil {
		h.Starts = map[string]int64{}
	}
	h.Starts[w.Reason]++
	for r, n := range starts.All() {
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

// AddStart adds the start of this worker to the history, which the next one goes on with.
func (k *Link) AddStart(w *api.WorkerStart) {
	k.past.add(w, &k.start.Starts)
	k.saveHistory()
}

func (k *Link) saveHistory() {
	text, err := json.Marshal(&k.past)
	if err == nil {
		err = k.historyFile.Write(text)
	}
	_ = err // the counts would begin anew with the next worker, which is not worth a failure
}

// Status returns the state of the keeper for the API; nil: there is none.
func (k *Link) Status(stats *relay.Stats) *api.Keeper {
	if !k.Present() {
		return nil
	}
	total := stats.Total()
	s := &api.Keeper{
		PID: k.start.Keeper, Up: k.Up(), Since: k.past.Since, Worker: os.Getpid(), WorkerSince: k.Began, Healthy: true,
		Flows: total.Kept, Errors: total.KeepErrors, Held: int64(k.Stats().Items), Total: k.past.Total, Pause: k.past.Pause, Last: k.past.Last,
	}
	if last := k.past.Last; last != nil && last.Reason == "upgrade" {
		// The keeper says so, and from then on it takes the next request. The latest upgrade may be one after that.
		now := k.LastUpgrade()
		s.Healthy = now.Over() || now.ID != k.start.Upgrade.ID || !s.Up
	}
	for _, reason := range api.StartReasons {
		s.Starts = append(s.Starts, api.StartCount{Reason: reason, Count: k.past.Starts[reason]})
	}
	return s
}
