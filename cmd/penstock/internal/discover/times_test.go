package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/internal/testnet"
)

// A dialler counts the connections that it makes.
type dialler struct {
	network    *testnet.Network
	made, open atomic.Int64
}

func (d *dialler) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.network.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.made.Add(1)
	d.open.Add(1)
	return &countedConn{Conn: c, open: &d.open}, nil
}

type countedConn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *countedConn) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// A source that is not watched any more has no connections.
func TestConnectionsEnd(t *testing.T) {
	for _, kind := range []string{"consul", "kubernetes", "etcd"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := testnet.NewNetwork()
				var d spec.Discover
				switch kind {
				case "consul":
					c := testfleet.NewMemoryConsul(t, network)
					c.Set("web", at(1))
					d = consulWeb(c)
				case "kubernetes":
					k := testfleet.NewMemoryKubernetes(t, network)
					k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
					d = shopWeb(k)
				case "etcd":
					server := testfleet.NewMemoryEtcd(t, network)
					if _, err := etcdClient(t, network, server.URL).Put(t.Context(), "/web/a", []byte("10.0.0.1:80"), 0); err != nil {
						t.Fatal(err)
					}
					d = inEtcd("/web/", server.URL)
				}
				dials := &dialler{network: network}
				sources := New(Options{dial: dials.DialContext})
				one, two := newWatched(t), newWatched(t)
				stop, stopLast := one.run(sources.Discoverer(d)), two.run(sources.Discoverer(d))
				one.wants("10.0.0.1:80")
				two.wants("10.0.0.1:80")
				stop()
				synctest.Wait()
				if dials.open.Load() == 0 {
					t.Error("no connection is left to the other one")
				}
				stopLast()
				synctest.Wait()
				if n := dials.open.Load(); n != 0 || dials.made.Load() == 0 {
					t.Errorf("%d connections are left of %d", n, dials.made.Load())
				}
			})
		})
	}
}

// TestRetryAfter: a server that says for how long it is not to be asked is not asked for so long, but no longer than a minute.
func TestRetryAfter(t *testing.T) {
	for _, kind := range []string{"consul", "kubernetes"} {
		for said, least := range map[string]time.Duration{"": 0, "40": 40 * time.Second, "3600": maxRetryAfter, "never": 0, "-7": 0} {
			t.Run(kind+" "+said, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					network := testnet.NewNetwork()
					s, d := registry(t, network, kind)
					w := watchFor(t, network, d)
					w.wants("10.0.0.1:80")
					asked := make(chan time.Time, 9)
					s.Fault(func(w http.ResponseWriter, r *http.Request) {
						if said != "" {
							w.Header().Set("Retry-After", said)
						}
						http.Error(w, "not now", http.StatusTooManyRequests)
						asked <- time.Now()
					})
					first := <-asked
					if took := (<-asked).Sub(first); took < least || took > least+time.Second {
						t.Errorf("asked again after %v, want %v", took, least)
					}
				})
			})
		}
	}
}

// A faulty is a stand-in for a registry.
type faulty interface {
	Fault(http.HandlerFunc)
	Requests() []*http.Request
}

// registry returns a registry with one member, and how it is watched.
func registry(t *testing.T, network *testnet.Network, kind string) (faulty, spec.Discover) {
	t.Helper()
	if kind == "consul" {
		c := testfleet.NewMemoryConsul(t, network)
		c.Set("web", at(1))
		return c, consulWeb(c)
	}
	k := testfleet.NewMemoryKubernetes(t, network)
	k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
	return k, shopWeb(k)
}

// watches returns the requests that are watches, and how many are not.
func watches(requests []*http.Request) (list []*http.Request, others int) {
	for _, r := range requests {
		if r.URL.Query().Get("watch") == "true" {
			list = append(list, r)
		} else {
			others++
		}
	}
	return list, others
}

