package upstream

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// The members of a registry that is away are those of the last process, from the file in the state
// folder. A damaged file is reported, and replaced.
func TestMembersOutliveTheProcess(t *testing.T) {
	folder := t.TempDir()
	log := new(bytes.Buffer)
	file := NewAnswersFile(folder, slog.New(slog.NewTextHandler(log, nil)))
	lookup := spec.Discover{Registry: spec.Registry{Name: "main", Kind: "consul", Servers: "http://127.0.0.1:1"}, Key: "web", Network: spec.TCP}
	start := func() (*Set, *Group, func([]Target, error)) {
		cfg := &spec.Group{Balance: "random", Discover: []spec.Discover{lookup}, Lookups: spec.Lookups{Keep: time.Hour, Vanish: 0.5}}
		return startSource(t, cfg, Options{LastGood: file.Read()})
	}
	over := make(chan struct{})
	close(over) // so that Follow saves once, and returns
	s, g, tell := start()
	if file.Follow(s, over); g.Len() != 0 || log.Len() > 0 {
		t.Errorf("%d members before there were any\n%s", g.Len(), log)
	}
	path := filepath.Join(folder, "members.json")
	if _, err := os.Stat(path); err == nil {
		t.Error("a file without an answer")
	}
	tell(found(1), nil)
	file.Follow(s, over)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".members-*")); len(left) > 0 {
		t.Errorf("%q", left)
	}

	next, g, tell := start()
	tell(nil, errors.New("away"))
	if l := next.Snapshot()[0].Lookups[0]; g.Len() != 1 || next.Snapshot()[0].Members[0].Name != found(1)[0].Name || l.GoodAt.IsZero() {
		t.Errorf("%d members, %+v\n%s", g.Len(), l, log)
	}

	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	last, g, tell := start()
	if g.Len() != 0 || !strings.Contains(log.String(), "cannot be used") {
		t.Errorf("%d members\n%s", g.Len(), log)
	}
	tell(found(2, 3), nil)
	file.Follow(last, over)
	if _, g, _ := start(); g.Len() != 2 {
		t.Errorf("%d members after the file was replaced\n%s", g.Len(), log)
	}
}

// Without a state folder nothing is kept.
func TestNoAnswersFile(t *testing.T) {
	file := NewAnswersFile("", slog.New(slog.DiscardHandler))
	if file != nil || file.Read() != nil {
		t.Errorf("%+v", file)
	}
	file.Follow(nil, nil)
}
