package keeping

import (
	"encoding/json"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay/stats"
)

// AddStart adds the start of this worker to the history, which the next one goes on with.
func (k *Link) AddStart(w *api.WorkerStart) {
	k.past.add(w, k.start.Starts)
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
func (k *Link) Status(stats *stats.Engine) *api.Keeper {
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
	lingering, _ := k.Lingering()
	for _, w := range lingering {
		s.Lingering = append(s.Lingering, api.LingeringWorker{PID: w.PID, Since: w.Since, Until: w.Until})
	}
	for _, reason := range api.StartReasons {
		s.Starts = append(s.Starts, api.StartCount{Reason: reason, Count: k.past.Starts[reason]})
	}
	return s
}
