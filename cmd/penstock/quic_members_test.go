package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// The ID of a server in connection IDs is said by a registry, whose word may change, and by operators who add a member, also for the next
// worker.
func TestQUICServerIDsAtRunTime(t *testing.T) {
	t.Parallel()
	one, two, other := quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "other")
	list := testfleet.NewDocuments(t)
	set := func(id string) {
		list.Set("/sd", fmt.Sprintf(`[{"targets": [%q], "labels": {"penstock_quic_server_id": %q}}]`, "udp://"+one.String(), id))
	}
	set("aabbccddeeff0011")
	k := runKept(t, `
reload: {watch: false}
registries: {list: {http: "{0}"}}
listeners:
  found: {listen: "udp://127.0.0.1:0", to: found}
  added: {listen: "udp://127.0.0.1:0", to: added}
groups:
  found: {discover: [{http: /sd, network: udp, every: 1s}], members: ["udp://{1}"], quic: {ids: cloud, learn: false}}
  added: {members: ["udp://{1}"], quic: {ids: [{config: 2, server-id: 3, nonce: 4}], learn: false}}
  plain: {members: ["udp://{1}"]}
`, list.URL, other.String())
	leads := func(listener, id, server string) {
		t.Helper()
		q := &quicClients{t: t, to: k.at(listener)}
		testwait.Until(t, fmt.Sprintf("%x leads to %s", id, server), func() bool {
			for range 4 { // a group without the ID would take turns
				if q.at(q.open(), quicShort(id)) != server {
					return false
				}
			}
			return true
		})
	}
	first, second := "\x1f\xaa\xbb\xcc\xdd\xee\xff\x00\x11nonce", "\x1f\xaa\xbb\xcc\xdd\xee\xff\x00\x22nonce"
	leads("found", first, "one")
	set("0xAABBCCDDEEFF0022")
	leads("found", second, "one")

	add := func(args ...string) (int, string) {
		return k.command(append([]string{"members", "add"}, args...)...)
	}
	for want, args := range map[string][]string{
		"quic_server_id has 2 bytes, and ids of the group has no": {"added", "udp://" + two.String(), "--quic-server-id", "aabb"},
		"of 1 to 15 bytes":                 {"added", "udp://" + two.String(), "--quic-server-id", "aabbc"},
		"group plain has no quic with ids": {"plain", "udp://" + two.String(), "--quic-server-id", "aabbcc"},
		"already has this quic_server_id":  {"found", "udp://" + two.String(), "--quic-server-id", "aabbccddeeff0022"},
	} {
		if code, out := add(args...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d: %s, want %s", args, code, out, want)
		}
	}
	if code, out := add("added", "udp://"+two.String(), "--quic-server-id", "0xaabbcc"); code != 0 {
		t.Fatal(code, out)
	}
	for _, replace := range []func(){func() {}, k.crash, k.upgrade} {
		replace()
		leads("added", "\x5f\xaa\xbb\xccnonce", "two")
		leads("found", second, "one")
	}
	if code, out := k.command("diff", "--yaml"); code != 0 || !strings.Contains(out, `quic-server-id: "0xaabbcc"`) {
		t.Errorf("penstock diff --yaml: %d, %s", code, out)
	}
}
