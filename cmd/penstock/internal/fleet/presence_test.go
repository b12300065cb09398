package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// A relay reports, says what changes, and is gone when its lease is.
func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var flows atomic.Int64
		var refused atomic.Bool
		r := w.relay("one", func(c *PresenceConfig) {
			c.Interval = time.Hour
			c.Report = func() Report {
				r := Report{State: "ready", Flows: flows.Load()}
				if refused.Load() {
					r.Refused = &Refused{Version: 7, Error: "no such group"}
				}
				return r
			}
		})
		w.until("it reports", func() bool { n := w.nodes(); return len(n) == 1 && n[0].Node == "one" && n[0].Healthy() })
		w.until("it has counted that", func() bool { return r.Status().Reports > 0 }) // it does when etcd has answered
		if r := w.nodes()[0]; r.Zone != "a" || r.At.IsZero() {
			t.Errorf("%+v", r)
		}
		written := r.Status().Reports
		flows.Store(5) // a number alone waits for the interval
		r.Changed()
		refused.Store(true)
		r.Changed()
		w.until("it reports the refusal", func() bool { n := w.nodes()[0]; return n.Refused != nil && n.Flows == 5 && !n.Healthy() })
		w.until("it has counted that, too", func() bool { return r.Status().Reports > written })
		if n := r.Status().Reports; n != written+1 {
			t.Errorf("%d reports, was %d", n, written)
		}
		r.stop()
		w.until("it is gone", func() bool { return len(w.nodes()) == 0 })
		second := w.relay("one", nil)
		w.until("it is back", func() bool { return second.Status().Present })
		lease := <-second.lease
		second.stop()
		second.Leave(t.Context(), lease)
		if n := w.nodes(); len(n) != 0 {
			t.Errorf("it has left, and is there: %+v", n)
		}
	})
}

// The next process of a relay goes on with its lease.
func TestNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.relay("one", func(c *PresenceConfig) { c.TTL = 2 * patience })
		w.until("it is present", func() bool { return first.Status().Present })
		lease := <-first.lease
		first.stop()
		second := w.relay("one", func(c *PresenceConfig) {
			c.Lease, c.TTL = lease, 2*patience
			c.Report = func() Report { return Report{State: "ready", Penstock: "next"} }
		})
		w.until("the next one reports", func() bool { n := w.nodes(); return len(n) == 1 && n[0].Penstock == "next" })
		if n := len(second.lease); n != 0 {
			t.Errorf("it took %d leases of its own", n)
		}
	})
}

// Of two relays with one id the second is told, and takes the place of the first one when that is gone.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.relay("one", nil)
		w.until("the first one is present", func() bool { return first.Status().Present })
		told := make(chan string, 10)
		second := w.relay("one", func(c *PresenceConfig) {
			c.TTL = 3 * time.Second
			c.Report = func() Report { return Report{State: "ready", Host: Host{Name: "elsewhere"}} }
			c.Tell = func(level slog.Level, message string, _ error) {
				if level == slog.LevelError {
					told <- message
				}
			}
		})
		select {
		case message := <-told:
			if !strings.Contains(message, "the same id one") {
				t.Errorf("told: %s", message)
			}
		case <-time.After(patience):
			t.Fatal("the second one was not told")
		}
		w.until("an operator sees both", func() bool {
			n := w.nodes()
			return len(n) == 1 && n[0].Conflicts == 1 && n[0].Host.Name == "host-of-one"
		})
		if s := second.Status(); s.Present || !strings.Contains(s.Conflict, "host-of-one") {
			t.Errorf("%+v", s)
		}
		first.stop()
		for range len(first.lease) { // its end is what TestPresence waits for
			w.client.Revoke(t.Context(), <-first.lease)
		}
		w.until("the second one takes the place", func() bool { return second.Status().Present && second.Status().Conflict == "" })
		if n := w.nodes()[0]; n.Host.Name != "elsewhere" {
			t.Errorf("%+v", n)
		}
	})
}

