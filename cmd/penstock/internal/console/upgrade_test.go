package console

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// keeperAfter is the state of the keeper after a worker was started for a reason.
func keeperAfter(number int64, reason string, healthy bool) *api.Keeper {
	return &api.Keeper{PID: 4700, Up: true, Since: epoch, Worker: 4711, WorkerSince: epoch, Healthy: healthy, Flows: 812, Held: 830,
		Starts: []api.StartCount{{Reason: reason, Count: number}},
		Last: &api.WorkerStart{Number: number, Time: epoch, Reason: reason, Cause: "signal 9", Version: "v2", Pause: 0.08,
			RestoredFlows: api.RestoredFlows{Restored: 812, Lost: []api.LostFlows{{Reason: "unsettled", Count: 3}}}}}
}

func TestUpgrade(t *testing.T) {
	followed := keeperAfter(3, "restart", true)
	followed.Starts = append(followed.Starts, api.StartCount{Reason: "upgrade", Count: 1})
	for _, c := range []struct {
		name   string
		args   []string
		states []*api.Keeper
		code   int
		want   string // part of what is printed
	}{
		{"good", nil, []*api.Keeper{keeperAfter(1, "crash", true), keeperAfter(2, "upgrade", false), keeperAfter(2, "upgrade", true)}, exitOK, "upgraded to v2: 812 flows continued, 3 lost, 80ms without traffic (3 unsettled)"},
		{"followed by another worker", nil, []*api.Keeper{followed}, exitOK, "upgraded to v2"},
		{"undone", nil, []*api.Keeper{keeperAfter(2, "rollback", true)}, exitRolledBack, "the old binary runs again"},
		{"undone after a while", nil, []*api.Keeper{keeperAfter(2, "upgrade", false), keeperAfter(3, "rollback", true)}, exitRolledBack, "(signal 9)"},
		{"refused", []string{"--binary", "/bad"}, nil, exitFailed, "it exited with code 1; nothing was changed"},
		{"dry run", []string{"--dry-run"}, nil, exitOK, "the new binary could take over"},
		{"json", []string{"--json"}, []*api.Keeper{keeperAfter(2, "upgrade", true)}, exitOK, `"restored": 812`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDaemon()
			d.status.Keeper = keeperAfter(1, "crash", true)
			r := newRig(t, d)
			d.mu.Lock()
			d.afterUpgrade = c.states
			d.mu.Unlock()
			code, stdout, stderr := r.run(append([]string{"upgrade"}, c.args...)...)
			if code != c.code || !strings.Contains(stdout+stderr, c.want) {
				t.Errorf("exit code %d, %q, %q; want %d and %q", code, stdout, stderr, c.code, c.want)
			}
		})
	}
}

func TestStatusOfKeeper(t *testing.T) {
	d := newDaemon()
	d.status.Keeper = keeperAfter(1, "crash", true)
	r := newRig(t, d)
	if text := r.good("status"); !strings.Contains(text, "holds 812 flows") || !strings.Contains(text, "after signal 9: 812 flows continued") {
		t.Error(text)
	}
	d.mu.Lock()
	d.status.Keeper = &api.Keeper{}
	d.mu.Unlock()
	if text := r.good("status"); !strings.Contains(text, "gone: flows would end with the worker") {
		t.Error(text)
	}
}
