package main

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// What a worker has counted and what it knows goes on in the next one, however it ended: no counter
// decreases, operators' changes stay, and no member is unknown.
func TestStateOutlivesWorker(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	k := runKept(t, `
reload: {watch: false}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, limits: {new-flows: 1000/s, source: {new-flows: 100/s}}}}
groups:
  all:
    balance: round-robin
    check: {tcp: {every: 1h}}
    members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}, {name: three, to: "tcp://127.0.0.1:1"}]
`, one.url(), two.url())
	members := func() (list []string) {
		g, err := k.admin.Group(k.ctx(), "all")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range g.Members {
			list = append(list, fmt.Sprintf("%s %s %s weight %d since %s checked %v connects %d of %d answers %d in %v", m.Name, m.Address, m.State, m.Weight, m.Since.Format(time.RFC3339Nano), m.Check != nil, m.Connects, m.Failures,
				m.Answers, m.FirstByteSeconds))
		}
		return list
	}
	testwait.Until(t, "the members are checked", func() bool {
		g, err := k.admin.Group(k.ctx(), "all")
		return err == nil && !slices.ContainsFunc(g.Members, func(m api.Member) bool { return m.Check == nil })
	})
	for range 7 {
		c := k.to("a")
		name(t, c)
		c.Close()
	}
	testwait.Until(t, "the flows have ended", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == 0 && s.Totals.Begun >= 7
	})
	weight := 9
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(k.admin.SetMember(k.ctx(), "all", "one", api.MemberChange{State: "drain"}))
	must(k.admin.SetMember(k.ctx(), "all", "two", api.MemberChange{Weight: &weight}))
	must(k.admin.AddMember(k.ctx(), "all", api.NewMember{Name: "four", Address: two.url()}))
	must(k.admin.Reload(k.ctx()))
	testwait.Until(t, "the new member is checked", func() bool {
		return !strings.Contains(strings.Join(members(), "\n"), "checking")
	})
	counted, status := k.counters(t), k.status(t)
	g, err := k.admin.Group(k.ctx(), "all")
	if err != nil {
		t.Fatal(err)
	}
	answers := int64(0)
	for _, m := range g.Members {
		if answers += m.Answers; m.Answers != m.Connects || (m.FirstByteSeconds > 0) != (m.Answers > 0) {
			t.Errorf("%s has answered %d of %d flows, in %vs", m.Name, m.Answers, m.Connects, m.FirstByteSeconds)
		}
	}
	if answers != 7 {
		t.Errorf("members have answered %d flows", answers)
	}
	events, err := k.admin.Events(k.ctx(), 0)
	if err != nil {
		t.Fatal(err)
	}
	must(k.admin.SetMember(k.ctx(), "all", "four", api.MemberChange{Weight: &weight})) // which is answered when the state is written
	before := members()
	for round := range 3 {
		k.crash()
		if got := members(); !slices.Equal(got, before) {
			t.Errorf("round %d: members are\n%s\nwere\n%s", round, strings.Join(got, "\n"), strings.Join(before, "\n"))
		}
		now := k.counters(t)
		for series, n := range counted {
			if m, ok := now[series]; !ok || m < n {
				t.Errorf("round %d: %s is %v, was %v", round, series, m, n)
			}
		}
		counted = now
		if s := k.status(t); !s.Started.Equal(status.Started) || s.Totals.Begun != status.Totals.Begun {
			t.Errorf("round %d: started %v, was %v; %d flows begun, were %d", round, s.Started, status.Started, s.Totals.Begun, status.Totals.Begun)
		}
		again, err := k.admin.Events(k.ctx(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events.Events {
			if i >= len(again.Events) || again.Events[i].ID != e.ID || again.Events[i].Message != e.Message {
				t.Fatalf("round %d: event %d is missing: %+v", round, i, e)
			}
		}
	}
	c := k.to("a") // one is drained, three is down
	if got := name(t, c); got != "two" {
		t.Errorf("a client goes to %q", got)
	}
	c.Close()
}

// What an operator was told of a member is so in the next worker, however soon this one dies.
func TestMemberChangesOutliveWorker(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	k := runKeeper(t, "max-restart-delay: 100ms", `
sandbox: {mode: 'off'}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`, one.url())
	weight := 7
	set := func(c api.MemberChange) func() error {
		return func() error { _, err := k.admin.SetMember(k.ctx(), "all", "two", c); return err }
	}
	for _, c := range []struct {
		what string
		do   func() error
		want string
	}{
		{"added", func() error {
			_, err := k.admin.AddMember(k.ctx(), "all", api.NewMember{Name: "two", Address: two.url()})
			return err
		}, "one up 1, two up 1"},
		{"drained", set(api.MemberChange{State: "drain"}), "one up 1, two drained 1"},
		{"weight", set(api.MemberChange{Weight: &weight}), "one up 1, two drained 7"},
		{"removed", func() error { _, err := k.admin.RemoveMember(k.ctx(), "all", "two"); return err }, "one up 1"},
	} {
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		k.crash()
		g, err := k.admin.Group(k.ctx(), "all")
		var list []string
		for _, m := range g.Members {
			list = append(list, fmt.Sprintf("%s %s %d", m.Name, m.State, m.Weight))
		}
		if got := strings.Join(list, ", "); err != nil || got != c.want {
			t.Errorf("%s: %s, want %s, %v", c.what, got, c.want, err)
		}
	}
}

// A flow has its member in the next worker, too, whether or not that has ever answered, and what the flow moves is
// counted once.
func TestMembersOfSilentFlowsOutliveWorker(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	k := runKept(t, `
listeners:
  silent: {listen: "udp://127.0.0.1:0", to: "{0}"}
  udp: {listen: "udp://127.0.0.1:0", to: "echo:"}
  tcp: {listen: "tcp://127.0.0.1:0", to: "echo:"}
`, "udp://"+silent.LocalAddr().String())
	names := []string{"silent", "udp", "tcp"}
	for _, name := range names {
		if _, err := k.to(name).Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	// state returns the members of the flows, and what the listeners have counted.
	state := func() (all []string) {
		flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows.Flows {
			all = append(all, fmt.Sprintf("%s: member %s", f.Listener, f.Member))
		}
		slices.Sort(all)
		for _, name := range names {
			n := k.numbers(name, "")[0]
			all = append(all, fmt.Sprintf("%s: %d begun, %d bytes in %d datagrams", name, n.Begun, n.BytesUp, n.DatagramsUp))
		}
		return all
	}
	want := []string{
		"silent: member udp://" + silent.LocalAddr().String(), "tcp: member echo:", "udp: member echo:",
		"silent: 1 begun, 6 bytes in 1 datagrams", "udp: 1 begun, 3 bytes in 1 datagrams", "tcp: 1 begun, 3 bytes in 0 datagrams",
	}
	testwait.Until(t, "everything has arrived", func() bool { return slices.Equal(state(), want) })
	k.settled(3)
	k.crash()
	if got := state(); !slices.Equal(got, want) {
		t.Errorf("the next worker has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range names {
		if _, err := k.admin.KillAll(k.ctx(), api.Filter{Listener: name}); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "the flows have ended", func() bool { return k.status(t).Totals.Flows == 0 })
	if got := state(); !slices.Equal(got, want[3:]) {
		t.Errorf("after the end of the flows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want[3:], "\n"))
	}
}

// What a datagram flow has moved is counted once, and stays with the member that it had then, when another one has it, and
// another worker.
func TestMovedFlowIsCountedOnce(t *testing.T) {
	t.Parallel()
	var members [2]net.PacketConn
	for i := range members {
		var err error
		if members[i], err = net.ListenPacket("udp4", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { members[i].Close() })
	}
	k := runKept(t, `
groups:
  g: {balance: first, members: [{name: a, to: "{0}"}, {name: b, to: "{1}"}]}
listeners:
  l: {listen: "udp://127.0.0.1:0", to: g}
`, "udp://"+members[0].LocalAddr().String(), "udp://"+members[1].LocalAddr().String())
	client := k.to("l")
	sent := int64(0)
	send := func() {
		sent++
		if _, err := client.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
	}
	// counted returns what the listener and each member have counted.
	counted := func() (all [3]int64) {
		all[0] = k.numbers("l", "g")[0].DatagramsUp
		gs, err := k.admin.Groups(k.ctx())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gs.Groups {
			for i, m := range g.Members {
				all[1+i] = m.DatagramsUp
			}
		}
		return all
	}
	for range 10 {
		send()
	}
	testwait.Until(t, "the first member has 10", func() bool { return counted() == [3]int64{10, 10, 0} })
	members[0].Close()
	buf := make([]byte, 100)
	testwait.Until(t, "the second member has one", func() bool {
		send() // the first of these are answered with an ICMP error
		members[1].SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, _, err := members[1].ReadFrom(buf)
		return err == nil
	})
	check := func(when string) {
		t.Helper()
		var n [3]int64
		for deadline := time.Now().Add(patience); n[0] != sent || n[1] < 10 || n[0] != n[1]+n[2]; n = counted() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the listener and the members have counted %d of %d", when, n, sent)
			}
		}
	}
	check("after the move")
	k.settled(1)
	k.crash()
	check("by the next worker")
	if _, err := k.admin.KillAll(k.ctx(), api.Filter{Listener: "l"}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the flow has ended", func() bool { return k.status(t).Totals.Flows == 0 })
	check("after its end")
}

// Records of flows that a worker was killed with before it had written them are counted.
func TestAccessLogCountsDeaths(t *testing.T) {
	need(t, "mkfifo")
	t.Parallel()
	fifo := filepath.Join(shortDir(t), "fifo") // nobody reads it
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k := runKept(t, `
listeners: {denied: {listen: "tcp://127.0.0.1:0", deny: 127.0.0.0/8, to: "tcp://127.0.0.1:1"}}
access-log: {to: "{0}"}
`, fifo)
	const clients = 1000
	denied := k.at("denied").String()
	for range clients {
		if c, err := net.Dial("tcp", denied); err == nil { // else it was refused that fast
			c.Close()
		}
	}
	testwait.Until(t, "all are refused", func() bool { return k.status(t).Totals.Begun == clients })
	dropped := func() float64 { return k.metric("penstock_log_lines_dropped_total", `log="access"`) }
	if n := dropped(); n != 0 {
		t.Errorf("%v lines are dropped, and nobody died", n)
	}
	k.crash()
	n := dropped()
	if n < clients/2 || n > clients { // the pipe has the others
		t.Errorf("%v lines of %d are dropped", n, clients)
	}
	k.crash()
	if again := dropped(); again < n || again > clients {
		t.Errorf("%v lines are dropped, and were %v", again, n)
	}
}

// Records that a full disk dropped are counted, although nobody had asked for the count when the worker was killed.
func TestFullDiskCountsOutlive(t *testing.T) {
	t.Parallel()
	k := runKept(t, `
log: {flows: all}
listeners: {denied: {listen: "tcp://127.0.0.1:0", deny: 127.0.0.0/8, to: "tcp://127.0.0.1:1"}}
access-log: {to: /dev/full}
`)
	const clients = 100
	denied := k.at("denied").String()
	for range clients {
		if c, err := net.Dial("tcp", denied); err == nil { // else it was refused that fast
			c.Close()
		}
	}
	k.wait("flow", clients)
	for range 2 {
		k.crash()
		if n := k.metric("penstock_log_lines_dropped_total", `log="access"`); n != clients {
			t.Errorf("%v lines are dropped, want %d", n, clients)
		}
	}
}

func (k *kept) status(t *testing.T) api.Status {
	t.Helper()
	s, err := k.admin.Status(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counters returns the counters of the daemon's own, by series. Those of the event loops are the
// engine's.
func (k *kept) counters(t *testing.T) map[string]float64 {
	t.Helper()
	all, counter := map[string]float64{}, false
	for line := range strings.Lines(k.metrics()) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE penstock_"); ok {
			counter = strings.HasSuffix(kind, " counter") || strings.HasSuffix(kind, " histogram")
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if !counter || !strings.HasPrefix(line, "penstock_") || strings.HasPrefix(line, "penstock_loop_") || at < 0 {
			continue
		}
		n, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatal(err)
		}
		all[line[:at]] = n
	}
	if len(all) == 0 {
		t.Fatal("no counters")
	}
	return all
}