// etcd goes away, and comes back with or without its data.
func TestPresenceWithoutEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var lost, again atomic.Int64
		r := w.relay("one", func(c *PresenceConfig) {
			c.Tell = func(level slog.Level, message string, _ error) {
				if strings.HasPrefix(message, "no contact") {
					lost.Add(1)
				} else if strings.HasPrefix(message, "contact") {
					again.Add(1)
				}
			}
		})
		w.until("it is present", func() bool { return r.Status().Present })
		w.server.Kill()
		w.until("it notices", func() bool { return lost.Load() > 0 && !r.Status().Present })
		w.server.Restart()
		w.until("it is back", func() bool { return again.Load() > 0 && r.Status().Present })
		w.server.RestartEmpty()
		w.until("it is there in an empty etcd", func() bool { n := w.nodes(); return len(n) == 1 && n[0].Healthy() })
	})
}

// Orders are carried out once, and answered; a relay that does not answer is named.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var carried atomic.Int64
		carry := func(c *PresenceConfig) {
			c.Carry = func(_ context.Context, o Order) Answer {
				carried.Add(1)
				return Answer{State: "done", Changes: len(o.Member)}
			}
		}
		one, two := w.relay("one", carry), w.relay("two", carry)
		w.until("both are present", func() bool { return one.Status().Present && two.Status().Present })
		op := w.operator()
		answers := map[string]Answer{}
		ask := func(order Order, timeout time.Duration, nodes ...string) []string {
			t.Helper()
			clear(answers)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			silent, err := op.Ask(ctx, nodes, order, func(a Answer) { answers[a.Node] = a })
			if err != nil {
				t.Fatal(err)
			}
			return silent
		}
		if silent := ask(Order{Kind: OrderFlows, Member: "abc"}, patience, "one", "two"); len(silent) != 0 || len(answers) != 2 || answers["two"].Changes != 3 {
			t.Errorf("silent %v, %+v", silent, answers)
		}
		if n := carried.Load(); n != 2 {
			t.Errorf("carried out %d times", n)
		}
		if ask(Order{Kind: "dance"}, patience, "one"); answers["one"].State != "refused" || !strings.Contains(answers["one"].Error, "dance") {
			t.Errorf("%+v", answers)
		}
		if silent := ask(Order{Kind: OrderReload}, 300*time.Millisecond, "nobody"); len(silent) != 1 || silent[0] != "nobody" {
			t.Errorf("silent %v", silent)
		}
		w.until("orders and answers are gone", func() bool {
			a, _, err := w.client.Prefix(t.Context(), testKey+"/answers/")
			b, _, err2 := w.client.Prefix(t.Context(), ordersPrefix(testKey))
			return err == nil && err2 == nil && len(a)+len(b) == 0
		})
		// What another process of the relay has begun is not begun again.
		before := carried.Load()
		lease, err := w.client.Grant(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		id := newID()
		if _, err := w.client.Do(t.Context(), etcd.Txn{Then: []etcd.Op{
			etcd.Put(answerKey(testKey, id, "one"), []byte(`{"state":"begun"}`), lease),
			etcd.Put(nodeOrdersPrefix(testKey, "one")+id, []byte(`{"kind":"reload"}`), lease),
			etcd.Put(nodeOrdersPrefix(testKey, "one")+newID(), []byte(`{"kind":"reload"}`), 0), // has no lease: void
		}}); err != nil {
			t.Fatal(err)
		}
		if silent := ask(Order{Kind: OrderReload}, patience, "one"); len(silent) != 0 || carried.Load() != before+1 {
			t.Errorf("silent %v, carried out %d times", silent, carried.Load()-before)
		}
	})
}

