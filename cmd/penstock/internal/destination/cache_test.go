package destination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A resolver in memory: names take a while, and are counted.
type resolver struct {
	mu      sync.Mutex
	asked   map[string]int
	most    int // at the same time
	running int
	takes   func(name string) time.Duration
	answers func(name string) ([]netip.Addr, time.Duration, error)
}

func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	r.mu.Lock()
	if r.asked == nil {
		r.asked = map[string]int{}
	}
	r.asked[name]++
	r.running++
	r.most = max(r.most, r.running)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	}()
	takes := 10 * time.Millisecond
	if r.takes != nil {
		takes = r.takes(name)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if r.answers != nil {
		return r.answers(name)
	}
	return addrs("93.184.216.34"), time.Minute, nil
}

func addrs(list ...string) (all []netip.Addr) {
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// limits has the ages of the defaults.
func limits(l spec.NameLimits) spec.NameLimits {
	l.MinAge, l.MaxAge, l.Timeout = DefaultLimits.MinAge, DefaultLimits.MaxAge, DefaultLimits.Timeout
	return l
}

// sizes returns how much the cache has of everything.
func (c *Cache) sizes() (n Counts, names, sources int) {
	n = c.Counts()
	c.mu.Lock()
	defer c.mu.Unlock()
	return n, len(c.names), len(c.bySource)
}

// A flow counts how often it was resumed.
type flow struct {
	Wait
	resumed atomic.Int32
}

func (f *flow) Resume() { f.resumed.Add(1) }

var here = netip.MustParseAddr("192.0.2.1")

func TestOneLookupForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r resolver
		c := NewCache(r.lookup, spec.NameLimits{}, nil)
		defer c.Close()
		flows := make([]flow, 100)
		for i := range flows {
			if _, s := c.Ask("a.test", here, &flows[i].Wait, &flows[i]); s != Pending {
				t.Fatal(s)
			}
		}
		for i := range 50 { // those who leave cancel nothing of others
			c.Leave(&flows[i].Wait)
			c.Leave(&flows[i].Wait)
		}
		if n := c.Counts(); n.Flows != 50 || n.Lookups != 1 {
			t.Errorf("%+v", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range flows {
			a, ok := c.Answer(&flows[i].Wait)
			if left := i < 50; ok == left || flows[i].resumed.Load() == 1 == left || ok && (a.Err != nil || len(a.Addrs) != 1) {
				t.Fatalf("flow %d: %v %v, resumed %d times", i, a, ok, flows[i].resumed.Load())
			}
		}
		if a, s := c.Ask("a.test", here, nil, nil); s != Known || len(a.Addrs) != 1 || r.asked["a.test"] != 1 {
			t.Errorf("%v %v, asked %d times", a, s, r.asked["a.test"])
		}
		if n := c.Counts(); n.Found != 1 || n.Hits != 1 || n.Waits != 100 || n.Flows != 0 || n.Names != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// Answers hold as long as they say, within bounds, and those without an address for a short time.
func TestHowLongAnswersHold(t *testing.T) {
	for name, c := range map[string]struct {
		ttl, holds time.Duration
		err        error
	}{
		"a minute": {ttl: time.Minute, holds: time.Minute}, "zero": {holds: time.Second}, "a day": {ttl: 24 * time.Hour, holds: time.Hour}, "hosts": {ttl: 1<<63 - 1, holds: defaultTTL},
		"gone": {err: &net.DNSError{IsNotFound: true}, holds: notFoundTTL}, "failure": {err: errors.New("?"), holds: failureTTL}, "late": {err: context.DeadlineExceeded, holds: failureTTL},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := resolver{answers: func(string) ([]netip.Addr, time.Duration, error) {
				if c.err != nil {
					return nil, 0, c.err
				}
				return addrs("93.184.216.34"), c.ttl, nil
			}}
			cache := NewCache(r.lookup, spec.NameLimits{}, nil)
			defer cache.Close()
			cache.Ask("a.test", here, nil, nil)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			time.Sleep(c.holds - time.Millisecond)
			if a, s := cache.Ask("a.test", here, nil, nil); s != Known || (a.Err != nil) != (c.err != nil) {
				t.Errorf("%s: %v %v before the end", name, a, s)
			}
			time.Sleep(time.Millisecond)
			if _, s := cache.Ask("a.test", here, nil, nil); s != Pending {
				t.Errorf("%s: %v at the end", name, s)
			}
			synctest.Wait()
		})
	}
}

// An answer without addresses is an answer.
func TestNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resolver{answers: func(string) ([]netip.Addr, time.Duration, error) { return nil, time.Hour, nil }}
		c := NewCache(r.lookup, spec.NameLimits{}, nil)
		defer c.Close()
		var f flow
		c.Ask("a.test", here, &f.Wait, &f)
		time.Sleep(time.Second)
		if a, ok := c.Answer(&f.Wait); !ok || a.Err == nil || c.Counts().NotFound != 1 {
			t.Errorf("%v %v", a, ok)
		}
	})
}

