//go:build linux

package world

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

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
		{"tcp", "reset", "bulk up", []counter{FlowsLost}},
		{"tcp", "swap", "bulk up,sizes,bulk both ways", []counter{bytesWrong, bytesMissing}},
		{"tcp", "clean", "bulk reset,idle reset", []counter{earlyEOF}},
		{"udp", "", "", nil},
		{"udp", "replaced", "", []counter{datagramFlowsLost}},
		{"udp", "other client", "", []counter{datagramsWrong}},
		{"udp", "answer twice", "", []counter{datagramsDuplicate}},
		{"udp", "request twice", "", []counter{datagramsDuplicate}},
	} {
		t.Run(c.network+" "+strings.ReplaceAll(c.fault, " ", "-"), func(t *testing.T) {
			var out bytes.Buffer
			w := New(rand.Uint64(), &out, t.TempDir())
			t.Log("seed", w.seed)
			w.haste = 10
			var upstream string
			if c.network == "udp" {
				pc, err := net.ListenPacket("udp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				upstream = pc.LocalAddr().String()
				w.ServeDatagrams(pc, nil)
			} else {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				upstream = l.Addr().String()
				w.Serve(l, 0, nil)
			}
			b, addr := startBroken(t, c.network, upstream, c.fault)
			w.Places = []*Place{{Name: c.fault, Network: c.network, Addr: addr, Upstream: c.network}}
			w.Load(1, func(s *Shape, _ *Place) bool {
				return strings.Contains(","+c.shapes+",", ","+s.name+",")
			})
			w.LoadDatagrams(2)
			w.NewClients(5 * ms)
			// Until the mistake has been made and has had its effect, or enough went well.
			testwait.For(func() bool {
				return !w.Tally.Good() || c.fault == "" && w.Tally.Get(flowsWhole)+w.Tally.Get(datagramsAnswered) >= 200
			})
			if err := w.Finish(); err != nil {
				t.Error(err)
			}
			b.close()
			w.CloseUpstreams()
			if c.found == nil {
				if !w.Tally.Good() {
					t.Errorf("faults of a relay without any:\n%s", out.String())
				}
				if c.network == "tcp" && w.Tally.Get(flowsWhole) == 0 || c.network == "udp" && w.Tally.Get(datagramsAnswered) == 0 {
					t.Error("nothing was relayed")
				}
				return
			}
			sum := int64(0)
			for _, f := range c.found {
				sum += w.Tally.Get(f)
			}
			if sum == 0 {
				w.Tally.Print()
				t.Errorf("the fault was not found as such:\n%s", out.String())
			}
		})
	}
}

// TestResetWhenTheRunEnds: the writer of a flow that is to be reset is through, and then the run ends and the other end finishes. A clean end
// would be a fault.
func TestResetWhenTheRunEnds(t *testing.T) {
	w := New(1, io.Discard, t.TempDir())
	f := w.make(&Shape{name: "reset", client: beats, upstream: beats, reset: true}, &Place{Name: "x", Network: "tcp", Upstream: "tcp"})
	f.stop = f.start
	near, far := testnet.Pair(t, "tcp4")
	s := w.stream(f, int(1-f.id%2), near, 0) // the end that is reset by the other one
	ended := make(chan bool)
	go func() { ended <- s.run() }()
	testwait.Until(t, "its writer is through", func() bool {
		begun := f.directions[s.own].written.Load() > 0
		writers, _ := testwait.Goroutines("world.(*stream).write(")
		return begun && writers == 0
	})
	w.stopping.Store(true)
	f.directions[s.come].total.Store(0)
	far.(interface{ CloseWrite() error }).CloseWrite()
	if <-ended {
		t.Error("it ended well")
	}
	if _, err := io.Copy(io.Discard, far); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end has %v, not a reset", err)
	}
}

// TestRefusedClientsAreFound: nobody listens.
func TestRefusedClientsAreFound(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	w.Places = []*Place{{Name: "nobody", Network: "tcp", Addr: "127.0.0.1:" + testnet.Port(t), Upstream: "tcp"}}
	w.run(w.make(newcomer, w.Places[0]))
	if w.Tally.Get(clientsRefused) != 1 || w.Tally.Good() {
		t.Errorf("a refused client was not found:\n%s", out.String())
	}
}

