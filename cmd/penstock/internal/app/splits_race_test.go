package app

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Weights that the watch of the fleet brings while a request changes them, too: what holds in the end is what new clients go by.
func TestSplitsAtOnce(t *testing.T) {
	var parts, groups []string // so many that giving them weights takes a while
	for i := range 300 {
		parts, groups = append(parts, fmt.Sprintf("{group: g%d, weight: 1}", i)), append(groups, fmt.Sprintf("g%d: {members: ['tcp://127.0.0.1:1']}", i))
	}
	cfg, err := config.Parse("test.yaml", []byte("listeners: {a: {listen: 'tcp://127.0.0.1:0', to: ["+strings.Join(parts, ", ")+"]}}\ngroups: {"+strings.Join(groups, ", ")+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	k, log := keeping.Alone(), slog.New(slog.DiscardHandler)
	if err := k.Prepare(cfg, log); err != nil {
		t.Fatal(err)
	}
	d, err := newDaemon(log, new(slog.LevelVar), func() int64 { return 0 }, cfg, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.apply(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r := cfg.Listeners[0].Default
	revision := int64(0)
	for range 1000 {
		var both sync.WaitGroup
		for i := range int64(3) { // the goroutine that was started last runs first
			revision := revision + 3 - i
			change := spec.SplitChange{File: spec.WeightsOf(r.To), Weights: spec.WeightsOf(r.To)}
			change.Weights["g299"] = int(revision)
			ch := fleet.SplitsChange{Changed: []spec.RouteSplits{{Listener: "a", Route: r.Name, Revision: revision, Changes: []spec.SplitChange{change}}}}
			both.Go(func() { d.fleetSplits(ch) })
		}
		both.Wait()
		revision += 3
		want, _ := d.splits.weights("a", r)
		if got := d.active.Load().plans["a"].Weights(r)[299]; got != want["g299"] {
			t.Fatalf("revision %d: new clients go by %d, and what holds is %d", revision, got, want["g299"])
		}
	}
}