// An order to drain stays until it is taken back, also for a process that comes later.
func TestDrainOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		drains := make(chan string, 100)
		note := func(c *PresenceConfig) {
			c.Drain = func(o *DrainOrder) {
				if o == nil {
					drains <- "serve"
				} else {
					drains <- o.By + " " + o.Why
				}
			}
		}
		next := func(want string) {
			t.Helper()
			select {
			case got := <-drains:
				if got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			case <-time.After(patience):
				t.Fatalf("nothing; want %q", want)
			}
		}
		op := w.operator()
		r := w.relay("one", note)
		next("serve")
		for range 2 { // the second time it is no news
			if _, err := op.SetDrain(t.Context(), []string{"one"}, true, "new disk", nil); err != nil {
				t.Fatal(err)
			}
		}
		next("test new disk")
		if n := w.nodes()[0]; n.Drain == nil || n.Drain.Why != "new disk" {
			t.Errorf("%+v", n)
		}
		r.stop()
		r.Leave(t.Context(), <-r.lease)
		w.relay("one", note)
		next("test new disk")
		if changed, err := op.SetDrain(t.Context(), []string{"one", "two"}, false, "", nil); err != nil || len(changed) != 1 {
			t.Errorf("%v, %v", changed, err)
		}
		next("serve")
		entries, err := ReadLog(t.Context(), w.client, testKey, 10)
		if err != nil || len(entries) != 2 || entries[0].What != "undrain" || entries[1].Text != "new disk" || entries[1].By != "test" {
			t.Errorf("%+v, %v", entries, err)
		}
	})
}

// A relay that has much to report keeps its lease alive: reports do not, and used to put that off for ever, so
// that a relay whose members change every second, or one that a trial watches, was gone every 15 seconds.
func TestReportsDoNotPutOffKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var kept atomic.Int64
		front := w.front(func(rw http.ResponseWriter, r *http.Request, etcd http.Handler) {
			if r.URL.Path == "/v3/lease/keepalive" {
				kept.Add(1)
			}
			etcd.ServeHTTP(rw, r)
		})
		c := w.openWith(etcd.Config{Remote: remote.Config{Servers: []string{front}}})
		r := w.relay("one", func(cfg *PresenceConfig) { cfg.Client, cfg.TTL, cfg.Interval = c, 6*time.Second, 50*time.Millisecond })
		w.until("it keeps its lease alive twice", func() bool { return kept.Load() >= 2 })
		if n := len(r.lease); n != 1 {
			t.Errorf("it had %d leases, and %d reports", n, r.Status().Reports)
		}
	})
}

// A relay that may keep its lease alive, but not report, says so once, and tries again.
func TestReportsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.SetLargest(4096)
		var large atomic.Bool
		var told atomic.Int64
		r := w.relay("one", func(c *PresenceConfig) {
			c.Report = func() Report {
				r := Report{State: "ready", Groups: map[string]Group{}}
				if large.Load() {
					for i := range 100 {
						r.Groups[fmt.Sprintf("%050d", i)] = Group{Up: 1, All: 1}
					}
				}
				return r
			}
			c.Tell = func(level slog.Level, _ string, _ error) {
				if level == slog.LevelWarn {
					told.Add(1)
				}
			}
		})
		w.until("it is present", func() bool { return r.Status().Present })
		large.Store(true)
		r.Changed()
		w.until("it has tried several times", func() bool { return r.Status().Failures >= 5 })
		if s := r.Status(); s.Err == nil || told.Load() != 1 {
			t.Errorf("told %d times, %+v", told.Load(), s)
		}
		large.Store(false)
		w.until("it reports", func() bool { return r.Status().Err == nil })
	})
}

// A relay that is started again after it was killed waits for the lease of the process before, and does not call
// that a conflict.
func TestStartAfterKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.relay("one", nil)
		w.until("the first one is present", func() bool { return first.Status().Present })
		first.stop() // its lease goes on
		told := make(chan string, 10)
		second := w.relay("one", func(c *PresenceConfig) {
			c.Tell = func(level slog.Level, message string, _ error) { told <- fmt.Sprint(level, " ", message) }
		})
		w.until("the second one is present", func() bool { return second.Status().Present })
		if m := <-told; !strings.HasPrefix(m, "INFO not yet in the fleet: there is a report with this id from host-of-one") {
			t.Error(m)
		}
	})
}
