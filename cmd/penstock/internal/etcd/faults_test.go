package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testwait"
)

// A server that is killed: what changes until the client is back is not missed, and nothing is listed again.
func TestServerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		proxy := server.proxy(t, "proxy")
		mustPut(t, c, "/a/0", "zero", 0)
		m := follow(t, open(t, server.quick(proxy.URL)), "/a/")
		testwait.Until(t, "contact", m.connected)
		server.Kill()
		testwait.Until(t, "loss of contact", m.isLost)
		proxy.Cut()
		server.Restart()
		mustPut(t, c, "/a/1", "one", 0)
		if _, err := c.Delete(t.Context(), "/a/0"); err != nil {
			t.Fatal(err)
		}
		proxy.Mend()
		testwait.Until(t, "the changes", m.equals(map[string]string{"/a/1": "one"}))
		testwait.Until(t, "contact", m.connected)
		if m.numLists() != 1 {
			t.Errorf("%d lists", m.numLists())
		}
	})
}

// A server that is stopped looks like a partition: no connection breaks, but nobody answers.
func TestServerStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		mustPut(t, c, "/a/0", "zero", 0)
		cfg := server.quick(server.URL)
		cfg.Timeout = 500 * time.Millisecond
		m := follow(t, open(t, cfg), "/a/")
		testwait.Until(t, "contact", m.connected)
		server.Pause()
		testwait.Until(t, "loss of contact", m.isLost)
		m.mu.Lock()
		if text := m.errs[len(m.errs)-1].Error(); text != server.URL+": no answer in time" {
			t.Error(text)
		}
		m.mu.Unlock()
		server.Resume()
		mustPut(t, c, "/a/0", "one", 0)
		testwait.Until(t, "the change", m.equals(map[string]string{"/a/0": "one"}))
	})
}

// One of several servers goes: the next one is used. One that answers nothing, too.
func TestFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		mustPut(t, c, "/a/0", "0", 0)
		proxies := []*testfleet.Proxy{server.proxy(t, "a"), server.proxy(t, "b"), server.proxy(t, "c")}
		cfg := server.quick(proxies[0].URL, proxies[1].URL, proxies[2].URL)
		cfg.Timeout = 500 * time.Millisecond
		f := open(t, cfg)
		m := follow(t, f, "/a/")
		testwait.Until(t, "contact", m.connected)
		for i := range 4 {
			used := proxies[f.current.Load()]
			if i%2 == 0 {
				used.Cut()
			} else {
				used.Freeze(true)
			}
			want := map[string]string{"/a/0": fmt.Sprint(i)}
			mustPut(t, c, "/a/0", want["/a/0"], 0)
			testwait.Until(t, "a change by another server", m.equals(want))
			if i%2 == 0 {
				used.Mend()
			} else {
				used.Freeze(false)
			}
		}
		if m.numLists() != 1 {
			t.Errorf("%d lists", m.numLists())
		}
	})
}

// A network that takes its time is no reason to give up, and nothing is missed.
func TestSlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		proxy := server.proxy(t, "proxy")
		proxy.Delay(50 * time.Millisecond)
		cfg := server.quick(proxy.URL)
		cfg.PageKeys, cfg.Timeout = 10, patience
		want := map[string]string{}
		for i := range 30 {
			k := fmt.Sprintf("/a/%02d", i)
			want[k] = strings.Repeat("x", 1000)
			mustPut(t, c, k, want[k], 0)
		}
		m := follow(t, open(t, cfg), "/a/")
		testwait.Until(t, "the list", m.equals(want))
		for i := range 10 {
			k := fmt.Sprintf("/a/%02d", i)
			want[k] = fmt.Sprint(i)
			mustPut(t, c, k, want[k], 0)
		}
		testwait.Until(t, "the changes", m.equals(want))
	})
}

// What happened while the client was away is compacted: it lists again, and notices what is gone.
func TestCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		proxy := server.proxy(t, "proxy")
		for i := range 5 {
			mustPut(t, c, fmt.Sprintf("/a/%d", i), "old", 0)
		}
		m := follow(t, open(t, server.quick(proxy.URL)), "/a/")
		testwait.Until(t, "contact", m.connected)
		proxy.Cut()
		testwait.Until(t, "loss of contact", m.isLost)
		if _, err := c.Do(t.Context(), Txn{Then: []Op{DeleteRange("/a/1", "/a/4")}}); err != nil {
			t.Fatal(err)
		}
		revision := mustPut(t, c, "/a/0", "new", 0)
		mustPut(t, c, "/a/9", "new", 0)
		admin(t, c, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(revision)})
		err := c.Watch(t.Context(), "/a/", 1, func([]Event, int64) {})
		var compacted *CompactedError
		if !errors.As(err, &compacted) || compacted.Revision != revision {
			t.Errorf("%v, want compacted at %d", err, revision)
		}
		proxy.Mend()
		testwait.Until(t, "the new state", m.equals(map[string]string{"/a/0": "new", "/a/4": "old", "/a/9": "new"}))
		if m.numLists() != 2 {
			t.Errorf("%d lists", m.numLists())
		}
	})
}