// TestExcuses: what a kill may end, and what not.
func TestExcuses(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	w.KeepAfter, w.Slack = time.Second, time.Second
	via := &Place{Name: "x", Network: "tcp", Upstream: "tcp"}
	f := w.make(newcomer, via)
	if w.excused(f) {
		t.Error("a flow is excused without a kill")
	}
	now := time.Now()
	f.start = now.Add(-10 * time.Second)
	f.relaying.Store(now.Add(-10 * time.Second).UnixNano())
	for range 3 { // the worker was at work all the time
		w.Kills.answered(now)
	}
	number := w.Kills.add(Kill{at: now})
	w.Kills.gone(number, now)
	if w.excused(f) {
		t.Error("a flow of 10 s is excused, which had settled")
	}
	f.relaying.Store(now.Add(-1500 * ms).UnixNano())
	if !w.excused(f) {
		t.Error("a flow of 1.5 s is not excused, which may not have settled")
	}
	// One that had no CPU time since has not settled a flow of 10 s either.
	idle := New(1, &out, t.TempDir())
	idle.KeepAfter, idle.Slack = w.KeepAfter, w.Slack
	for range 3 {
		idle.Kills.answered(now.Add(-9 * time.Second))
	}
	for range 2 {
		idle.Kills.answered(now)
	}
	idle.Kills.gone(idle.Kills.add(Kill{at: now}), now)
	f.relaying.Store(now.Add(-10 * time.Second).UnixNano())
	if !idle.excused(f) {
		t.Error("a flow of 10 s is not excused, which the worker had no time to settle")
	}
	f.relaying.Store(now.Add(-1500 * ms).UnixNano())
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
	if number := w.Kills.add(Kill{at: time.Now(), Plan: true}); w.excused(planned) {
		t.Errorf("a flow is excused by upgrade %d", number)
	}
}

// TestWrongMembersAreFound: a flow that began after the relay had left its member.
func TestWrongMembersAreFound(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	via := &Place{Name: "x", Network: "tcp", Upstream: "tcp"}
	e := &Endpoint{Service: "tcp", Addr: "127.0.0.1:1"}
	before := w.make(newcomer, via)
	before.at.Store(e)
	w.took(e, before, before.start)
	before.directions[up].written.Store(10)
	before.directions[up].read.Store(10)
	w.Leave(e, 1)
	w.took(e, before, before.start) // it was on its way
	if !w.Tally.Good() {
		t.Errorf("a flow that began before is at fault:\n%s", out.String())
	}
	before.directions[up].written.Store(11)
	if before.moved(up, 1); before.proven.Load() != 1 {
		t.Error("a flow that goes on after its member has gone is not seen to")
	}
	w.took(e, w.make(newcomer, via), time.Now())
	if w.Tally.Get(wrongMember) != 1 || w.Tally.Good() {
		t.Errorf("a flow to a member that was gone is not found:\n%s", out.String())
	}
	e.Left.Store(0)
	if w.took(e, w.make(newcomer, via), time.Now()); w.Tally.Get(wrongMember) != 1 {
		t.Error("a flow to a member that has returned is at fault")
	}
}

// TestIdleIsExcused: a relay may replace a datagram flow of which nothing has come for the idle time, and no other.
func TestIdleIsExcused(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	w.Idle = time.Minute
	f := w.makeDatagramFlow(&Place{Name: "x", Network: "udp", Upstream: "udp"})
	a, b, c := relayPort{from: "a"}, relayPort{from: "b"}, relayPort{from: "c"}
	now := time.Now()
	for i, sent := range []time.Duration{-200 * time.Second, -190 * time.Second, -100 * time.Second, -10 * time.Second} {
		f.sentAt[uint64(i)] = now.Add(sent)
	}
	w.arrive(f, 0, a, nil)
	w.arrive(f, 1, a, nil)
	w.arrive(f, 2, b, nil)
	if w.Tally.Get(idleDatagram) != 1 || !w.Tally.Good() {
		t.Errorf("a flow of which nothing came for 90 s is at fault:\n%s", out.String())
	}
	w.arrive(f, 3, b, nil)
	if w.arrive(f, 4, c, nil); w.Tally.Get(datagramFlowsLost) != 1 {
		t.Error("a flow that was replaced after 10 s is not found")
	}
}

// TestLateAtAnotherUpstream: a flow that had to be replaced may have gone to two upstreams, of which the first one reads last.
func TestLateAtAnotherUpstream(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	w.Idle = time.Minute
	f := w.makeDatagramFlow(&Place{Name: "x", Network: "udp", Upstream: "udp"})
	now := time.Now()
	for number, sent := range []time.Duration{0, -100 * time.Second, -90 * time.Second, -10 * time.Second, 0} {
		f.sentAt[uint64(number)] = now.Add(sent)
	}
	first, second := relayPort{"u", "a"}, relayPort{"v", "b"}
	w.arrive(f, 3, second, nil)
	w.arrive(f, 1, first, nil)
	w.arrive(f, 4, second, nil)
	if w.Tally.Get(idleDatagram) != 1 || !w.Tally.Good() {
		t.Errorf("a flow of which nothing came for 90 s is at fault:\n%s", out.String())
	}
	f.sentAt[2] = now.Add(-30 * time.Second)
	if w.arrive(f, 2, first, nil); w.Tally.Get(datagramFlowsLost) != 1 {
		t.Error("a flow that was replaced after 30 s is not found")
	}
}

