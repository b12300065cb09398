//go:build linux

package main

import (
	"testing"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/world"
)

// TestShownMembers: when the relay's list has a member as the registry has it.
func TestShownMembers(t *testing.T) {
	list := shown{"127.0.0.1:1": {State: "up", Weight: 2}, "127.0.0.1:2": {State: "drained", Weight: 1}}
	for _, c := range []struct {
		m     registry.Member
		there bool
		left  string // where it was
		want  bool
	}{
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 3}, true, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:2", Weight: 2}, true, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2, Draining: true}, true, "", false},
		{registry.Member{Name: "b", Addr: "127.0.0.1:2", Weight: 1, Draining: true}, true, "", true},
		{registry.Member{Name: "b", Addr: "127.0.0.1:2", Weight: 1}, true, "", false},
		{registry.Member{Name: "c", Addr: "127.0.0.1:3", Weight: 1}, true, "", false},
		{registry.Member{Name: "c", Addr: "127.0.0.1:3"}, false, "", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1"}, false, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "127.0.0.1:9", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "127.0.0.1:2", false},
	} {
		m := &churnMember{Member: c.m, there: c.there, pending: &change{}}
		if c.left != "" {
			m.pending.left = &world.Endpoint{Addr: c.left}
		}
		if got := list.has(m); got != c.want {
			t.Errorf("%+v, there %v, before at %q: %v", c.m, c.there, c.left, got)
		}
	}
}
