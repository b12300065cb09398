package app

import (
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Of reloads at the same time, the one that read the configuration last is the one that stays.
func TestReloadsKeepTheirOrder(t *testing.T) {
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, nil)
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

// A reload that comes while the worker hands over, or ends, is not said to have failed: the configuration is good, and
// the next worker reads it.
func TestReloadDuringHandOver(t *testing.T) {
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	d.load = func() (*spec.Config, config.Warnings, error) {
		cfg, err := config.Parse("test", []byte("listeners: {l: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}"))
		return cfg, nil, err
	}
	d.engine.Close()
	_, err = d.reload(t.Context(), "test")
	var problem *api.Problem
	if !errors.As(err, &problem) || problem.Status != http.StatusServiceUnavailable {
		t.Errorf("%v", err)
	}
	if d.reloads.bad != 0 || d.reloads.lastFailed() != nil {
		t.Errorf("%d reloads have failed", d.reloads.bad)
	}
}

// What a reload does not apply stays in the running configuration, and everything else is replaced.
func TestKeepUntilRestart(t *testing.T) {
	old := &spec.Config{Engine: spec.Engine{Loops: 1}, Admin: spec.Admin{Token: "old"}, Log: spec.Log{Format: "json", Level: "info"}, Drain: 1}
	next := &spec.Config{Engine: spec.Engine{Loops: 2}, Admin: spec.Admin{Token: "new"}, Log: spec.Log{Format: "text", Level: "warn"}, Drain: 2}
	want := &spec.Config{Engine: old.Engine, Admin: old.Admin, Log: spec.Log{Format: "json", Level: "warn"}, Drain: 2}
	if got := keepUntilRestart(old, next); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if next.Engine.Loops != 2 || next.Log.Format != "text" {
		t.Errorf("the new configuration was changed: %+v", next)
	}
}
