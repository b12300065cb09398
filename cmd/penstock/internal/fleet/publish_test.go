package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// publish publishes a text, whatever the state is.
func (w *world) publish(text string) Version {
	w.Helper()
	o := w.operator()
	s, err := o.State(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	v, err := o.Publish(w.Context(), s, Draft{Text: text, EndCanary: true}, "publish")
	if err != nil {
		w.Fatal(err)
	}
	return v
}

// followed is a relay as far as it follows the configuration.
type followed struct {
	mu       sync.Mutex
	versions []int64 // that came one after the other
	now      Version
	err      error
	stop     func()
}

// runs returns the version that runs, and the error of the registry.
func (f *followed) runs() (Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now, f.err
}

func (w *world) follow(node string, ran int64) *followed {
	w.Helper()
	f := &followed{}
	follower := Follower{Client: w.open(), Key: testKey, Node: node, Ran: ran}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		follower.Run(ctx, func(v Version, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.err = err; err != nil {
				return
			}
			if v.Version != f.now.Version {
				f.versions = append(f.versions, v.Version)
			}
			f.now = v
		})
	}()
	f.stop = sync.OnceFunc(func() { cancel(); <-done })
	w.Cleanup(f.stop)
	return f
}

// comes waits until a relay runs a version.
func (w *world) comes(f *followed, version int64) {
	w.Helper()
	w.until(fmt.Sprintf("version %d", version), func() bool {
		v, err := f.runs()
		return err == nil && v.Version == version
	})
}

// fails waits until a relay is told an error that has a text in it.
func (w *world) fails(f *followed, text string) {
	w.Helper()
	w.until("an error with "+text, func() bool {
		_, err := f.runs()
		return err != nil && strings.Contains(err.Error(), text)
	})
}

// Of two who publish at once, one wins, and the other is told who that was: nobody's changes are lost.
func TestPublishersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const rounds = 20
		for round := range rounds {
			s, err := w.operator().State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			var errs [3]error
			for i := range errs {
				all.Go(func() {
					o := &Operator{w.client, testKey, fmt.Sprint("publisher", i)}
					_, errs[i] = o.Publish(t.Context(), s, Draft{Text: fmt.Sprintf("round %d of %d", round, i)}, "publish")
				})
			}
			all.Wait()
			won := slices.Index(errs[:], nil)
			if won < 0 {
				t.Fatalf("round %d: nobody won: %v", round, errs)
			}
			for i, err := range errs {
				var conflict *ConflictError
				if i == won {
					continue
				}
				if !errors.As(err, &conflict) || conflict.By.By != fmt.Sprint("publisher", won) || conflict.By.Version != int64(round+1) || !strings.Contains(err.Error(), conflict.By.By) {
					t.Errorf("round %d: publisher %d won, and %d has %v", round, won, i, err)
				}
			}
		}
		list, s, err := w.operator().History(t.Context(), 1000)
		if err != nil || len(list) != rounds || s.Current.Version != rounds || s.Current.Last != rounds {
			t.Fatalf("%d versions, %+v, %v", len(list), s, err)
		}
		for i, v := range list {
			if v.Version != int64(rounds-i) || v.Parent != v.Version-1 {
				t.Errorf("version %d after %d at place %d", v.Version, v.Parent, i)
			}
		}
	})
}