// TestLateAnswers: an answer may reach the flow that has its address now, and no other, however late it is.
func TestLateAnswers(t *testing.T) {
	a, b := relayPort{"u", "a"}, relayPort{"u", "b"}
	for _, c := range []struct {
		name  string
		ports [][]relayPort // of the first flow, of the second, and of the first again
		kill  bool          // the second flow began anew
		late  int64
		wrong int64
	}{
		{"a port that was given away", [][]relayPort{{a}, {a}}, false, 1, 0},
		{"one of several", [][]relayPort{{a, b}, {b}}, false, 1, 0},
		{"somebody else's port", [][]relayPort{{a}, {b}}, false, 0, 1},
		{"the port of another upstream", [][]relayPort{{a}, {{"v", "a"}}}, false, 0, 1},
		{"a port that was the client's before", [][]relayPort{{b}, {a}, {a}}, false, 0, 1},
		{"a port that is the first one's still", [][]relayPort{{a}, {a}, {a}}, false, 1, 1},
		{"nobody knows by which port", [][]relayPort{{a}, {b}}, true, 1, 0},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			var out bytes.Buffer
			w := New(1, &out, t.TempDir())
			via := &Place{Name: "x", Network: "udp", Upstream: "udp"}
			first, second := w.makeDatagramFlow(via), w.makeDatagramFlow(via)
			if c.kill {
				w.Kills.gone(w.Kills.add(Kill{at: time.Now()}), time.Now())
			}
			number := uint64(0)
			for i, ports := range c.ports {
				f := []*datagramFlow{first, second, first}[i]
				for _, p := range ports {
					number++
					w.arrive(f, number, p, nil)
				}
			}
			second.sent = 3
			second.strangers = []stranger{{first.id, 1, 3}}
			if w.judge(second, 3); w.Tally.Get(datagramsLate) != 0 {
				t.Error("judged by an answer to what was sent before")
			}
			w.judge(second, 4)
			w.forgive(second)
			if late, wrong := w.Tally.Get(datagramsLate), w.Tally.Get(datagramsWrong); late != c.late || wrong != c.wrong {
				t.Errorf("%d late and %d wrong:\n%s", late, wrong, out.String())
			}
		})
	}
}

// TestPauses: what ends a client's pause is an answer to what it has sent since the kill, and a client that has
// come since has no pause.
func TestPauses(t *testing.T) {
	w := New(1, io.Discard, t.TempDir())
	killed := time.Now().Add(-time.Second)
	old := &pinger{begun: killed.Add(-time.Minute)}
	fresh := &pinger{begun: killed.Add(time.Millisecond)}
	old.answered(w, killed) // nobody has died
	number := w.Kills.add(Kill{at: killed, How: "killed"})
	old.answered(w, time.Now())
	w.Kills.gone(number, killed)
	old.answered(w, killed.Add(-time.Millisecond))
	if len(w.Tally.pauses)+len(w.Tally.first) > 0 {
		t.Errorf("pauses that are none: %v, of the relay %v", w.Tally.pauses, w.Tally.first)
	}
	fresh.answered(w, time.Now())
	if len(w.Tally.pauses) > 0 || len(w.Tally.first) != 1 {
		t.Errorf("of a client that has come since: %v, of the relay %v", w.Tally.pauses, w.Tally.first)
	}
	for range 2 {
		old.answered(w, time.Now())
	}
	if len(w.Tally.pauses) != 1 || w.Tally.pauses[0] < time.Second || len(w.Tally.first) != 1 {
		t.Errorf("of a client that was there: %v, of the relay %v", w.Tally.pauses, w.Tally.first)
	}
	// An upgrade: the client's longest wait.
	asked := time.Now().Add(-10 * time.Second)
	number = w.Kills.add(Kill{at: asked, How: "upgrade", Plan: true})
	old.answered(w, time.Now().Add(-50*ms))
	w.Kills.gone(number, time.Now().Add(-ms))
	old.answered(w, time.Now())
	(&pinger{begun: time.Now()}).answered(w, time.Now())
	if len(w.Tally.pauses) != 2 || w.Tally.pauses[1] < 50*ms || len(w.Tally.first) != 1 {
		t.Errorf("of an upgrade: %v, of the relay %v", w.Tally.pauses, w.Tally.first)
	}
}

// TestLateIsAnswered: a datagram that waited for an hour is answered like any other: nothing else would be, if each waited for long.
func TestLateIsAnswered(t *testing.T) {
	var out bytes.Buffer
	w := New(1, &out, t.TempDir())
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.ServeDatagrams(pc, nil)
	defer w.CloseUpstreams()
	f := w.makeDatagramFlow(&Place{Name: "x", Network: "udp", Addr: pc.LocalAddr().String()})
	c, err := w.dialDatagrams(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 64)
	f.mu.Lock()
	f.sent, f.sentAt[1] = 1, time.Now().Add(-time.Hour)
	f.mu.Unlock()
	if _, err := c.Write(pattern.MakeDatagram(b, f.id, 1, up)); err != nil {
		t.Fatal(err)
	}
	if _, ok := w.receive(f, c, b, make(map[uint64]bool), testwait.Patience); !ok || !w.Tally.Good() {
		t.Errorf("not answered:\n%s", out.String())
	}
}
