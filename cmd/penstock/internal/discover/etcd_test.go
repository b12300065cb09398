package discover

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func inEtcd(prefix string, servers ...string) spec.Discover {
	return spec.Discover{Network: spec.TCP, Key: prefix, Registry: spec.Registry{Kind: "etcd", Servers: strings.Join(servers, " ")}}
}

func TestEtcdMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		server := testfleet.NewMemoryEtcd(t, network)
		c := etcdClient(t, network, server.URL)
		put := func(key, value string, lease int64) {
			t.Helper()
			if _, err := c.Put(t.Context(), key, []byte(value), lease); err != nil {
				t.Fatal(err)
			}
		}
		put("/web/a", "10.0.0.1:80", 0)
		put("/web/wrong", "nonsense", 0)
		put("/websites/x", "10.0.0.9:80", 0)
		g := find(t, network, inEtcd("/web/", server.URL))
		if m := g.names("a")[0]; m.Addr.String() != "tcp://10.0.0.1:80" || m.Weight != 1 {
			t.Errorf("%+v", m)
		}
		put("/web/c", `{"to":"10.0.0.3:80","weight":7,"zone":"z","draining":true}`, 0)
		if m := g.names("a", "c")[1]; m.Weight != 7 || m.Zone != "z" || !m.Draining {
			t.Errorf("%+v", m)
		}

		// A lease that is not kept alive.
		lease, err := c.Grant(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		put("/web/b", "10.0.0.2:80", lease)
		g.names("a", "b", "c")
		g.names("a", "c")

		// A value that becomes wrong, and right.
		put("/web/c", `{"to":"10.0.0.3:80","weight":1000}`, 0)
		g.names("a")
		put("/web/c", "10.0.0.3:80", 0)
		put("/web/wrong", "10.0.0.4:80", 0)
		g.names("a", "c", "wrong")
		if wrong := g.complaints(); len(wrong) != 2 || !strings.Contains(wrong[0], `"wrong": invalid address`) || !strings.Contains(wrong[1], `"c": weight 1000`) {
			t.Errorf("%q", wrong)
		}

		// The registry away, and back.
		server.Kill()
		if err := g.fails(); !strings.Contains(err.Error(), server.URL) {
			t.Error(err)
		}
		server.Restart()
		put("/web/d", "10.0.0.5:80", 0)
		g.names("a", "c", "d", "wrong")
		if g.least == 0 {
			t.Error("the group was empty")
		}
	})
}

// What a source needs to begin may be missing for a while.
func TestEtcdCredentialsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		d := inEtcd("/web/", "http://127.0.0.1:1")
		d.Registry.UserFile = t.TempDir() + "/user"
		if err := find(t, network, d).fails(); !strings.Contains(err.Error(), d.Registry.UserFile) {
			t.Error(err)
		}
	})
}

// Keys and values that are far too long are said in a few words, and go like others.
func TestEtcdLongKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		server := testfleet.NewMemoryEtcd(t, network)
		c := etcdClient(t, network, server.URL)
		long := "/web/" + strings.Repeat("x", 100_000)
		for key, value := range map[string]string{"/web/a": "10.0.0.1:80", long + "1": "10.0.0.2:80", long + "2": "10.0.0.3:80", "/web/value": strings.Repeat("y", 4000)} {
			if _, err := c.Put(t.Context(), key, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		f := newTestFeed()
		var wrong []string
		f.leftOut.tell = func(_ spec.Discover, problem string) { wrong = append(wrong, problem) }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		source := etcdSource{New(Options{}), inEtcd("/web/", server.URL)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			source.followWith(ctx, f, c)
		}()
		until := func(what string, ok func() bool) {
			t.Helper()
			for late := time.After(patience); ; {
				f.mu.Lock()
				found := ok()
				f.mu.Unlock()
				if found {
					return
				}
				select {
				case <-f.wake:
				case <-late:
					t.Fatal(what)
				}
			}
		}
		until("a list", func() bool { return f.listed })
		until("what is wrong", func() bool { return len(f.wrong) == 3 })
		for _, problem := range wrong {
			if len(problem) > 1000 {
				t.Errorf("%d bytes are said: %.100s", len(problem), problem)
			}
		}
		for key, problem := range f.wrong {
			if len(key)+len(problem) > 1000 {
				t.Errorf("%d bytes are kept: %.100s", len(key)+len(problem), key)
			}
		}
		if _, err := c.Delete(t.Context(), long+"1"); err != nil {
			t.Fatal(err)
		}
		until("one is gone", func() bool { return len(f.wrong) == 2 })
		cancel()
		<-done
	})
}
