package keeping

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/keeper"
)

// Starts of workers that died before they had restored anything are counted, too.
func TestHistoryCountsAllStarts(t *testing.T) {
	h := history{}
	h.add(&api.WorkerStart{Reason: "crash"}, map[keeper.Reason]int{keeper.First: 1, keeper.Crash: 3, keeper.Upgraded: 1, keeper.Restart: 0})
	w := &api.WorkerStart{Reason: "rollback"}
	h.add(w, map[keeper.Reason]int{keeper.First: 1, keeper.Crash: 3, keeper.Upgraded: 1, keeper.Rollback: 1})
	if h.Starts["crash"] != 3 || h.Starts["upgrade"] != 1 || h.Starts["rollback"] != 1 || h.Starts["first"] != 0 || w.Number != 5 {
		t.Errorf("%v, number %d", h.Starts, w.Number)
	}
	h.add(w, nil) // a keeper that does not count
	if h.Starts["rollback"] != 2 {
		t.Errorf("%v", h.Starts)
	}
}
