package route

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A client is counted by the list that chose its route when it is routed, and not when its route is asked for before.
func TestListHits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte("192.0.2.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := lists.NewTable([]*spec.List{{Name: "own", File: file}}, nil, nil)
	if err := all.Named("own").Load(t.Context(), time.Now(), lists.Host{}); err != nil {
		t.Fatal(err)
	}
	table := New(&spec.Listener{Routes: []*spec.Route{{Name: "listed", From: []spec.Network{{List: "own"}}}}}, all)
	m := Meta{Client: netip.MustParseAddr("192.0.2.1")}
	for i, look := range []func(Meta) (*spec.Route, bool){table.Find, table.Find, table.Take} {
		if r, ok := look(m); !ok || r.Name != "listed" {
			t.Fatalf("%v, %v", r, ok)
		}
		if got, want := all.Named("own").Hits(), int64(i/2); got != want {
			t.Errorf("%d hits, want %d", got, want)
		}
	}
}