// What a server says of its progress moves the client on: without changes, compaction does not make it list again.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		server.SetProgress(100 * time.Millisecond)
		begin := mustPut(t, c, "/b", "", 0)
		last := mustPut(t, c, "/b", "x", 0)
		watch := func(from, until int64) (reached int64, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = c.Watch(ctx, "/a/", from, func(events []Event, revision int64) {
				if len(events) > 0 {
					t.Errorf("%+v", events)
				}
				if reached = revision; revision >= until {
					cancel()
				}
			})
			return reached, err
		}
		reached, err := watch(begin, last)
		if !errors.Is(err, context.Canceled) || reached < last {
			t.Fatalf("revision %d, %v, want %d", reached, err, last)
		}
		admin(t, c, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(last)})
		if reached, err := watch(reached, reached); !errors.Is(err, context.Canceled) || reached < last {
			t.Errorf("revision %d, %v", reached, err)
		}
		if _, err := watch(begin-1, last); !errors.As(err, new(*CompactedError)) {
			t.Error(err)
		}
	})
}

// A watch that was silent for very long is made again, and nobody notices.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		proxy := server.proxy(t, "proxy")
		cfg := server.quick(proxy.URL)
		cfg.Silence, cfg.Renew = 20*time.Millisecond, 50*time.Millisecond
		mustPut(t, c, "/a/0", "x", 0)
		m := follow(t, open(t, cfg), "/a/")
		testwait.Until(t, "three watches", func() bool { return proxy.Accepted() >= 4 })
		mustPut(t, c, "/a/0", "y", 0)
		testwait.Until(t, "a change", m.equals(map[string]string{"/a/0": "y"}))
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lists != 1 || len(m.errs) > 0 {
			t.Errorf("%d lists, %v", m.lists, m.errs)
		}
	})
}

// Many watches of one server notice together that it does not answer.
func TestProbesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		cfg := server.quick(server.URL)
		cfg.Timeout = 300 * time.Millisecond
		shared := open(t, cfg)
		mustPut(t, c, "/a/0", "x", 0)
		var all []*mirror
		for range 20 {
			all = append(all, follow(t, shared, "/a/"))
		}
		for _, m := range all {
			testwait.Until(t, "contact", m.connected)
		}
		server.Pause()
		paused := time.Now()
		for _, m := range all {
			testwait.Until(t, "loss of contact", m.isLost)
		}
		if took := time.Since(paused); took > time.Second { // by themselves: one time-out after the other
			t.Errorf("all have noticed after %v", took)
		}
		server.Resume()
		mustPut(t, c, "/a/0", "y", 0)
		for _, m := range all {
			testwait.Until(t, "the change", m.equals(map[string]string{"/a/0": "y"}))
		}
	})
}

// Changes that are larger than a message come in fragments.
func TestFragments(t *testing.T) {
	_, c := start(t)
	revision := mustPut(t, c, "/b", "", 0)
	want := map[string]string{}
	for i := range 16 {
		k := fmt.Sprintf("/a/%02d", i)
		want[k] = strings.Repeat(fmt.Sprint(i%10), 400_000)
		mustPut(t, c, k, want[k], 0)
	}
	got, calls := map[string]string{}, 0
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Watch(ctx, "/a/", revision, func(events []Event, _ int64) {
		for _, e := range events {
			got[e.KV.Key] = string(e.KV.Value)
		}
		if calls++; len(got) == len(want) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || !maps.Equal(got, want) {
		t.Errorf("%v, %d keys in %d calls", err, len(got), calls)
	}
}

// A cluster that was restored from a backup has older revisions. They are refused at first, and believed after a while.
func TestRestoredFromBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, c := startMemory(t)
		for i := range 5 {
			mustPut(t, c, fmt.Sprintf("/a/%d", i), "x", 0)
		}
		cfg := server.quick(server.URL)
		cfg.StaleAfter = time.Second
		f := open(t, cfg)
		m := follow(t, f, "/a/")
		m.mu.Lock()
		m.restored = true
		m.mu.Unlock()
		testwait.Until(t, "contact", m.connected)
		server.RestartEmpty()
		fresh := open(t, server.quick(server.URL))
		mustPut(t, fresh, "/a/7", "y", 0)
		testwait.Until(t, "the restored state", m.equals(map[string]string{"/a/7": "y"}))
		stale := false
		m.mu.Lock()
		for _, err := range m.errs {
			var e *StaleError
			stale = stale || errors.As(err, &e)
		}
		m.mu.Unlock()
		if !stale || f.epoch() != 1 {
			t.Errorf("stale %v, epoch %d", stale, f.epoch())
		}
		mustPut(t, fresh, "/a/8", "z", 0)
		testwait.Until(t, "a change", m.equals(map[string]string{"/a/7": "y", "/a/8": "z"}))

		// Another one, which is of the same cluster, refuses what c has seen.
		if _, err := c.Put(t.Context(), "/a/x", nil, 0); !errors.As(err, new(*StaleError)) {
			t.Error(err)
		}
	})
}

