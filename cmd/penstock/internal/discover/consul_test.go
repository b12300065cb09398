package discover

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testfleet"
	"github.com/penstock/penstock/internal/testnet"
)

func consulWeb(c *testfleet.Consul) spec.Discover {
	return spec.Discover{Registry: spec.Registry{Kind: "consul", Servers: c.URL}, Key: "web", Network: spec.TCP}
}

// at returns an instance at 10.0.0.n with checks, each ID and status.
func at(n int, checks ...string) testfleet.ConsulInstance {
	i := testfleet.ConsulInstance{ID: fmt.Sprintf("web-%d", n), Node: fmt.Sprintf("n%d", n), NodeAddress: "10.0.0.99", Address: fmt.Sprintf("10.0.0.%d", n), Port: 80}
	if len(checks) > 0 {
		i.Checks = map[string]string{}
	}
	for j := 0; j < len(checks); j += 2 {
		i.Checks[checks[j]] = checks[j+1]
	}
	return i
}

func TestConsulFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		c.Set("web", at(1), at(2))
		c.Set("api", at(9))
		w := watchFor(t, network, consulWeb(c))
		w.wants("10.0.0.1:80, 10.0.0.2:80")
		if got, want := w.seen().list[0].Metadata, `{"id":"web-1","node":"n1"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		c.Set("web", at(1), at(3))
		w.wants("10.0.0.1:80, 10.0.0.3:80")
		for i, r := range c.Requests() {
			q := r.URL.Query()
			if wait, err := time.ParseDuration(q.Get("wait")); (i == 0) == q.Has("index") || i > 0 && (err != nil || wait > consulWait || wait < consulWait*3/4) {
				t.Errorf("request %d: %s", i, r.URL)
			}
		}
		elsewhere, wrong := at(4), at(5)
		elsewhere.Meta = map[string]string{"penstock_check_port": "81", "penstock_check_address": "10.0.1.4", "penstock_quic_server_id": "0a0b"}
		wrong.Meta = map[string]string{"penstock_check_port": "http"}
		c.Set("web", elsewhere, wrong)
		w.wants("10.0.0.4:80")
		if m := w.seen().list[0]; m.CheckPort != 81 || m.CheckAddress.String() != "10.0.1.4" || m.QUICServerID != "\x0a\x0b" {
			t.Errorf("%+v", m)
		}
		if said := strings.Join(w.seen().wrong, "; "); !strings.Contains(said, `check-port "http" is not a number from 1 to 65535`) {
			t.Errorf("said %q", said)
		}
		c.Set("web")
		w.wants("") // what becomes of the members is the group's decision: see lookups.vanish
	})
}

// TestConsulIndex: an index that goes backwards, and one of 0, do as the documentation of blocking queries says.
func TestConsulIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		c.Set("web", at(1))
		c.SetIndex(1000)
		w := watchFor(t, network, consulWeb(c))
		w.wants("10.0.0.1:80")
		c.Set("web", at(2))
		w.wants("10.0.0.2:80")
		c.SetIndex(5) // as after a restore
		c.Set("web", at(3))
		w.wants("10.0.0.3:80")
		c.SetIndex(0)
		c.Set("web", at(4))
		w.wants("10.0.0.4:80")
		for _, c := range []struct {
			header string
			before uint64
			want   uint64
			bad    bool
		}{{"7", 0, 7, false}, {"7", 7, 7, false}, {"7", 8, 0, false}, {"0", 0, 1, false}, {"", 0, 0, true}, {"x", 0, 0, true}, {"-1", 0, 0, true}} {
			got, err := consul.indexOf(http.Header{"X-Consul-Index": {c.header}}, c.before)
			if got != c.want || (err != nil) != c.bad {
				t.Errorf("%q after %d: %d, %v", c.header, c.before, got, err)
			}
		}
	})
}

func TestConsulStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		weighted := at(3, "service:web", "warning")
		weighted.Passing, weighted.Warning = 10, 3
		none := at(4, "service:web", "warning")
		none.Warning = -1
		byNode := at(8)
		byNode.Address, byNode.NodeAddress = "", "10.0.0.8"
		zoned := at(9)
		zoned.Meta, zoned.NodeMeta = map[string]string{"availability_zone": "b", "v": "2"}, map[string]string{"zone": "a"}
		name, portless := at(10), at(11)
		name.Address, portless.Port = "web.example", 0
		c.Set("web", at(1), at(2, "a", "passing", "b", "critical"), weighted, none,
			at(5, "_node_maintenance", "critical"), at(6, "_service_maintenance:web-6", "critical", "b", "critical"), at(7, "a", "warning", "b", "critical"),
			byNode, zoned, name, portless)
		w := watchFor(t, network, consulWeb(c))
		w.wants("10.0.0.1:80, 10.0.0.3:80*3, 10.0.0.4:80 draining, 10.0.0.5:80 draining, 10.0.0.6:80 draining, 10.0.0.8:80, 10.0.0.9:80@b")
		w.mu.Lock()
		if got, want := w.list[6].Metadata, `{"id":"web-9","meta":{"availability_zone":"b","v":"2"},"node":"n9"}`; got != want {
			t.Errorf("metadata %s, want %s", got, want)
		}
		if len(w.wrong) != 2 {
			t.Errorf("said %q", w.wrong)
		}
		w.mu.Unlock()
		// Weights above 256 are scaled, all by the same factor.
		big, small := at(1), at(2)
		big.Passing, small.Passing = 65535, 512
		twice := at(1, "_node_maintenance", "critical") // another instance at the same address
		twice.ID = "again"
		c.Set("web", big, small, at(3), twice)
		w.wants("10.0.0.1:80*256, 10.0.0.2:80*2, 10.0.0.3:80")
	})
}

func TestConsulAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		one, two, far := at(1), at(2), at(3)
		one.Tags, two.Tags = []string{"v2", "blue"}, []string{"v2"}
		far.Tags, far.Datacenter = []string{"v2", "blue"}, "dc2"
		c.Set("web", one, two, far)
		d := consulWeb(c)
		d.Tags = "blue,v2"
		watchFor(t, network, d).wants("10.0.0.1:80")
		d.Datacenter = "dc2"
		watchFor(t, network, d).wants("10.0.0.3:80")
		d.Datacenter = "nowhere"
		watchFor(t, network, d).fails("No path to datacenter")
	})
}

// TestConsulElsewhere: a namespace, an admin partition and a peer are asked for by the parameters that Consul documents.
func TestConsulElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		own, space, part, both, far := at(1), at(2), at(3), at(4), at(5)
		space.Namespace, part.Partition, far.Peer = "team-a", "east", "cluster-2"
		both.Namespace, both.Partition = "team-a", "east"
		c.Set("web", own, space, part, both, far)
		for want, d := range map[string]spec.Discover{
			"10.0.0.1:80": {}, "10.0.0.2:80": {Namespace: "team-a"}, "10.0.0.3:80": {Partition: "east"}, "10.0.0.4:80": {Namespace: "team-a", Partition: "east"}, "10.0.0.5:80": {Peer: "cluster-2"},
		} {
			d.Registry, d.Key, d.Network = consulWeb(c).Registry, "web", spec.TCP
			watchFor(t, network, d).wants(want)
		}
	})
}

// TestConsulStale: a server that has lost its leader may answer for some time, then the leader is asked.
func TestConsulStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		c.Set("web", at(1))
		c.SetLeader(true, time.Second)
		d := consulWeb(c)
		d.Stale = true
		w := watchFor(t, network, d)
		w.wants("10.0.0.1:80")
		c.SetLeader(true, 2*maxStaleness)
		c.Set("web", at(2))
		w.wants("10.0.0.2:80")
		requests := c.Requests()
		if last := requests[len(requests)-1].URL.Query(); last.Has("stale") && len(requests) < 4 {
			t.Errorf("the leader was not asked: %s", requests[len(requests)-1].URL)
		}
		c.SetLeader(false, 2*maxStaleness)
		c.Set("web", at(3))
		w.fails("No cluster leader")
		w.keeps("10.0.0.2:80")
		c.SetLeader(true, 0)
		w.wants("10.0.0.3:80")
		c.Set("web", at(4))
		w.wants("10.0.0.4:80")
		requests = c.Requests()
		if last := requests[len(requests)-1]; !last.URL.Query().Has("stale") {
			t.Errorf("the leader is asked although the servers have heard from it: %s", last.URL)
		}
	})
}

func TestConsulTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		c := testfleet.NewMemoryConsul(t, network)
		c.Set("web", at(1))
		c.SetToken("first", false)
		d := consulWeb(c)
		d.Registry.TokenFile = filepath.Join(t.TempDir(), "token")
		write(t, d.Registry.TokenFile, "first")
		w := watchFor(t, network, d)
		w.wants("10.0.0.1:80")
		c.SetToken("second", false)
		w.fails("ACL not found")
		write(t, d.Registry.TokenFile, "second")
		w.wants("10.0.0.1:80")
		c.SetToken("third", true) // the old token now sees nothing, which is no empty service
		w.fails("service:read")
		w.keeps("10.0.0.1:80")
		write(t, d.Registry.TokenFile, "third")
		c.Set("web", at(2))
		w.wants("10.0.0.2:80")
	})
}

func TestConsulSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := testnet.NewNetwork()
		one, two := testfleet.NewMemoryConsul(t, network), testfleet.NewMemoryConsul(t, network)
		one.Set("web", at(1))
		two.Set("web", at(1))
		d := consulWeb(one)
		d.Registry.Servers = one.URL + " " + two.URL
		w := watchFor(t, network, d)
		w.wants("10.0.0.1:80")
		for _, c := range [][2]*testfleet.Consul{{one, two}, {two, one}} {
			c[0].Stop()
			c[1].Set("web", at(2))
			w.wants("10.0.0.2:80")
			c[0].Start()
			c[0].Set("web", at(1))
			c[1].Set("web", at(1))
			w.wants("10.0.0.1:80")
		}
	})
}

func TestConsulFaults(t *testing.T) {
	page := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Consul-Index", "7")
			fmt.Fprint(w, body)
		}
	}
	for _, c := range []struct {
		name  string
		fault http.HandlerFunc
		err   string
	}{
		{"not JSON", page("\x00"), "invalid character"},
		{"truncated", page(`[{"Node":{"Node":"n"}},{"Node`), "unexpected EOF"},
		{"an object", page(`{"error":"x"}`), "no JSON array"},
		{"wrong types", page(`[{"Service":{"Port":"80"}}]`), "cannot unmarshal"},
		{"a proxy's page", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, "there may be a proxy"},
		{"no index", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "[]")
		}, "is this Consul?"},
		{"5 MB", page("[" + strings.Repeat(`{"Node":{"Node":"n"}},`, 5<<20/22)), "more than 65536 instances"},
		{"an instance of 5 MB", page(`[{"Node":{"Node":"` + strings.Repeat("n", 5<<20)), "too large"},
		{"429", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "Your IP is issuing too many concurrent connections", http.StatusTooManyRequests)
		}, "429"},
		{"500", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "No cluster leader", 500) }, "No cluster leader"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "redirects are not followed"},
		{"closed", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := testnet.NewNetwork()
				s := testfleet.NewMemoryConsul(t, network)
				s.Set("web", at(1))
				w := watchFor(t, network, consulWeb(s))
				w.wants("10.0.0.1:80")
				time.Sleep(time.Second) // until a query waits for changes
				before := len(s.Requests())
				s.Fault(c.fault)
				errors := 3
				if strings.Contains(c.name, "5 MB") { // which takes seconds with the race detector
					errors = 1
				}
				w.until("enough errors, one with "+c.err, func() bool { return w.errors >= errors && w.err != nil && strings.Contains(w.err.Error(), c.err) })
				w.keeps("10.0.0.1:80")
				w.mu.Lock()
				if n := len(s.Requests()) - before; n > 2*w.errors+6 {
					t.Errorf("%d requests until error %d", n, w.errors)
				}
				w.mu.Unlock()
				withIndex := 0
				for _, r := range s.Requests()[before:] {
					if r.URL.Query().Has("index") {
						withIndex++
					}
				}
				if withIndex > 1 { // package http repeats the one whose connection ended
					t.Errorf("%d queries wait for a change after an error", withIndex)
				}
				s.Fault(nil)
				s.Set("web", at(2))
				w.wants("10.0.0.2:80")
			})
		})
	}
}

// TestConsulPace: a server that does not block is asked once a second at most, after a burst.
func TestConsulPace(t *testing.T) {
	var p consulPace
	fast := 0
	for range 3 * consulBurst {
		if p.next() < time.Second {
			fast++
		}
	}
	if fast < consulBurst || fast > consulBurst+5 {
		t.Errorf("%d queries without a pause, want %d", fast, consulBurst)
	}
}
