package etcd

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// A mirror is a copy of a prefix that Follow keeps. It fails the test if what it is told cannot be.
type mirror struct {
	t *testing.T

	mu       sync.Mutex
	keys     map[string]string
	mods     map[string]int64
	revision int64
	lists    int
	errs     []error
	lost     time.Time
	watches  bool // there is contact, by a watch
	restored bool // a list may have an older revision
}

// follow follows a prefix until the test ends.
func follow(t *testing.T, c *Client, prefix string) *mirror {
	t.Helper()
	m := &mirror{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Follow(ctx, prefix, m.apply, m.contact) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return m
}

func (m *mirror) apply(ch Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ch.All {
		m.keys, m.mods = map[string]string{}, map[string]int64{}
		m.lists++
	}
	if ch.Revision < m.revision && !(ch.All && m.restored) {
		m.t.Errorf("revision %d after %d", ch.Revision, m.revision)
	}
	m.revision = ch.Revision
	for _, kv := range ch.KVs {
		if kv.Mod <= m.mods[kv.Key] {
			m.t.Errorf("%s at %d after %d", kv.Key, kv.Mod, m.mods[kv.Key])
		}
		m.keys[kv.Key], m.mods[kv.Key] = string(kv.Value), kv.Mod
	}
	for _, k := range ch.Deleted {
		delete(m.keys, k)
	}
}

func (m *mirror) contact(err error, since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil != since.IsZero() {
		m.t.Errorf("%v since %v", err, since)
	}
	m.lost, m.watches = since, err == nil
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *mirror) equals(want map[string]string) func() bool {
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.keys != nil && maps.Equal(m.keys, want)
	}
}

func (m *mirror) connected() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys != nil && m.watches && m.revision > 0
}

func (m *mirror) isLost() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.lost.IsZero()
}

func (m *mirror) numLists() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := startMemory(t)
		mustPut(t, c, "/a/0", "zero", 0)
		mustPut(t, c, "/b/0", "other", 0)
		m := follow(t, c, "/a/")
		testwait.Until(t, "the first state", m.equals(map[string]string{"/a/0": "zero"}))
		testwait.Until(t, "contact", m.connected)
		want := map[string]string{"/a/0": "zero"}
		for i := range 50 {
			k := fmt.Sprintf("/a/%d", i%7)
			if i%5 == 4 {
				delete(want, k)
				if _, err := c.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			} else {
				want[k] = fmt.Sprint(i)
				mustPut(t, c, k, want[k], 0)
			}
		}
		testwait.Until(t, "the last state", m.equals(want))
		id, err := c.Grant(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		mustPut(t, c, "/a/leased", "x", id)
		testwait.Until(t, "the end of the lease", m.equals(want))
		if m.numLists() != 1 {
			t.Errorf("%d lists", m.numLists())
		}
		// A transaction is one change.
		if _, err := c.Do(t.Context(), Txn{Then: []Op{DeletePrefix("/a/"), Put("/c", nil, 0)}}); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "nothing left", m.equals(map[string]string{}))
	})
}

// Of several changes of a key that come together, the last one counts, whichever kind it is.
func TestLastChangeOfAKeyCounts(t *testing.T) {
	put := func(key string, mod int64) Event { return Event{KV: KV{Key: key, Mod: mod}} }
	gone := func(key string, mod int64) Event { return Event{Delete: true, KV: KV{Key: key, Mod: mod}} }
	ch := change([]Event{gone("a", 8), put("b", 8), put("a", 9), gone("b", 9), put("c", 9), put("c", 9)}, 9)
	if len(ch.KVs) != 2 || ch.KVs[0].Key != "a" || ch.KVs[1].Key != "c" || len(ch.Deleted) != 1 || ch.Deleted[0] != "b" || ch.All || ch.Revision != 9 {
		t.Errorf("%+v", ch)
	}
}