// A flood of random names from one source takes a bounded part of everything, and others go on at once.
func TestFloodOfOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := limits(spec.NameLimits{Names: 100, Failures: 50, Lookups: 8, Queue: 100, PerSource: 4})
		r := resolver{answers: func(name string) ([]netip.Addr, time.Duration, error) {
			if name == "good.test" {
				return addrs("93.184.216.34"), time.Hour, nil
			}
			return nil, 0, &net.DNSError{IsNotFound: true}
		}, takes: func(name string) time.Duration {
			if name == "good.test" {
				return time.Millisecond
			}
			return 3 * time.Second // a resolver that is slow with names that do not exist
		}}
		c := NewCache(r.lookup, bounds, nil)
		defer c.Close()
		limited := 0
		for i := range 10000 {
			if _, s := c.Ask(fmt.Sprintf("n%d.test", i), netip.MustParseAddr("2001:db8::1").Next(), nil, nil); s == Limited {
				limited++
			}
		}
		if n, names, _ := c.sizes(); limited != 10000-4 || n.Limited != int64(limited) || n.Lookups != 4 || n.Queued != 0 || names != 4 {
			t.Errorf("%d limited, %+v, %d names", limited, n, names)
		}
		var f flow
		c.Ask("good.test", here, &f.Wait, &f)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if a, ok := c.Answer(&f.Wait); !ok || len(a.Addrs) != 1 {
			t.Errorf("somebody else waits for the flood: %v %v", a, ok)
		}
	})
}

// Behind a resolver that hangs, those that wait for a lookup are who still waits, not names whose flows have given up. Flows that ask again keep
// their place.
func TestQueuedNameIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resolver{takes: func(string) time.Duration { return 5 * time.Second }, answers: func(string) ([]netip.Addr, time.Duration, error) {
			return addrs("93.184.216.34"), time.Second, nil
		}}
		c := NewCache(r.lookup, limits(spec.NameLimits{Names: 9, Failures: 9, Lookups: 1, Queue: 3, PerSource: 5}), nil)
		defer c.Close()
		c.Ask("known.test", here, nil, nil)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		names := []string{"first.test", "one.test", "two.test", "known.test"} // the last one has an answer that holds no more
		flows := make([]flow, 2*len(names))
		for i := range flows {
			if _, s := c.Ask(names[i%len(names)], here, &flows[i].Wait, &flows[i]); s != Pending {
				t.Fatal(i, s)
			}
		}
		if _, s := c.Ask("one.test", here, &flows[1].Wait, &flows[1]); s != Pending || c.Counts().Waits != int64(len(flows)) {
			t.Errorf("asked again: %v, %+v", s, c.Counts())
		}
		var more flow
		if _, s := c.Ask("more.test", here, &more.Wait, &more); s != Limited {
			t.Errorf("the queue is full: %v", s)
		}
		for i := range flows {
			if i != 5 { // the second one that waits for one.test
				c.Leave(&flows[i].Wait)
			}
		}
		if n, known, sources := c.sizes(); n.Lookups != 1 || n.Queued != 1 || n.Flows != 1 || known != 3 || sources != 1 {
			t.Errorf("%+v, %d names, %d sources", n, known, sources)
		}
		if _, s := c.Ask("more.test", here, &more.Wait, &more); s != Pending {
			t.Errorf("there is room: %v", s)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if flows[5].resumed.Load() != 1 || more.resumed.Load() != 1 || r.asked["two.test"] != 0 || r.asked["known.test"] != 1 {
			t.Errorf("resumed %d and %d times, asked %v", flows[5].resumed.Load(), more.resumed.Load(), r.asked)
		}
		if n, _, sources := c.sizes(); n.Lookups+n.Queued+n.Flows != 0 || sources != 0 {
			t.Errorf("%+v, %d sources", n, sources)
		}
	})
}

// A flood from everywhere is bounded, too, in memory and in queries, and pushes no good name out.
func TestFloodFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := limits(spec.NameLimits{Names: 20, Failures: 10, Lookups: 8, Queue: 16, PerSource: 4})
		r := resolver{answers: func(name string) ([]netip.Addr, time.Duration, error) {
			if name == "good.test" {
				return addrs("93.184.216.34"), time.Hour, nil
			}
			return nil, 0, &net.DNSError{IsNotFound: true}
		}}
		c := NewCache(r.lookup, bounds, nil)
		defer c.Close()
		c.Ask("good.test", here, nil, nil)
		time.Sleep(time.Second)
		source := netip.MustParseAddr("10.0.0.0")
		for i := range 5000 {
			source = source.Next()
			c.Ask(fmt.Sprintf("n%d.test", i), source, nil, nil)
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
			n, names, sources := c.sizes()
			if n.Lookups > 8 || n.Queued > 16 || n.Names > 20 || n.Failures > 10 || names > 8+16+20+10 || sources > 8+16 {
				t.Fatalf("%+v, %d names, %d sources", n, names, sources)
			}
		}
		if _, s := c.Ask("good.test", here, nil, nil); s != Known {
			t.Errorf("the flood has pushed a good name out")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n, _, sources := c.sizes(); r.most > 8 || n.Evicted == 0 || sources != 0 {
			t.Errorf("%d lookups at the same time, %+v", r.most, n)
		}
	})
}

