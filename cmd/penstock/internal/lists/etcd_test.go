package lists

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

// A list of etcd has the networks of all keys below its prefix, and of no others. If a value is no list, or etcd does not answer, it stays as
// it was; a prefix without keys is an empty list.
func TestEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		server := testfleet.NewMemoryEtcd(t, network)
		c, err := etcd.New(etcd.Config{Remote: remote.Config{Servers: []string{server.URL}, DialContext: network.DialContext}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		put := func(key, value string) {
			t.Helper()
			if _, err := c.Put(t.Context(), key, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		l := open(spec.List{Name: "office", Etcd: "/lists/office/", Registry: spec.Registry{Kind: "etcd", Name: "store", Servers: server.URL}})
		load := func() error { return l.Load(t.Context(), time.Now(), Host{dial: network.DialContext}) }
		if err := load(); err != nil || l.Set().Len() != 0 {
			t.Fatalf("no keys: %v, %d networks", err, l.Set().Len())
		}
		put("/lists/office/a", strings.Repeat("192.0.2.0/24\n", 12)+"# of a\nnobody\n")
		put("/lists/office/b", "2001:db8::/32 # of b")
		put("/lists/office", "198.51.100.1")
		put("/lists/other/a", "198.51.100.2")
		if err := load(); err != nil {
			t.Fatal(err)
		}
		has(t, l, "192.0.2.7 2001:db8::1", "198.51.100.1 198.51.100.2")
		r := l.Status().Report
		if want := `/lists/office/a: line 14: "nobody" is neither an address nor a network`; r.Entries != 13 || r.Bad != 1 || !slices.Equal(r.Named, []string{want}) {
			t.Errorf("%+v", r)
		}
		put("/lists/office/b", "Sorry")
		if err := load(); err == nil || !strings.Contains(err.Error(), "/lists/office/b: 1 of 1 lines") {
			t.Error(err)
		}
		has(t, l, "192.0.2.7 2001:db8::1", "")
		server.Kill()
		if err := load(); err == nil {
			t.Error("there is no etcd, and no error")
		}
		has(t, l, "192.0.2.7 2001:db8::1", "")
		server.Restart()
		for _, key := range []string{"/lists/office/a", "/lists/office/b"} {
			if _, err := c.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		if err := load(); err != nil || l.Set().Len() != 0 {
			t.Errorf("no keys any more: %v, %d networks", err, l.Set().Len())
		}
	})
}
