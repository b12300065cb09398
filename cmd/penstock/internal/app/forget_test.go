package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The counts of members that a reload or an operator removed lose their names, and no others.
func TestForgetGoneMembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	load := func(members string) *spec.Config {
		text := "engine: {loops: 1}\nlisteners: {a: {listen: 'tcp://127.0.0.1:0', to: web}}\ngroups: {web: {members: [" + members + "]}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load("'tcp://127.0.0.1:1', 'tcp://127.0.0.1:2'")
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, cfg, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.apply(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := d.set.AddMember("web", spec.Member{Name: "added", To: cfg.Groups[0].Members[0].To}); err != nil {
		t.Fatal(err)
	}
	route := cfg.Listeners[0].AllRoutes()[0].Name
	names := []string{"tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "added", ""}
	for _, m := range names {
		e := account.Entry{ListenerName: "a", Route: route, Group: "web", Member: m}
		d.hooks.Accounting.Counters().Record(nil, &e)
	}
	begun := func() map[string]int64 {
		d.forgetGoneMembers()
		found := map[string]int64{}
		for _, p := range d.hooks.Accounting.Counters().Snapshot(nil, nil) {
			if p.Begun > 0 {
				found[p.Member] = p.Begun
			}
		}
		return found
	}
	check := func(want map[string]int64) {
		t.Helper()
		got := begun()
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
		for m, n := range want {
			if got[m] != n {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	check(map[string]int64{names[0]: 1, names[1]: 1, "added": 1, "": 1})
	if err := d.apply(context.Background(), load("'tcp://127.0.0.1:2'")); err != nil {
		t.Fatal(err)
	}
	check(map[string]int64{names[1]: 1, "added": 1, "": 1, account.Gone: 1})
	if err := d.set.RemoveMember("web", "added"); err != nil {
		t.Fatal(err)
	}
	check(map[string]int64{names[1]: 1, "": 1, account.Gone: 2})
}
