package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// Where members are checked is said by a registry, whose word may change, and by operators who add one: also in a sandbox that did not allow the
// port, and in the next worker.
func TestCheckElsewhere(t *testing.T) {
	t.Parallel()
	one, two, alive := speak(t, "one"), speak(t, "two"), speak(t, "check")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := portOf(closed.Addr())
	closed.Close()
	_, checked, _ := net.SplitHostPort(strings.TrimPrefix(alive.url(), "tcp://"))
	list := testfleet.NewDocuments(t)
	set := func(port string) {
		list.Set("/sd", fmt.Sprintf(`[{"targets": ["%s"], "labels": {"penstock_check_port": %q, "penstock_check_address": "127.0.0.1"}}]`, strings.TrimPrefix(one.url(), "tcp://"), port))
	}
	set(dead)
	k := runKept(t, `
reload: {watch: false}
registries: {list: {http: "{0}"}}
listeners: {web: {listen: "tcp://127.0.0.1:0", to: found}}
defaults: {check: {tcp: {every: 100ms, timeout: 60s, fall: 1, rise: 1}}}
groups:
  found: {discover: [{http: /sd, every: 1s}]}
  added: {members: ["{1}"]}
`, list.URL, two.url())
	state := func(group, address, want string) {
		t.Helper()
		testwait.Until(t, address+" is "+want, func() bool {
			if !k.answers() {
				return false
			}
			g, err := k.admin.Group(k.ctx(), group)
			if err != nil {
				return false
			}
			for _, m := range g.Members {
				if m.Address == address {
					return m.State == want
				}
			}
			return false
		})
	}
	state("found", one.url(), "down")
	set(checked)
	state("found", one.url(), "up")
	set(dead)
	state("found", one.url(), "down")

	good := func(args ...string) string {
		t.Helper()
		code, out := k.command(args...)
		if code != 0 {
			t.Fatalf("penstock %s: exit code %d: %s", strings.Join(args, " "), code, out)
		}
		return out
	}
	good("members", "add", "added", one.url(), "--name", "bad", "--check-port", dead)
	state("added", one.url(), "down")
	good("members", "remove", "added/bad")
	good("members", "add", "added", one.url(), "--name", "good", "--check-port", checked, "--check-address", "127.0.0.1")
	state("added", one.url(), "up")
	k.crash()
	state("added", one.url(), "up")
	if out, want := good("diff", "--yaml"), "check-port: "+checked+`, check-address: "127.0.0.1"`; !strings.Contains(out, want) {
		t.Errorf("penstock diff --yaml: %s, want %s", out, want)
	}
	for want, args := range map[string][]string{
		"check_port: 65536":      {"--check-port", "65536"},
		"check_address: ::":      {"--check-address", "::"},
		"check_address: ::ffff:": {"--check-address", "::ffff:0.0.0.0"},
		"allowed: an IP address": {"--check-address", "localhost"},
	} {
		if code, out := k.command(append([]string{"members", "add", "added", "tcp://127.0.0.1:9"}, args...)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d: %s, want %s", args, code, out, want)
		}
	}
}