// Relays run what is published, go back by a rollback, and survive everything that may be in the keys.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.follow("a", 0)
		w.fails(f, "no configuration has been published")
		w.publish("one")
		w.comes(f, 1)
		w.publish("two")
		w.comes(f, 2)
		put := func(key, value string) {
			t.Helper()
			if _, err := w.client.Put(t.Context(), key, []byte(value), 0); err != nil {
				t.Fatal(err)
			}
		}
		// Garbage in the keys: the version goes on, and the error is told.
		good := string(encode(&Current{2, HashOf("two"), 2}))
		for _, c := range []struct{ key, value, says string }{
			{configKey(testKey), "garbage", "cannot be read"},
			{configKey(testKey), strings.Repeat("x", 1<<20), "bytes"},
			{configKey(testKey), `{"version":-1}`, "version -1"},
			{configKey(testKey), string(encode(&Current{9, HashOf("nine"), 9})), "no version 9"},
			{configKey(testKey), string(encode(&Current{1, HashOf("two"), 2})), "another one"},
		} {
			put(c.key, c.value)
			w.fails(f, c.says)
			put(configKey(testKey), good)
			w.comes(f, 2)
		}
		// A text that is not the one that was published.
		put(versionKey(testKey, 3), string(encode(&Version{Version: 3, Hash: HashOf("three"), Text: "four"})))
		put(configKey(testKey), string(encode(&Current{3, HashOf("three"), 3})))
		w.fails(f, "is not the one that was published")
		put(versionKey(testKey, 3), string(encode(&Version{Version: 3, Hash: HashOf("three"), Text: "three"}))) // it is read again
		w.comes(f, 3)
		// A canary that cannot be read is none.
		put(canaryKey(testKey), "garbage")
		put(configKey(testKey), string(encode(&Current{2, HashOf("two"), 3})))
		w.comes(f, 2)
		if _, err := w.client.Delete(t.Context(), configKey(testKey)); err != nil {
			t.Fatal(err)
		}
		w.fails(f, "was deleted")
		if v, _ := f.runs(); v.Version != 2 {
			t.Errorf("version %d runs", v.Version)
		}
		v := w.publish("five")
		if v.Version != 4 {
			t.Errorf("version %d after the third was deleted", v.Version)
		}
		w.comes(f, 4)
		v, old, err := w.operator().Rollback(t.Context(), 2, "it was better")
		if err != nil || v.Version != 5 || old.Version != 2 || v.Text != "two" || v.Message != "rollback to version 2: it was better" {
			t.Errorf("%+v, %+v, %v", v, old, err)
		}
		w.comes(f, 5)
		if _, _, err := w.operator().Rollback(t.Context(), 2, ""); !errors.Is(err, ErrNoChange) {
			t.Errorf("the same again: %v", err)
		}
		// A second operator who presses the same button does not bring back what the first one went back from.
		if _, _, err = w.operator().Rollback(t.Context(), 0, ""); err == nil || !strings.Contains(err.Error(), "the current version 5 is a rollback already, to version 2, by ") {
			t.Errorf("a rollback of a rollback: %v", err)
		}
		w.publish("six")
		if v, old, err = w.operator().Rollback(t.Context(), 0, ""); err != nil || old.Version != 5 || v.Text != "two" || v.Again != 5 {
			t.Errorf("%+v, %+v, %v", v, old, err)
		}
		if _, _, err := w.operator().Rollback(t.Context(), 77, ""); err == nil || !strings.Contains(err.Error(), "no version 77") {
			t.Errorf("to a version that is not there: %v", err)
		}
	})
}

// A relay does not follow a registry that has fewer versions than the relay has run, and the next version is above
// those.
func TestFollowerOfAnotherRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		f := w.follow("a", 12)
		w.fails(f, "there have been 1 versions, but this relay has run version 12")
		r := w.relay("a", func(c *PresenceConfig) {
			c.Report = func() Report { return Report{State: "ready", Version: 12} }
		})
		w.until("a report", func() bool { return len(w.nodes()) == 1 })
		if v := w.publish("two"); v.Version != 13 {
			t.Errorf("version %d", v.Version)
		}
		w.comes(f, 13)
		r.stop()
	})
}

// The server is killed, stopped and compacted while versions are published. Relays end at the last one, and never
// go back on the way.
func TestFollowerThroughFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.follow("a", 0)
		w.publish("0")
		w.comes(f, 1)
		for i, fault := range []func(){
			w.server.Kill,
			w.server.Pause,
			func() { w.compact() },
			func() {},
		} {
			fault()
			if i == 0 {
				w.fails(f, "")
				w.server.Restart()
			}
			if i == 1 {
				time.AfterFunc(200*time.Millisecond, w.server.Resume)
			}
			for n := range 5 {
				o := w.operator()
				w.until("a version", func() bool {
					s, err := o.State(t.Context())
					if err == nil {
						_, err = o.Publish(t.Context(), s, Draft{Text: fmt.Sprint(i, " ", n)}, "publish")
					}
					return err == nil
				})
			}
			s, err := w.operator().State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w.comes(f, s.Current.Version)
		}
		f.stop()
		if !slices.IsSorted(f.versions) {
			t.Errorf("versions came in the order %v", f.versions)
		}
	})
}

// compact removes what is older than now from the history of keys.
func (w *world) compact() {
	w.Helper()
	_, revision, err := w.client.Get(w.Context(), testKey)
	if err != nil {
		w.Fatal(err)
	}
	w.post("/v3/kv/compaction", fmt.Sprintf(`{"revision":"%d","physical":true}`, revision))
}

// Old versions go, but never the current one.
func TestKeptVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("current")
		put := func(key string, value []byte) {
			t.Helper()
			if _, err := w.client.Put(t.Context(), key, value, 0); err != nil {
				t.Fatal(err)
			}
		}
		last := int64(KeptVersions + 20) // as after as many canaries that were taken back
		for n := int64(2); n <= last; n++ {
			put(versionKey(testKey, n), encode(&Version{Version: n, Hash: HashOf("x"), Text: "x"}))
		}
		put(configKey(testKey), encode(&Current{1, HashOf("current"), last}))
		v := w.publish("next")
		if v.Version != last+1 || v.Parent != 1 {
			t.Errorf("%+v", v)
		}
		list, _, err := w.operator().History(t.Context(), 1000)
		if err != nil || len(list) != KeptVersions || list[0].Version != last+1 {
			t.Errorf("%d versions, %v", len(list), err)
		}
		s, err := w.operator().State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Current.Version != last+1 {
			t.Errorf("%+v", s.Current)
		}
	})
}