// Whatever flows do when, each that waits is resumed once, and nothing is left.
func TestRandomFlows(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := resolver{
			takes: func(name string) time.Duration { return time.Duration(len(name)) * 300 * time.Millisecond },
			answers: func(name string) ([]netip.Addr, time.Duration, error) {
				if len(name)%3 == 0 {
					return nil, 0, errors.New("?")
				}
				return addrs("93.184.216.34"), time.Duration(len(name)) * time.Second, nil
			},
		}
		c := NewCache(r.lookup, limits(spec.NameLimits{Names: 3, Failures: 2, Lookups: 2, Queue: 3, PerSource: 3}), nil)
		defer c.Close()
		flows := make([]flow, 2000)
		left := map[int]bool{}
		waits := map[int]bool{}
		for i := range flows {
			name := "nnnnnnnnnn"[:1+random.IntN(10)]
			source := netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(3))})
			if _, s := c.Ask(name, source, &flows[i].Wait, &flows[i]); s == Pending {
				waits[i] = true
			}
			if j := random.IntN(i + 1); random.IntN(3) == 0 && flows[j].resumed.Load() == 0 {
				c.Leave(&flows[j].Wait)
				left[j] = true
			}
			time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range flows {
			if want := waits[i] && !left[i]; (flows[i].resumed.Load() == 1) != want {
				t.Fatalf("flow %d: waits %v, left %v, resumed %d times", i, waits[i], left[i], flows[i].resumed.Load())
			}
		}
		if n, names, sources := c.sizes(); n.Flows != 0 || n.Lookups != 0 || n.Queued != 0 || sources != 0 || names != int(n.Names+n.Failures) {
			t.Errorf("%+v, %d names, %d sources", n, names, sources)
		}
	})
}

// Close ends lookups under way.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resolver{takes: func(string) time.Duration { return time.Hour }}
		c := NewCache(r.lookup, spec.NameLimits{}, nil)
		var f flow
		c.Ask("a.test", here, &f.Wait, &f)
		c.Close()
		if _, s := c.Ask("b.test", here, nil, nil); s != Limited || f.resumed.Load() != 0 {
			t.Error(s)
		}
		c.Leave(&f.Wait)
	})
}

// Other limits hold at once: what is kept beyond them is dropped, and names that wait are looked up. What has begun goes on.
func TestSetLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := resolver{takes: func(name string) time.Duration {
			if name == "slow.test" {
				return 5 * time.Second
			}
			return time.Second
		}, answers: func(name string) ([]netip.Addr, time.Duration, error) {
			if name[0] == 'x' {
				return nil, 0, &net.DNSError{IsNotFound: true}
			}
			return addrs("93.184.216.34"), 24 * time.Hour, nil
		}}
		c := NewCache(r.lookup, spec.NameLimits{}, nil)
		defer c.Close()
		for i := range 20 {
			c.Ask(fmt.Sprintf("a%d.test", i), here, nil, nil)
			if i < 12 {
				c.Ask(fmt.Sprintf("x%d.test", i), here, nil, nil)
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n, names, _ := c.sizes(); n.Names != 20 || n.Failures != 12 || names != 32 {
			t.Fatalf("%+v", n)
		}
		less := limits(spec.NameLimits{Names: 5, Failures: 3, Lookups: 1, Queue: 10, PerSource: 10})
		c.SetLimits(less)
		if n, names, _ := c.sizes(); n.Names != 5 || n.Failures != 3 || names != 8 || n.Evicted != 15+9 {
			t.Errorf("%+v, %d names", n, names)
		}
		for i := range 5 {
			c.Ask(fmt.Sprintf("b%d.test", i), here, nil, nil)
		}
		if n := c.Counts(); n.Lookups != 1 || n.Queued != 4 {
			t.Errorf("%+v", n)
		}
		less.Lookups, less.MaxAge = 3, time.Minute
		c.SetLimits(less)
		if n := c.Counts(); n.Lookups != 3 || n.Queued != 2 {
			t.Errorf("%+v", n)
		}
		less.Lookups = 1
		c.SetLimits(less)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := c.Counts(); n.Lookups != 1 || n.Queued != 1 {
			t.Errorf("three have ended, of which one may follow: %+v", n)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if _, s := c.Ask("b1.test", here, nil, nil); s != Known {
			t.Errorf("before max-age: %v", s)
		}
		time.Sleep(2 * time.Second)
		if _, s := c.Ask("b1.test", here, nil, nil); s != Pending {
			t.Errorf("after max-age: %v", s)
		}
		less.Timeout = 2 * time.Second
		c.SetLimits(less)
		time.Sleep(10 * time.Second)
		c.Ask("slow.test", here, nil, nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := c.Counts(); n.Failed != 1 || n.Lookups != 0 {
			t.Errorf("timeout: %+v", n)
		}
	})
}