// With users: a token is got when it is needed, and again when it is no longer good.
func TestTokens(t *testing.T) {
	server, c := start(t, "-token-ttl", "5") // a token comes and is used within that
	for path, in := range map[string]any{"user/add": map[string]string{"name": "root", "password": "first"}, "role/add": map[string]string{"name": "root"}} {
		admin(t, c, "/v3/auth/"+path, in)
	}
	admin(t, c, "/v3/auth/user/grant", map[string]string{"user": "root", "role": "root"})
	admin(t, c, "/v3/auth/enable", struct{}{})
	if _, err := c.Put(t.Context(), "/a/0", nil, 0); err == nil {
		t.Error("a client without a user may write")
	}
	file := filepath.Join(t.TempDir(), "user")
	writeUser := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeUser("root:first")
	cfg := quick(server.URL)
	cfg.Remote.UserFile = file
	idle := open(t, cfg)
	mustPut(t, idle, "/b", "", 0)
	expired, since := idle.auth.token, time.Now()
	u := open(t, cfg)
	mustPut(t, u, "/a/0", "x", 0)
	m := follow(t, u, "/a/")
	testwait.Until(t, "contact", m.connected)

	// A token that the server does not know, or no longer: for a request, and for a watch.
	u.auth.Lock()
	u.auth.token = "unknown.1"
	u.auth.Unlock()
	mustPut(t, u, "/a/1", "y", 0)
	other := open(t, cfg)
	other.auth.token = "unknown.1"
	testwait.Until(t, "a watch with a new token", follow(t, other, "/a/").equals(map[string]string{"/a/0": "x", "/a/1": "y"}))
	testwait.Until(t, "the end of a token", func() bool {
		time.Sleep(time.Until(since.Add(6200 * time.Millisecond)))
		since = time.Now() // each use makes it last longer
		err := idle.post(t.Context(), 0, "/v3/kv/range", expired, []byte(`{"key":"YQ=="}`), new(rangeResponse))
		var e *Error
		return errors.As(err, &e) && e.Code == codeUnauthenticated
	})
	mustPut(t, idle, "/b", "", 0)
	if idle.auth.token == expired {
		t.Error("the token is the old one")
	}
	server.Restart()
	mustPut(t, u, "/a/1", "z", 0)
	testwait.Until(t, "a change after a restart", m.equals(map[string]string{"/a/0": "x", "/a/1": "z"}))

	// A change of users makes tokens older than the users.
	admin(t, u, "/v3/auth/user/add", map[string]string{"name": "reader", "password": "x"})
	admin(t, u, "/v3/auth/role/add", map[string]string{"name": "reader"})
	admin(t, u, "/v3/auth/role/grant", map[string]any{"name": "reader", "perm": map[string]any{"permType": "READ", "key": []byte("/a/"), "range_end": []byte("/a0")}})
	admin(t, u, "/v3/auth/user/grant", map[string]string{"user": "reader", "role": "reader"})
	mustPut(t, u, "/a/2", "z", 0)

	// The right to read the prefix is all that following it needs.
	reader := cfg
	reader.Remote.UserFile = filepath.Join(t.TempDir(), "reader")
	if err := os.WriteFile(reader.Remote.UserFile, []byte("reader:x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, reader)
	var denied *Error
	if _, err := r.Put(t.Context(), "/a/2", nil, 0); !errors.As(err, &denied) || denied.Code != 7 {
		t.Error(err)
	}
	if _, _, err := r.Prefix(t.Context(), "/b"); !errors.As(err, &denied) || denied.Code != 7 {
		t.Error(err)
	}
	reads := follow(t, r, "/a/")
	testwait.Until(t, "contact of a reader", reads.connected)
	testwait.Until(t, "a probe", func() bool {
		r.probing <- struct{}{}
		defer func() { <-r.probing }()
		return !r.probed.at.IsZero()
	})
	if reads.isLost() {
		t.Error("the reader has lost contact")
	}

	// Another password, in the file too.
	admin(t, u, "/v3/auth/user/changepw", map[string]string{"name": "root", "password": "second"})
	if _, err := u.Put(t.Context(), "/a/3", nil, 0); err == nil || !strings.Contains(err.Error(), "user root") {
		t.Error(err)
	}
	writeUser("root:second")
	mustPut(t, u, "/a/3", "", 0)
	testwait.Until(t, "a change with another password", m.equals(map[string]string{"/a/0": "x", "/a/1": "z", "/a/2": "z", "/a/3": ""}))
}

// With all servers away, each attempt is one round of all, and there is a wait after it.
func TestAllServersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := startMemory(t)
		a, b := server.proxy(t, "a"), server.proxy(t, "b")
		server.Kill()
		cfg := server.quick(a.URL, b.URL)
		cfg.Backoff = remote.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
		m := follow(t, open(t, cfg), "/a/")
		attempts := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.errs)
		}
		testwait.Until(t, "30 attempts", func() bool { return attempts() >= 30 })
		if n, most := a.Accepted()+b.Accepted(), 2*2*(attempts()+1); n > most {
			t.Errorf("%d connections, want at most %d", n, most)
		}
		server.Restart()
		testwait.Until(t, "contact", m.connected)
	})
}
