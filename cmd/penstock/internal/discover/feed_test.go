package discover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
)

func newTestFeed() *feed {
	return newFeed(Options{Interval: time.Microsecond, LeftOut: func(spec.Discover, string) {}}, spec.Discover{})
}

// A feed is compared with a map, after random changes.
func TestFeedAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	f, want := newTestFeed(), map[string]int{}
	for range 2000 {
		all := r.IntN(50) == 0
		if all {
			clear(want)
		}
		f.change(all, func(e *edits) {
			for range r.IntN(10) {
				k, w := fmt.Sprint(r.IntN(40)), 1+r.IntN(256)
				switch r.IntN(4) {
				case 0:
					e.remove(k)
					delete(want, k)
				case 1:
					e.reject(k, "wrong")
					delete(want, k)
				default:
					e.set(k, upstream.Target{Name: k, Weight: w})
					want[k] = w
				}
			}
		})
		if r.IntN(3) > 0 {
			continue
		}
		list, have, err := f.list()
		if !f.listed {
			if have {
				t.Fatal("a list before there was a complete one")
			}
			continue
		}
		if !have || err != nil || len(list) != len(want) || !slices.IsSortedFunc(list, func(a, b upstream.Target) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%v, %v, %v; want %v", list, have, err, want)
		}
		for _, m := range list {
			if want[m.Name] != m.Weight {
				t.Fatalf("%+v, want weight %d", m, want[m.Name])
			}
		}
	}
}

// A list that was passed on is never changed afterwards.
func TestFeedListsAreOwned(t *testing.T) {
	f := newTestFeed()
	f.change(true, func(e *edits) { e.set("a", upstream.Target{Weight: 1}) })
	first, _, _ := f.list()
	f.change(false, func(e *edits) { e.set("a", upstream.Target{Weight: 2}) })
	second, _, _ := f.list()
	if first[0].Weight != 1 || second[0].Weight != 2 {
		t.Errorf("%+v, %+v", first, second)
	}
}

// Far too many members are an error, and what there was stays.
func TestFeedIsBounded(t *testing.T) {
	f := newTestFeed()
	complaints := 0
	f.leftOut.tell = func(spec.Discover, string) { complaints++ }
	f.change(true, func(e *edits) { e.set("a", upstream.Target{}) })
	f.list()
	err := f.change(true, func(e *edits) {
		for i := range 5 * maxMembers {
			e.set(fmt.Sprint(i), upstream.Target{})
		}
	})
	if list, _, _ := f.list(); !errors.Is(err, errTooMany) || len(list) != 1 {
		t.Errorf("%v, %d members", err, len(list))
	}
	f.change(false, func(e *edits) {
		for i := range 1000 {
			e.reject(fmt.Sprint(i), "wrong")
		}
	})
	if complaints != maxComplaints {
		t.Errorf("%d complaints", complaints)
	}
}

// Changes while a list is being passed on are in the next one, errors come after what was found before them.
func TestFeedPublishes(t *testing.T) {
	f := newTestFeed()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string)
	var wg sync.WaitGroup
	wg.Go(func() {
		f.publish(ctx, func(list []upstream.Target, err error) {
			select {
			case told <- fmt.Sprint(len(list), " ", err):
			case <-ctx.Done():
			}
		})
	})
	// What was found comes with the error of a moment before, if it was found before there was contact.
	expect := func(want string, before ...string) {
		t.Helper()
		for got := <-told; got != want; got = <-told {
			if !slices.Contains(before, got) {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
	f.failed(errors.New("away"))
	expect("0 away")
	f.change(true, func(e *edits) { e.set("a", upstream.Target{}) })
	f.connected()
	expect("1 <nil>")
	f.change(false, func(e *edits) { e.set("b", upstream.Target{}) })
	f.failed(errors.New("away again"))
	expect("0 away again", "0 away", "1 <nil>", "2 <nil>")
	f.connected()
	expect("2 <nil>", "0 away again")
	f.beat()
	expect("2 <nil>", "0 away again")
	cancel()
	wg.Wait()
}

func BenchmarkFeed(b *testing.B) {
	const members, changes = 10_000, 10
	f := newTestFeed()
	f.change(true, func(e *edits) {
		for i := range members {
			e.set(fmt.Sprint(i), upstream.Target{Name: fmt.Sprint(i)})
		}
	})
	f.list()
	b.ReportAllocs()
	for i := range b.N {
		f.change(false, func(e *edits) {
			for j := range changes {
				k := fmt.Sprint((i*changes + j) % members)
				e.set(k, upstream.Target{Name: k, Weight: i})
			}
		})
		f.list()
	}
}
