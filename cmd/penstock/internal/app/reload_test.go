package app

import (
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
)

// Of reloads at the same time, the one that read the configuration last is the one that stays.
func TestReloadsKeepTheirOrder(t *testing.T) {
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	const n = 4
	var reads, done atomic.Int64
	d.reloads.load = func() (*spec.Config, config.Warnings, error) {
		read := reads.Add(1)
		others := func() bool {
			_, blocked := testwait.Goroutines("daemon).reload(")
			return blocked+int(done.Load()) == n-1
		}
		if read == 1 && !testwait.For(others) {
			t.Error("the others neither wait for the first one nor have ended")
		}
		return &spec.Config{Drain: time.Duration(read), Log: spec.Log{Level: "info"}}, nil, nil
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			defer done.Add(1)
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
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	d.reloads.load = func() (*spec.Config, config.Warnings, error) {
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

// Every key that a reload does not apply, as package sandboxneeds declares it, stays as it was in the running configuration, and all others are
// replaced.
func TestKeepUntilRestartIsDeclared(t *testing.T) {
	parse := func(text string) *spec.Config {
		t.Helper()
		cfg, err := config.Parse("test", []byte(text+"listeners: {l: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	old := parse("keeper: {}\nadmin: {listen: 'unix:///a'}\n")
	next := parse(`
keeper: {keep-after: 2s, watchdog: 5s, start-timeout: 5s, healthy-after: 5s, max-restart-delay: 5s}
engine: {loops: 2, pipes: 5, gso: false, gro: false, max-flows: 5, max-new-flows: 5, memory: none}
admin: {listen: 'unix:///b', mode: '0666'}
sandbox: {mode: "off", user: nobody}
log: {level: debug, format: json, flows: all}
access-log: {to: /b/log, format: "{client}", mode: '0600'}
limits: {flows: 5, new-flows: 5/s, burst: 5}
reload: {watch: true}
drain: 5s
`)
	next.Admin.Token, next.Admin.ReadToken = "a", "b"
	asked, applied := config.Compare(old, next), config.Compare(old, keepUntilRestart(old, next))
	later := map[string]bool{}
	for _, c := range slices.Concat(asked.Restart, asked.Settings) {
		now := slices.Contains(applied.Settings, c) || slices.Contains(applied.Restart, c)
		if when := sandboxneeds.WhenChanged(c.Key); now != (when == sandboxneeds.Now || when == sandboxneeds.ByKeeper) {
			t.Errorf("%s: a change takes effect %s, and is in the running configuration at once: %t", c.Key, when, now)
		}
		later[c.Key] = !now
	}
	if later["engine.loops"] != true || later["drain"] != false || len(later) < 25 {
		t.Errorf("not all keys were compared: %v", later)
	}
}

// Whatever changes a running process has said what it may need: a new route of the admin API, or order of a fleet, fails this test until
// somebody has thought about that.
func TestEveryChangeIsDeclared(t *testing.T) {
	declared, missing := sandboxneeds.Changes(), []string{}
	wanted := append(admin.Changing(), "order drain")
	for _, kind := range fleet.OrderKinds {
		wanted = append(wanted, "order "+kind)
	}
	for _, name := range wanted {
		if !slices.Contains(declared, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("package sandboxneeds does not say what these may need: %q", missing)
	}
	for _, name := range declared {
		if (strings.Contains(name, " /v1/") || strings.HasPrefix(name, "order ")) && !slices.Contains(wanted, name) {
			t.Errorf("there is no %s any more", name)
		}
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
