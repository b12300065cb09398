package app

import (
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A listener keeps its socket for as long as its address stays, and one that asks
// for a free port for as long as its name does.
func TestBindKey(t *testing.T) {
	parse := func(s string) spec.Endpoint {
		e, err := spec.ParseListener(s)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	a := &spec.Listener{Name: "a", Listen: parse("tcp://127.0.0.1:80")}
	b := &spec.Listener{Name: "b", Listen: parse("tcp://127.0.0.1:80")}
	if bindKeyOf(a, 0) != bindKeyOf(b, 0) {
		t.Error("a name makes another socket")
	}
	b.Interface = "lo"
	if bindKeyOf(a, 0) == bindKeyOf(b, 0) {
		t.Error("an interface makes no other socket")
	}
	free, other := &spec.Listener{Name: "a", Listen: parse("tcp://127.0.0.1:0")}, &spec.Listener{Name: "b", Listen: parse("tcp://127.0.0.1:0")}
	if bindKeyOf(free, 0) == bindKeyOf(other, 0) {
		t.Error("two free ports are one")
	}
}

// What every reload may leave for the next start is told.
func TestKeysNeedingRestart(t *testing.T) {
	parse := func(text string) *spec.Config {
		c, err := config.Parse("x", []byte(text+"\nlisteners: {a: {listen: 'tcp://:1', to: 'echo:'}}"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := parse("engine: {loops: 1}\nlog: {format: text, level: info}\nkeeper: none")
	next := parse("engine: {loops: 2}\nlog: {format: json, level: debug}\nadmin: {listen: 'unix:///x'}\nkeeper: {}")
	alone := &daemon{given: given{keeping: keeping.Alone()}}
	got := alone.keysForLater(config.Compare(old, next)).service
	want := map[string]bool{"engine.loops": true, "log.format": true, "admin.listen": true, "keeper": true}
	for _, k := range got {
		if !want[k] {
			t.Errorf("%s needs no restart", k)
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("%v need one, and it was not told: %v", want, got)
	}
	kept := keepUntilRestart(old, next)
	if got := alone.keysForLater(config.Compare(old, kept)).service; len(got) > 0 {
		t.Errorf("%v are said to have changed", got)
	}
	if kept.Log.Level != "debug" || next.Engine.Loops != 2 {
		t.Errorf("%+v, %+v", kept.Log, next.Engine)
	}
	// Of a keeper that stays, the times are told to it, and what the engine does for it stays.
	old, next = parse("keeper: {keep-after: 1s}"), parse("keeper: {keep-after: 2s, watchdog: 3s, max-restart-delay: 4s}")
	kept = keepUntilRestart(old, next)
	want2 := *next.Keeper
	want2.KeepAfter = old.Keeper.KeepAfter
	if *kept.Keeper != want2 || old.Keeper.Watchdog == want2.Watchdog || next.Keeper.KeepAfter == want2.KeepAfter {
		t.Errorf("%+v, want %+v", kept.Keeper, want2)
	}
	if kept := keepUntilRestart(old, parse("keeper: none")); kept.Keeper == nil || *kept.Keeper != *old.Keeper {
		t.Errorf("%+v", kept.Keeper)
	}
}
