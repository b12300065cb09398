package app

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
)

// A list that was read before this worker took over is not read again: the first configuration has it although the file is gone, and only that.
func TestListsReadAhead(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "bad.txt")
	if err := os.WriteFile(list, []byte("192.0.2.0/24\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse("test.yaml", []byte("lists: {bad: {file: '"+list+"', every: 1h}}\nlisteners: {a: {listen: 'tcp://127.0.0.1:0', deny: ['list:bad'], to: 'echo:'}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	ahead := readAhead(t.Context(), cfg)
	if err := os.Remove(list); err != nil {
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
	d.listsAhead = ahead
	if err := d.apply(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	l := d.active.Load().lists.Named("bad")
	if !l.Contains(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the list is empty")
	}
	if d.listsAhead != nil {
		t.Error("what was read ahead is still there")
	}
}
