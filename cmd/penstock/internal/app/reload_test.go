package app

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Of reloads at the same time, the one that read the configuration last is the one that stays.
func TestReloadsKeepTheirOrder(t *testing.T) {
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	const n = 4
	var reads atomic.Int64
	d.load = func() (*spec.Config, config.Warnings, error) {
		read := reads.Add(1)
		time.Sleep(time.Duration(n-read) * 20 * time.Millisecond) // the first one takes longest
		return &spec.Config{Drain: time.Duration(read), Log: spec.Log{Level: "info"}}, nil, nil
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := d.reload(t.Context(), "test"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := d.active.Load().Drain; got != n {
		t.Errorf("reading %d is the running configuration, want %d", got, n)
	}
}
