package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// A report that cannot be read is counted as that, and has no numbers.
func TestFleetViewUnreadable(t *testing.T) {
	now := time.Now()
	report := func(name string, version int64) fleet.Node {
		return fleet.Node{Report: fleet.Report{Node: name, Version: version, State: "ready", At: now, Since: now}}
	}
	broken := fleet.Node{Report: fleet.Report{Node: "x"}, Error: "no JSON"}
	v := newFleetView([]fleet.Node{report("a", 5), report("b", 5), report("c", 4), broken}, now)
	v.setPublished(&fleet.State{Current: fleet.Current{Version: 4}, Canary: &fleet.Canary{Version: 5, By: "ann", Relays: 2}})
	text := fmt.Sprint(v.pairs("etcd://127.0.0.1:2379/x?user-file=y"))
	for _, want := range []string{
		"[relays 4 relays: 3 ready, 1 unreadable]", "[run 2 relays run version 5, 1 relay runs version 4]",
		"[tried version 5 by ann, with 2 relays]", "[fleet etcd://127.0.0.1:2379/x]",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	for _, line := range v.table(v.nodes).lines(120) {
		if strings.HasPrefix(line, "x ") && strings.Join(strings.Fields(line), " ") != "x unreadable report cannot be read: no JSON" {
			t.Errorf("%q", line)
		}
	}
}

// What is published cannot be read either.
func TestFleetViewProblem(t *testing.T) {
	v := newFleetView(nil, time.Now())
	v.setPublished(&fleet.State{Problem: fmt.Errorf("no JSON"), Canary: &fleet.Canary{By: "somebody"}})
	if text := fmt.Sprint(v.pairs("etcd://h:1/x")); !strings.Contains(text, "[published cannot be read: no JSON]") || !strings.Contains(text, "[tried by somebody]") {
		t.Error(text)
	}
}

// What is down stands beside its relay, and so do groups without members; of much, the first two.
func TestFleetViewDown(t *testing.T) {
	for want, groups := range map[string]map[string]fleet.Group{
		"":                      {"web": {Up: 1, All: 1}},
		"down: web/a":           {"web": {Up: 1, All: 2, Down: []string{"a"}}},
		"down: db (no members)": {"web": {Up: 1, All: 1}, "db": {}},
		"down: db (no members), web/a and 2 more": {"web": {All: 3, Down: []string{"a", "b", "c"}}, "db": {}},
	} {
		now := time.Now()
		n := fleet.Node{Report: fleet.Report{Node: "x", State: "ready", At: now, Since: now, Groups: groups}}
		if got := strings.Join(newFleetView([]fleet.Node{n}, now).odd(&n), "; "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
