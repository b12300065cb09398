//go:build linux

package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// output is where a run in a test writes; it may be read while the run goes on.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// TestFaultsAreFound runs the load through a relay that makes one mistake, which must be found, and be
// called what it is.
func TestFaultsAreFound(t *testing.T) {
	for _, c := range []struct {
		network, fault string
		shapes         string
		found          []counter // one of them at least
	}{
		{"tcp", "", "bulk both ways,ping-pong,slow upstream,half-closed up,half-closed down,bulk reset,idle reset", nil},
		{"tcp", "lose", "bulk up", []counter{bytesMissing}},
		{"tcp", "lose many", "bulk up", []counter{bytesMissing}},
		{"tcp", "twice", "bulk up", []counter{bytesDuplicate}},
		{"tcp", "wrong", "bulk up", []counter{bytesWrong}},
		{"tcp", "end", "bulk up", []counter{earlyEOF}},
		{"tcp", "reset", "bulk up", []counter{flowsLost}},
		{"tcp", "swap", "bulk up,sizes,bulk both ways", []counter{bytesWrong, bytesMissing}},
		{"tcp", "clean", "bulk reset,idle reset", []counter{earlyEOF}},
		{"udp", "", "", nil},
		{"udp", "replaced", "", []counter{datagramFlowsLost}},
		{"udp", "other client", "", []counter{datagramsWrong}},
		{"udp", "answer twice", "", []counter{datagramsDuplicate}},
		{"udp", "request twice", "", []counter{datagramsDuplicate}},
	} {
		t.Run(c.network+" "+strings.ReplaceAll(c.fault, " ", "-"), func(t *testing.T) {
			var out output
			w := newWorld(rand.Uint64(), &out, t.TempDir())
			t.Log("seed", w.seed)
			w.haste = 10
			var upstream string
			if c.network == "udp" {
				pc, err := net.ListenPacket("udp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				upstream = pc.LocalAddr().String()
				w.serveDatagrams(pc, nil)
			} else {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				upstream = l.Addr().String()
				w.serve(l, 0, nil)
			}
			b, addr := startBroken(t, c.network, upstream, c.fault)
			w.places = []*place{{name: c.fault, network: c.network, addr: addr, upstream: c.network}}
			w.load(1, func(s *shape, _ *place) bool {
				return strings.Contains(","+c.shapes+",", ","+s.name+",")
			})
			w.loadDatagrams(2)
			w.newClients(5 * ms)
			if c.fault == "" {
				time.Sleep(2 * time.Second)
			}
			// Until the mistake has been made and has had its effect.
			testwait.For(func() bool { return c.fault == "" || !w.tally.good() })
			if err := w.finish(); err != nil {
				t.Error(err)
			}
			b.close()
			w.closeUpstreams()
			if c.found == nil {
				if !w.tally.good() {
					t.Errorf("faults of a relay without any:\n%s", out.String())
				}
				if c.network == "tcp" && w.tally.get(flowsWhole) == 0 || c.network == "udp" && w.tally.get(datagramsAnswered) == 0 {
					t.Error("nothing was relayed")
				}
				return
			}
			sum := int64(0)
			for _, f := range c.found {
				sum += w.tally.get(f)
			}
			if sum == 0 {
				w.tally.print()
				t.Errorf("the fault was not found as such:\n%s", out.String())
			}
		})
	}
}

// TestRefusedClientsAreFound: nobody listens.
func TestRefusedClientsAreFound(t *testing.T) {
	var out output
	w := newWorld(1, &out, t.TempDir())
	w.places = []*place{{name: "nobody", network: "tcp", addr: "127.0.0.1:" + testnet.Port(t), upstream: "tcp"}}
	w.run(w.make(newcomer, w.places[0]))
	if w.tally.get(clientsRefused) != 1 || w.tally.good() {
		t.Errorf("a refused client was not found:\n%s", out.String())
	}
}

// TestExcuses: what a kill may end, and what not.
func TestExcuses(t *testing.T) {
	var out output
	w := newWorld(1, &out, t.TempDir())
	w.keepAfter, w.slack = time.Second, time.Second
	via := &place{name: "x", network: "tcp", upstream: "tcp"}
	f := w.make(newcomer, via)
	if w.excused(f) {
		t.Error("a flow is excused without a kill")
	}
	now := time.Now()
	f.start = now.Add(-10 * time.Second)
	f.relaying.Store(now.Add(-10 * time.Second).UnixNano())
	number := w.kills.add(kill{at: now})
	w.kills.gone(number, now)
	if w.excused(f) {
		t.Error("a flow of 10 s is excused, which had settled")
	}
	f.relaying.Store(now.Add(-1500 * ms).UnixNano())
	if !w.excused(f) {
		t.Error("a flow of 1.5 s is not excused, which may not have settled")
	}
	// What is written after the worker's death and arrives proves that the flow has outlived it.
	f.directions[up].written.Store(100)
	f.directions[up].read.Store(40)
	f.died(number)
	if f.moved(up, 60); !w.excused(f) {
		t.Error("bytes that were written before prove nothing")
	}
	f.directions[up].written.Store(110)
	if f.moved(up, 10); w.excused(f) {
		t.Error("a flow that outlived the kill is excused by it")
	}
	planned := w.make(newcomer, via)
	if number := w.kills.add(kill{at: time.Now(), plan: true}); w.excused(planned) {
		t.Errorf("a flow is excused by upgrade %d", number)
	}
}

// TestWrongMembersAreFound: a flow that began after the relay had left its member.
func TestWrongMembersAreFound(t *testing.T) {
	var out output
	w := newWorld(1, &out, t.TempDir())
	via := &place{name: "x", network: "tcp", upstream: "tcp"}
	e := &endpoint{service: "tcp", addr: "127.0.0.1:1"}
	before := w.make(newcomer, via)
	before.at.Store(e)
	w.took(e, before, before.start)
	before.directions[up].written.Store(10)
	before.directions[up].read.Store(10)
	w.leave(e, 1)
	w.took(e, before, before.start) // it was on its way
	if !w.tally.good() {
		t.Errorf("a flow that began before is at fault:\n%s", out.String())
	}
	before.directions[up].written.Store(11)
	if before.moved(up, 1); before.proven.Load() != 1 {
		t.Error("a flow that goes on after its member has gone is not seen to")
	}
	w.took(e, w.make(newcomer, via), time.Now())
	if w.tally.get(wrongMember) != 1 || w.tally.good() {
		t.Errorf("a flow to a member that was gone is not found:\n%s", out.String())
	}
	e.left.Store(0)
	if w.took(e, w.make(newcomer, via), time.Now()); w.tally.get(wrongMember) != 1 {
		t.Error("a flow to a member that has returned is at fault")
	}
}

// TestShownMembers: when the relay's list has a member as the registry has it.
func TestShownMembers(t *testing.T) {
	list := shown{"127.0.0.1:1": {State: "up", Weight: 2}, "127.0.0.1:2": {State: "drained", Weight: 1}}
	for _, c := range []struct {
		m     registry.Member
		there bool
		left  string // where it was
		want  bool
	}{
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 3}, true, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:2", Weight: 2}, true, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2, Draining: true}, true, "", false},
		{registry.Member{Name: "b", Addr: "127.0.0.1:2", Weight: 1, Draining: true}, true, "", true},
		{registry.Member{Name: "b", Addr: "127.0.0.1:2", Weight: 1}, true, "", false},
		{registry.Member{Name: "c", Addr: "127.0.0.1:3", Weight: 1}, true, "", false},
		{registry.Member{Name: "c", Addr: "127.0.0.1:3"}, false, "", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1"}, false, "", false},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "127.0.0.1:9", true},
		{registry.Member{Name: "a", Addr: "127.0.0.1:1", Weight: 2}, true, "127.0.0.1:2", false},
	} {
		m := &churnMember{Member: c.m, there: c.there, pending: &change{}}
		if c.left != "" {
			m.pending.left = &endpoint{addr: c.left}
		}
		if got := list.has(m); got != c.want {
			t.Errorf("%+v, there %v, before at %q: %v", c.m, c.there, c.left, got)
		}
	}
}

// TestIdleIsExcused: a relay may replace a datagram flow of which nothing has come for the idle time, and no other.
func TestIdleIsExcused(t *testing.T) {
	var out output
	w := newWorld(1, &out, t.TempDir())
	w.idle = time.Minute
	f := w.makeDatagramFlow(&place{name: "x", network: "udp", upstream: "udp"})
	now := time.Now()
	for i, sent := range []time.Duration{-200 * time.Second, -190 * time.Second, -100 * time.Second, -10 * time.Second} {
		f.sentAt[uint64(i)] = now.Add(sent)
	}
	w.arrive(f, 0, "a", nil)
	w.arrive(f, 1, "a", nil)
	w.arrive(f, 2, "b", nil)
	if w.tally.get(idleDatagram) != 1 || !w.tally.good() {
		t.Errorf("a flow of which nothing came for 90 s is at fault:\n%s", out.String())
	}
	w.arrive(f, 3, "b", nil)
	if w.arrive(f, 4, "c", nil); w.tally.get(datagramFlowsLost) != 1 {
		t.Error("a flow that was replaced after 10 s is not found")
	}
}

// TestPauses: what ends a client's pause is an answer to what it has sent since the kill, and a client that has
// come since has no pause.
func TestPauses(t *testing.T) {
	w := newWorld(1, io.Discard, t.TempDir())
	killed := time.Now().Add(-time.Second)
	old := &pinger{begun: killed.Add(-time.Minute)}
	fresh := &pinger{begun: killed.Add(time.Millisecond)}
	old.answered(w, killed) // nobody has died
	number := w.kills.add(kill{at: killed, how: "killed"})
	old.answered(w, time.Now())
	w.kills.gone(number, killed)
	old.answered(w, killed.Add(-time.Millisecond))
	if len(w.tally.pauses)+len(w.tally.first) > 0 {
		t.Errorf("pauses that are none: %v, of the relay %v", w.tally.pauses, w.tally.first)
	}
	fresh.answered(w, time.Now())
	if len(w.tally.pauses) > 0 || len(w.tally.first) != 1 {
		t.Errorf("of a client that has come since: %v, of the relay %v", w.tally.pauses, w.tally.first)
	}
	for range 2 {
		old.answered(w, time.Now())
	}
	if len(w.tally.pauses) != 1 || w.tally.pauses[0] < time.Second || len(w.tally.first) != 1 {
		t.Errorf("of a client that was there: %v, of the relay %v", w.tally.pauses, w.tally.first)
	}
	// An upgrade: the client's longest wait.
	asked := time.Now().Add(-10 * time.Second)
	number = w.kills.add(kill{at: asked, how: "upgrade", plan: true})
	old.answered(w, time.Now().Add(-50*ms))
	w.kills.gone(number, time.Now().Add(-ms))
	old.answered(w, time.Now())
	(&pinger{begun: time.Now()}).answered(w, time.Now())
	if len(w.tally.pauses) != 2 || w.tally.pauses[1] < 50*ms || len(w.tally.first) != 1 {
		t.Errorf("of an upgrade: %v, of the relay %v", w.tally.pauses, w.tally.first)
	}
}