// TestKubernetesOutage: the watch is resumed when the server was away for a moment, and the slices are listed when it was away for longer: its
// data may have been restored meanwhile.
func TestKubernetesOutage(t *testing.T) {
	for away, lists := range map[time.Duration]int{time.Second: 0, 2 * maxOutage: 1} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := testnet.NewNetwork()
				k := testfleet.NewMemoryKubernetes(t, network)
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.1")))
				w := watchFor(t, network, shopWeb(k))
				w.wants("10.0.0.1:80")
				time.Sleep(time.Second)
				k.Stop()
				w.fails("refused")
				before := len(k.Requests())
				k.Put("shop", "web-1", "web", slice(80, up("10.0.0.2")))
				time.Sleep(away)
				k.Start()
				w.wants("10.0.0.2:80")
				if _, n := watches(k.Requests()[before:]); n != lists {
					t.Errorf("%d lists, want %d", n, lists)
				}
			})
		})
	}
}

// TestKubernetesShortWatches: a server that ends each watch at once is asked less and less often.
func TestKubernetesShortWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s, d := registry(t, network, "kubernetes")
		watchFor(t, network, d).wants("10.0.0.1:80")
		before := len(s.Requests())
		s.Fault(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "application/json") })
		time.Sleep(5 * time.Minute)
		list, others := watches(s.Requests()[before:])
		if n := len(list); n < 60 || n > 300 || others > 0 { // one in 0.5 to 5 s, in the end
			t.Errorf("%d watches and %d lists", n, others)
		}
	})
}

// TestKubernetesErrorEvent: after an error that the server says in a watch, the slices are listed.
func TestKubernetesErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		s, d := registry(t, network, "kubernetes")
		w := watchFor(t, network, d)
		w.wants("10.0.0.1:80")
		time.Sleep(time.Second)
		before := len(s.Requests())
		s.Fault(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","code":500,"message":"the watch cache is being rebuilt"}}`)
		})
		w.fails("the watch cache is being rebuilt")
		time.Sleep(time.Minute)
		list, others := watches(s.Requests()[before:])
		if len(list) != 1 || others == 0 {
			t.Errorf("%d watches and %d lists", len(list), others)
		}
	})
}

// TestFeedTimes: a list is passed on at most every 100 ms, and again every 30 s while there is contact.
func TestFeedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(Options{LeftOut: func(spec.Discover, string) {}}, spec.Discover{})
		var lists, failures atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.publish(ctx, func(_ []upstream.Target, err error) {
			if err != nil {
				failures.Add(1)
			} else {
				lists.Add(1)
			}
		})
		told := func(what string, wantLists, wantFailures int64) {
			t.Helper()
			if synctest.Wait(); lists.Swap(0) != wantLists || failures.Swap(0) != wantFailures {
				t.Errorf("%s: not %d lists and %d failures", what, wantLists, wantFailures)
			}
		}
		f.change(true, func(e *edits) { e.set("a", upstream.Target{}) })
		f.connected()
		told("the first", 1, 0)
		for i := range 1000 {
			time.Sleep(time.Millisecond)
			f.change(false, func(e *edits) { e.set(strconv.Itoa(i), upstream.Target{}) })
		}
		time.Sleep(time.Second)
		if synctest.Wait(); lists.Load() < 5 || lists.Load() > 11 { // a list of 1,000 members takes 10 ms more
			t.Errorf("%d lists in a second of changes", lists.Load())
		}
		lists.Store(0)
		time.Sleep(10 * heartbeat)
		told("confirmed", 10, 0)
		f.failed(errors.New("away"))
		time.Sleep(10 * heartbeat)
		told("an outage", 0, 1)
		f.connected()
		time.Sleep(time.Second)
		told("contact again", 1, 0)
	})
}

// TestComplaintsOfAMinute: what is wrong is said ten times a minute.
func TestComplaintsOfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		c := complaints{tell: func(spec.Discover, string) { said++ }}
		for minute := range 3 {
			for range 600 {
				c.add(spec.Discover{}, "wrong")
				time.Sleep(time.Minute / 600)
			}
			if want := (minute + 1) * maxComplaints; said != want {
				t.Errorf("%d after %d minutes, want %d", said, minute+1, want)
			}
		}
	})
}
