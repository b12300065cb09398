package app

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Each stage says why it is where it is, and all that can fail come before all that change something.
func TestStages(t *testing.T) {
	names := map[string]bool{}
	committed := ""
	for _, s := range stages() {
		if s.name == "" || s.place == "" || names[s.name] || s.prepare == nil && s.commit == nil || s.undo != nil && s.prepare == nil {
			t.Errorf("%+v", s)
		}
		names[s.name] = true
		if s.prepare != nil && committed != "" {
			t.Errorf("%s is prepared after %s, which cannot be undone", s.name, committed)
		}
		if s.prepare == nil {
			committed = s.name
		}
	}
}

// Wherever a configuration fails, the one before goes on, with its sockets, and nothing of the new one is left; once nothing fails, it
// is the running one.
func TestApplyAsAWhole(t *testing.T) {
	parse := func(text string) *spec.Config {
		t.Helper()
		cfg, err := config.Parse("test", []byte("engine: {loops: 1}\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	first := parse("listeners: {one: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}}")
	second := parse("listeners: {one: {listen: 'tcp://127.0.0.1:0', to: 'echo:'}, two: {listen: 'tcp://127.0.0.1:0', to: g}}\ngroups: {g: {members: ['tcp://127.0.0.1:9']}}")
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, first, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err := d.apply(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	running, socket := d.active.Load(), d.listening.bound[bindKeyOf(first.Listeners[0], 0)]
	list := stages()
	wrong := errors.New("wrong")
	for n := range list {
		if list[n].prepare == nil {
			break
		}
		failing := append(append([]stage(nil), list[:n+1]...), stage{name: "wrong", prepare: func(*application) error { return wrong }})
		if err := d.applyStages(t.Context(), second, failing); !errors.Is(err, wrong) {
			t.Fatalf("after %s: %v", list[n].name, err)
		}
		if d.active.Load() != running || len(d.listening.bound) != 1 || d.listening.bound[bindKeyOf(first.Listeners[0], 0)] != socket || d.set.Group("g") != nil {
			t.Errorf("after %s the configuration before does not go on as it was", list[n].name)
		}
	}
	if err := d.apply(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range d.active.Load().Listeners {
		names = append(names, l.Name)
	}
	if len(d.listening.bound) != 2 || strings.Join(names, " ") != "one two" || d.listening.bound[bindKeyOf(first.Listeners[0], 0)] != socket {
		t.Errorf("%q, %d sockets", names, len(d.listening.bound))
	}
}

// A configuration that fails when its logs are open leaves flows in those of the one before.
func TestLogsOfWhatFails(t *testing.T) {
	dir := t.TempDir()
	parse := func(log string) *spec.Config {
		t.Helper()
		cfg, err := config.Parse("test", []byte("engine: {loops: 1}\nlisteners: {one: {listen: 'unix://"+dir+"/one', to: 'echo:'}}\naccess-log: {to: "+filepath.Join(dir, log)+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	first, second := parse("first"), parse("second")
	d, err := newDaemon(slog.New(slog.DiscardHandler), new(slog.LevelVar), func() int64 { return 0 }, first, keeping.Alone(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.apply(t.Context(), first); err != nil {
		d.close()
		t.Fatal(err)
	}
	wrong := errors.New("wrong")
	failing := slices.Clone(stages())
	failing[slices.IndexFunc(failing, func(s stage) bool { return s.name == "sandbox" })].prepare = func(*application) error { return wrong }
	err = d.applyStages(t.Context(), second, failing)
	c, dialed := net.Dial("unix", filepath.Join(dir, "one"))
	if dialed == nil {
		c.SetDeadline(time.Now().Add(time.Minute))
		c.Write([]byte("x"))
		_, dialed = io.ReadFull(c, make([]byte, 1))
		c.Close()
	}
	d.close() // writes what is queued
	if !errors.Is(err, wrong) || dialed != nil {
		t.Fatalf("%v, %v", err, dialed)
	}
	for log, want := range map[string]int{"first": 1, "second": 0} {
		text, err := os.ReadFile(filepath.Join(dir, log))
		if err != nil || bytes.Count(text, []byte("\n")) != want {
			t.Errorf("%s: %q, %v; want %d lines", log, text, err, want)
		}
	}
}