// Versions that were tried and taken back do not pile up for as long as none is published, and the one that relays run
// stays.
func TestVersionsThatWereTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const current, last = 5, KeptVersions + 20
		for n := int64(1); n <= last; n++ {
			if _, err := w.client.Put(t.Context(), versionKey(testKey, n), encode(&Version{Version: n, Hash: HashOf("x"), Text: "x"}), 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.client.Do(t.Context(), etcd.Txn{Then: w.operator().prune(last-KeptVersions+1, current)}); err != nil {
			t.Fatal(err)
		}
		list, _, err := w.operator().History(t.Context(), 1000)
		if err != nil || len(list) != KeptVersions+1 || list[KeptVersions].Version != current || list[KeptVersions-1].Version != last-KeptVersions+1 {
			t.Errorf("%d versions, %v", len(list), err)
		}
	})
}

// The log is bounded, although nothing but publish writes to it.
func TestLogOfPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const all = maxLog + 150
		var ops []etcd.Op
		for i := range all {
			if ops = append(ops, w.operator().entryOf("test", fmt.Sprint(i), "")); len(ops) == maxOps || i == all-1 {
				if _, err := w.client.Do(t.Context(), etcd.Txn{Then: ops}); err != nil {
					t.Fatal(err)
				}
				ops = nil
			}
		}
		n := 0
		w.until("it is trimmed", func() bool {
			w.publish(fmt.Sprint(n))
			n++
			list, err := w.operator().ReadLog(t.Context(), -1)
			return err == nil && len(list) < all
		})
	})
}

// A relay that reports a number that is far from what is published does not use up the numbers.
func TestNumbersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i, n := range []int64{7, maxNumber - 1, maxNumber} {
			r := Report{Node: fmt.Sprint("n", i), Version: n}
			if _, err := w.client.Put(t.Context(), nodeKey(testKey, r.Node), encode(&r), 0); err != nil {
				t.Fatal(err)
			}
		}
		if v := w.publish("first"); v.Version != 8 {
			t.Errorf("version %d", v.Version)
		}
	})
}

// The number of versions is what counts, not their numbers: these jump when etcd was restored, or a relay lies.
func TestKeptVersionsAfterJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.publish("one")
		w.publish("two")
		report := func(version int64) {
			t.Helper()
			if _, err := w.client.Put(t.Context(), nodeKey(testKey, "liar"), encode(&Report{Node: "liar", Version: version, At: time.Now()}), 0); err != nil {
				t.Fatal(err)
			}
		}
		report(50_000)
		if v := w.publish("three"); v.Version != 50_001 {
			t.Errorf("version %d", v.Version)
		}
		report(maxNumber - 1)
		if v := w.publish("four"); v.Version != 50_002 {
			t.Errorf("version %d: nobody could publish any more", v.Version)
		}
		if list, _, err := w.operator().History(t.Context(), 10); err != nil || len(list) != 4 {
			t.Errorf("%d versions, %v", len(list), err)
		}
	})
}

// There is nothing to go back to.
func TestRollbackOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, _, err := w.operator().Rollback(t.Context(), 0, ""); !errors.Is(err, ErrNothing) {
			t.Error(err)
		}
	})
}

// What etcd does not take is an error that says so.
func TestTooLarge(t *testing.T) {
	w, server := newRealWorld(t)
	o := w.operator()
	s, err := o.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Publish(t.Context(), s, Draft{Text: strings.Repeat("x", 3<<20)}, "publish"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("3 MiB: %v", err)
	}
	if _, err := o.Publish(t.Context(), s, Draft{Text: "\xff"}, "publish"); err == nil {
		t.Error("a text that is not UTF-8 was published")
	}
	if _, err := o.Publish(t.Context(), s, Draft{Text: strings.Repeat("<", 1<<20)}, "publish"); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
	if v, err := o.Version(t.Context(), 1); err != nil || len(v.Text) != 1<<20 {
		t.Errorf("%d bytes, %v", len(v.Text), err)
	}
	var other *etcd.Error
	server.Kill()
	if _, err := o.Publish(t.Context(), s, Draft{Text: "x"}, "publish"); err == nil || errors.Is(err, ErrTooLarge) || errors.As(err, &other) {
		t.Errorf("without a server: %v", err)
	}
}
