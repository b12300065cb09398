package fleet

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func TestSplitsKey(t *testing.T) {
	prefix := splitsPrefix("/f")
	if l, r, ok := routeOfSplits(splitsKey("/f", "web", "canary"), prefix); !ok || l != "web" || r != "canary" {
		t.Errorf("%q, %q, %v", l, r, ok)
	}
	for _, bad := range []string{"/f/splits/", "/f/splits/web", "/f/splits/web/", "/f/splits//x", "/f/splits/web/x/y", "/f/bans/web/x", "/f/splits/\xff/x"} {
		if l, r, ok := routeOfSplits(bad, prefix); ok {
			t.Errorf("%q: %q, %q", bad, l, r)
		}
	}
}

func FuzzSplits(f *testing.F) {
	f.Add([]byte(`[{"file":{"blue":1,"green":0},"weights":{"blue":1,"green":5},"by":"ann","at":"2026-11-27T10:00:00Z"}]`))
	f.Add([]byte(`[{"file":{"blue":1,"green":0},"weights":{"blue":0,"green":0}}]`))
	f.Add([]byte(`[{"file":{"blue":1},"weights":{"red":1}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ParseSplits(text)
		if err != nil {
			return
		}
		for i := range list {
			if c := &list[i]; len(c.File) != len(c.Weights) || len(c.File) < 2 {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// Operators at two relays change weights at the same time, for two configurations: both are there in the end, and who follows has them. Undone
// ones are gone, and changes of a route do not become more and more.
func TestSetSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.operator()
		split := func(file, weight int) spec.SplitChange {
			return spec.SplitChange{File: map[string]int{"blue": 100, "green": file}, Weights: map[string]int{"blue": 100, "green": weight}, By: "ann"}
		}
		var mu sync.Mutex
		var last SplitsChange
		ctx := t.Context()
		set := func(o *Operator, c spec.SplitChange, text string) (spec.RouteSplits, error) {
			return o.SetSplit(ctx, "web", "default", func(*spec.RouteSplits) (spec.SplitChange, string, error) { return c, text, nil })
		}
		go FollowSplits(ctx, w.open(), testKey, func(ch SplitsChange) {
			mu.Lock()
			defer mu.Unlock()
			last = ch
		})
		told := func(what string, ok func(SplitsChange) bool) {
			t.Helper()
			w.until(what, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return ok(last)
			})
		}
		told("nothing at first", func(ch SplitsChange) bool { return ch.All && len(ch.Changed) == 0 })
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				c := w.open()
				if _, err := set(&Operator{Client: c, Key: testKey, By: fmt.Sprint(i)}, split(i, 50+i), "text"); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		told("both", func(ch SplitsChange) bool {
			if len(ch.Changed) != 1 || len(ch.Changed[0].Changes) != 2 {
				return false
			}
			for i := range 2 {
				if c := ch.Changed[0].For(split(i, 0).File); c == nil || c.Weights["green"] != 50+i || c.By != "ann" {
					t.Errorf("%d: %+v", i, ch.Changed[0])
				}
			}
			return true
		})
		for i := range 2 {
			r, err := set(o, split(i, i), "undone")
			if err != nil || len(r.Changes) != 1-i {
				t.Errorf("%+v, %v", r, err)
			}
		}
		told("none", func(ch SplitsChange) bool {
			return len(ch.Undone) == 1 && ch.Undone[0].Route == "default" && ch.Undone[0].Revision > 0
		})
		for i := range 2 * maxSplitChanges {
			if r, err := set(o, split(i, i+1), "more"); err != nil || len(r.Changes) != min(i+1, maxSplitChanges) || r.Changes[0].File["green"] != i {
				t.Errorf("%+v, %v", r, err)
			}
		}
		list, err := ReadLog(ctx, w.client, testKey, 1)
		if err != nil || len(list) != 1 || list[0].What != "split" || list[0].To != "web/default" || list[0].Text != "more" || list[0].By != "test" {
			t.Errorf("%+v, %v", list, err)
		}
		// Each of two operators changes one part: nobody's change is lost.
		parts := map[string]int{"blue": 100, "green": 100}
		for name := range parts {
			both.Go(func() {
				o := &Operator{Client: w.open(), Key: testKey, By: name}
				if _, err := o.SetSplit(ctx, "web", "parts", func(now *spec.RouteSplits) (spec.SplitChange, string, error) {
					c := spec.SplitChange{File: parts, Weights: maps.Clone(parts)}
					if was := now.For(parts); was != nil {
						c.Weights = maps.Clone(was.Weights)
					}
					c.Weights[name] = 7
					return c, "one part", nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		told("both parts", func(ch SplitsChange) bool {
			for _, r := range ch.Changed {
				if c := r.For(parts); r.Route == "parts" && c != nil && c.Weights["blue"] == 7 && c.Weights["green"] == 7 {
					return true
				}
			}
			return false
		})
		w.client.Put(ctx, splitsKey(testKey, "web", "default"), []byte("{"), 0)
		told("one that cannot be read", func(ch SplitsChange) bool {
			return len(ch.Changed)+len(ch.Undone) == 0 && len(ch.Broken) == 1 && ch.Broken[0].Route == "default" && ch.Broken[0].Err != nil
		})
		if r, err := set(o, split(1, 2), "instead"); err != nil || len(r.Changes) != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
