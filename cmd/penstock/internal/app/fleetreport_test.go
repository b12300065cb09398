package app

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// A report says of each configured listener, and of all flows, how clients were served.
func TestServedOf(t *testing.T) {
	c := account.NewCounters()
	flow := func(listener, member string, cause relay.Cause, down int64, firstByte time.Duration, failed ...error) {
		s := c.Series(account.Key{Listener: listener})
		s.Begin()
		to := c.Series(account.Key{Listener: listener, Route: "r", Group: "g", Member: member})
		s.Move(to, account.Volume{}, account.Volume{})
		for _, err := range failed {
			to.Attempt(err)
		}
		to.Attempt(nil)
		e := &account.Entry{}
		e.Cause, e.Down.Written, e.FirstByte = cause, down, firstByte
		to.End(e)
	}
	flow("web", "one", relay.CauseEnd, 1000, 3*time.Millisecond)
	flow("web", "two", relay.CauseUpstreamReset, 200_000, 250*time.Millisecond)
	flow("web", "two", relay.CauseFirstByte, 0, 0)
	flow("web", "closes", relay.CauseEnd, 0, 0, syscall.ECONNREFUSED, syscall.ETIMEDOUT)
	flow("gone", "one", relay.CauseEnd, 5, 7*time.Second)
	c.Series(account.Key{Listener: "web"}).Begin() // is open
	live := func(add func(*account.Series, account.Volume, account.Volume)) {
		add(c.Series(account.Key{Listener: "web"}), account.Volume{}, account.Volume{Bytes: 1})
	}
	all, each := servedOf(c.Snapshot(nil, live), []*spec.Listener{{Name: "web", Listen: spec.Endpoint{Kind: spec.TCP, Port: 80}, Interface: "eth0"}, {Name: "idle", Inherit: "web"}})
	web := fleet.Listener{Socket: fleet.Socket{Listen: "tcp://:80", Interface: "eth0"}, Served: fleet.Served{
		Begun: 5, ConnectFailures: 2, Ends: map[string]int64{"end": 2, "upstream-reset": 1, "first-byte": 1}, BytesDown: 201_001,
		Sizes: []int64{2, 1, 1, 0, 0, 1, 0, 0}, FirstByte: []int64{2, 0, 0, 0},
	}}
	if got := each["web"]; !reflect.DeepEqual(got, web) {
		t.Errorf("%+v, want %+v", got, web)
	}
	if got := each["idle"]; len(each) != 2 || got.Begun != 0 || got.Listen != "inherit web" {
		t.Errorf("%+v", each)
	}
	if all.Begun != 6 || all.ConnectFailures != 2 || all.Ends["end"] != 3 || all.BytesDown != 201_006 || all.FirstByte[3] != 1 || all.Sizes[1] != 2 {
		t.Errorf("%+v", all)
	}
}

// A report that is made while a reload is not over yet is of one configuration. Otherwise whoever judges a canary takes the
// listeners of the version for those of the one before.
func TestReportIsOfOneConfiguration(t *testing.T) {
	load := func(version string) *spec.Config {
		t.Helper()
		text := fmt.Sprintf("listeners: {dns-%s: {listen: 'udp://127.0.0.1:0', to: g-%s}}\ngroups: {g-%s: {members: ['udp://127.0.0.1:9']}}\n", version, version, version)
		cfg, err := config.Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Layers = []spec.Layer{{Version: version, Text: []byte(text)}}
		return cfg
	}
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	for version := range 3 {
		want := fmt.Sprint(version + 1)
		cfg := load(want)
		if err := d.apply(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			got := d.fleetReport()
			_, listener := got.Listeners["dns-"+want]
			_, group := got.Groups["g-"+want]
			if fmt.Sprint(got.Version) != want || got.Hash != spec.HashOf(cfg.Text) || !listener || !group || len(got.Listeners) != 1 || len(got.Groups) != 1 {
				t.Errorf("%s of version %s: version %d, %v, %v", when, want, got.Version, slices.Collect(maps.Keys(got.Listeners)), got.Groups)
			}
		}
		check("before the end")
		d.settleRemotes(nil)
		check("after the end")
	}
}

// Reports that are made while configurations change are each of one of them.
func TestReportsWhileConfigurationsChange(t *testing.T) {
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, &spec.Config{Engine: spec.Engine{Loops: 1}}, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	apply := func(version int) {
		cfg, err := config.Parse("test", fmt.Appendf(nil, "listeners: {l-%d: {listen: 'udp://127.0.0.1:0', to: g-%d}}\ngroups: {g-%d: {members: ['udp://127.0.0.1:9']}}\n", version, version, version))
		if err == nil {
			cfg.Layers = []spec.Layer{{Version: fmt.Sprint(version)}}
			err = d.apply(t.Context(), cfg)
		}
		if err != nil {
			t.Error(err)
		}
	}
	apply(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for version := 2; version < 100 && !t.Failed(); version++ {
			apply(version)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		r := d.fleetReport()
		_, listener := r.Listeners[fmt.Sprint("l-", r.Version)]
		_, group := r.Groups[fmt.Sprint("g-", r.Version)]
		if !listener || !group || len(r.Listeners) != 1 || len(r.Groups) != 1 {
			t.Errorf("version %d: %v, %v", r.Version, slices.Collect(maps.Keys(r.Listeners)), r.Groups)
			<-done
			return
		}
	}
}

// Whoever judges a canary knows each cause by which a flow can end: a new one needs a line in fleet/criteria.go.
func TestCausesAreJudged(t *testing.T) {
	for c := relay.CauseEnd; c.String() != "unknown"; c++ {
		if !fleet.KnowsCause(c.String()) {
			t.Errorf("the cause %v is neither judged nor known not to be", c)
		}
	}
}
