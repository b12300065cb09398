package app

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// The members of a registry that is away are those of the last process, from the file in the state
// folder. A damaged file is reported, and replaced.
func TestMembersOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	d := spec.Discover{Registry: spec.Registry{Name: "main", Kind: "consul", Servers: "http://127.0.0.1:1"}, Key: "web", Network: spec.TCP}
	cfg := &spec.Config{Engine: spec.Engine{Loops: 1}, Node: spec.Node{State: folder}, Groups: []*spec.Group{{Name: "web", Balance: "random", Discover: []spec.Discover{d}, Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}}}}
	start := func() (*daemon, *bytes.Buffer) {
		t.Helper()
		log := new(bytes.Buffer)
		daemon, err := newDaemon(slog.New(slog.NewTextHandler(log, nil)), new(slog.LevelVar), func() int64 { return 0 }, cfg, keeping.Alone(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return daemon, log
	}
	target := upstream.Target{Name: "m", Weight: 1, Zone: "a", Addr: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("192.0.2.1:80")}}
	source := make(chan []upstream.Target, 1)
	first, _ := start()
	first.set.Close()
	first.set = upstream.NewSet(upstream.Options{Discoverer: func(spec.Discover) upstream.Discoverer { return told(source) }})
	if err := first.apply(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	source <- []upstream.Target{target}
	if err := first.set.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.close()
	path := filepath.Join(folder, "members.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".members-*")); len(left) > 0 {
		t.Errorf("%q", left)
	}

	next, log := start()
	if err := next.apply(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	g := next.Groups()
	if len(g) != 1 || len(g[0].Members) != 1 || g[0].Members[0].Name != "m" || g[0].Members[0].Zone != "a" || g[0].Lookups[0].GoodTime.IsZero() {
		t.Errorf("%+v\n%s", g, log)
	}
	next.close()

	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	last, log := start()
	last.close()
	if !strings.Contains(log.String(), "cannot be used") {
		t.Error(log)
	}
}

// told is a Discoverer that gives the answers that a test sends.
type told chan []upstream.Target

func (a told) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	for {
		select {
		case ts := <-a:
			update(ts, nil)
		case <-ctx.Done():
			return
		}
	}
}
