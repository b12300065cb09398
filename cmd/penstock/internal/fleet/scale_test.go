package fleet

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
)

// go test ./internal/fleet -run TestScale -v -relays 1000 measures what a fleet costs etcd.
var (
	scaleRelays  = flag.Int("relays", 0, "relays of TestScale; 0: it is skipped")
	scaleMembers = flag.Int("members", 100, "members of TestScale, whose checks are shared")
	scaleStagger = flag.Duration("stagger", 20*time.Millisecond, "time between the starts of relays of TestScale")
	scaleTime    = flag.Duration("measure", 30*time.Second, "how long TestScale measures")
)

// TestScale runs many simulated relays in this process against one etcd, and says what that cost. It asserts
// nothing about times.
func TestScale(t *testing.T) {
	if *scaleRelays == 0 {
		t.Skip("a measurement: -relays N")
	}
	w, _ := newRealWorld(t)
	var members []string
	for i := range *scaleMembers {
		members = append(members, fmt.Sprint("tcp://10.0.0.1:", i))
	}
	groups := map[string]Group{}
	for i := range 5 {
		groups[fmt.Sprint("group-", i)] = Group{Up: 20, All: 20}
	}
	began := time.Now()
	var relays []*checkingRelay
	for i := range *scaleRelays {
		lapse(*scaleStagger)
		relays = append(relays, w.simulated(fmt.Sprintf("relay-%04d", i), groups, members))
	}
	known := func(up bool, member string) func() bool {
		return func() bool {
			for _, r := range relays {
				if s := r.is(member); !s.Known || s.Up != up {
					return false
				}
			}
			return true
		}
	}
	w.until("all are present", func() bool {
		for _, r := range relays {
			if !r.Status().Present {
				return false
			}
		}
		return true
	})
	for _, m := range members {
		w.until("all know of "+m, known(true, m))
	}
	t.Logf("%d relays, %d members: all present, and all checks shared, after %.1f s", len(relays), len(members), time.Since(began).Seconds())
	lapse(5 * time.Second)
	checkers := 0
	for _, r := range relays {
		for _, m := range members {
			if r.is(m).Check {
				checkers++
			}
		}
	}
	t.Logf("checks: %.1f relays check each member", float64(checkers)/float64(len(members)))
	before := w.metrics()
	lapse(*scaleTime)
	w.tellCost("at rest", before, *scaleTime, len(relays))

	var took []time.Duration
	before, begun := w.metrics(), time.Now()
	for i := range 10 {
		m, at := members[i%len(members)], time.Now()
		for _, r := range relays {
			r.set(m, true)
		}
		w.until("all know that a member is down", known(false, m))
		took = append(took, time.Since(at).Round(time.Millisecond))
		for _, r := range relays {
			r.set(m, false)
		}
		w.until("all know that it is up", known(true, m))
	}
	t.Logf("from the checks of a member until all relays know: %v", took)
	w.tellCost("20 changes of members", before, time.Since(begun), len(relays))
}

// lapse is the time of a measurement.
func lapse(d time.Duration) { time.Sleep(d) }

// simulated runs a relay as checker does, with the times of real ones.
func (w *world) simulated(id string, groups map[string]Group, members []string) *checkingRelay {
	client := w.openWith(etcd.Config{Remote: remote.Config{Servers: []string{w.url}}})
	r := &checkingRelay{checks: NewChecks(ChecksConfig{Node: id}), shares: map[string]Share{}, members: map[string]*SharedMember{}, down: map[string]bool{}}
	r.checks.Expect()
	var begun int64
	start := time.Now()
	r.relay = w.relay(id, func(c *PresenceConfig) {
		c.Client, c.Checks, c.TTL, c.Least = client, r.checks, 0, 0
		c.Report = func() Report {
			begun++
			return Report{State: "ready", Version: 12, Hash: strings.Repeat("ab", 32), Penstock: "v1.2.3", Since: start, Flows: begun, Begun: begun * 1000, BytesUp: begun << 30, BytesDown: begun << 32,
				Groups: groups, Host: Host{Name: "host-of-" + id, CPU: 12.25, Load: 0.5, CPUs: 8, Memory: 50 << 20, Free: 4 << 30, FDs: 2000, MaxFDs: 1 << 20},
				Sources: []Source{{Name: "etcd://127.0.0.1:2379/penstock/edge"}, {Name: "etcd /services/web/", Age: 12.5}}}
		}
	})
	for _, m := range members {
		r.share(m, 3)
	}
	r.runChecks(w, client)
	return r
}

// metrics reads what etcd counts.
func (w *world) metrics() map[string]float64 {
	w.Helper()
	res, err := http.Get(w.url + "/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer res.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = n
		}
	}
	return values
}

// tellCost logs what etcd has done since before.
func (w *world) tellCost(what string, before map[string]float64, during time.Duration, relays int) {
	w.Helper()
	after, seconds := w.metrics(), during.Seconds()
	per := func(name string) float64 { return (after[name] - before[name]) / seconds }
	in, out := per("etcd_network_client_grpc_received_bytes_total"), per("etcd_network_client_grpc_sent_bytes_total")
	w.Logf("%s: %.1f writes/s, %.0f B/s received and %.0f B/s sent (%.0f and %.0f per relay), %.2f CPUs of etcd, %.0f MiB of its memory, %.0f watches", what,
		per("etcd_mvcc_put_total"), in, out, in/float64(relays), out/float64(relays), per("process_cpu_seconds_total"), after["process_resident_memory_bytes"]/(1<<20), after["etcd_debugging_mvcc_watcher_total"])
}
