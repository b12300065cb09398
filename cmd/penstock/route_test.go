package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// farSocket returns a UDP socket in a network namespace of its own, at the other end of a link from v0, 10.9.0.1, of the test's.
func farSocket(t *testing.T, ip string) net.PacketConn {
	t.Helper()
	thread, linked := make(chan int), make(chan bool)
	var c net.PacketConn
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			thread <- 0
			done <- err
			return
		}
		thread <- syscall.Gettid()
		if !<-linked {
			return
		}
		for _, line := range []string{"link set v1 up", "addr add " + ip + "/24 dev v1"} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil { // in the thread's namespace
				done <- fmt.Errorf("ip %s: %w: %s", line, err, out)
				return
			}
		}
		var err error
		c, err = net.ListenPacket("udp4", ip+":0")
		done <- err
	}()
	if id := <-thread; id != 0 {
		testnet.IP(t, "link add v0 type veth peer name v1", fmt.Sprintf("link set v1 netns %d", id), "addr add 10.9.0.1/24 dev v0", "link set v0 up")
		linked <- true
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// heard returns the address from which the next datagram comes, which must be text.
func heard(t *testing.T, c net.PacketConn, text string) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 100)
	n, from, err := c.ReadFrom(b)
	if err != nil || string(b[:n]) != text {
		t.Fatalf("heard %q from %v, want %q: %v", b[:n], from, text, err)
	}
	return from.String()
}

// UDP flows whose member is behind a link that goes away and comes back, over a death of the worker and an upgrade: they keep their sockets, what is
// lost is counted, and who has another member goes there.
func TestLinkAway(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	far := farSocket(t, "10.9.0.2")
	near, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	k := runKept(t, `
listeners:
  alone: {listen: "udp://127.0.0.1:0", to: alone, timeouts: {idle: 10m}}
  both: {listen: "udp://127.0.0.1:0", to: both, timeouts: {idle: 10m}}
groups:
  alone: {members: ["{0}"]}
  both: {balance: first, timeouts: {retries: 1ms}, members: ["{0}", "{1}"]}
`, "udp://"+far.LocalAddr().String(), "udp://"+near.LocalAddr().String())
	held, _ := k.line("sandbox")["held"].(string)
	if t.Log("held by the sandbox:", held); !testnet.RaceEnabled && !strings.Contains(held, "seccomp") {
		t.Error("no system calls are refused")
	}
	say := func(c net.Conn, text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	alone, both := k.to("alone"), k.to("both")
	say(alone, "before")
	at := heard(t, far, "before")
	say(both, "before")
	heard(t, far, "before")
	k.settled(2)

	testnet.IP(t, "link set v0 down")
	lost := 0
	lose := func(n int) {
		t.Helper()
		for range n {
			say(alone, "lost")
		}
		lost += n
		testwait.Until(t, "what has no route is dropped", func() bool {
			return k.metric("penstock_datagrams_dropped_total", `reason="unreachable"`) == float64(lost)
		})
	}
	lose(10)
	say(both, "moved")
	heard(t, near, "moved")
	say(k.to("both"), "new")
	heard(t, near, "new")
	k.settled(3)
	k.crash()
	lose(3)
	k.upgrade()
	lose(3)
	say(both, "still there")
	heard(t, near, "still there")

	testnet.IP(t, "link set v0 up")
	testwait.Until(t, "the link is up", func() bool {
		out, err := exec.Command("ip", "-o", "link", "show", "v0").Output()
		return err == nil && strings.Contains(string(out), " state UP ")
	})
	say(alone, "after")
	if again := heard(t, far, "after"); again != at {
		t.Errorf("after the link was away it comes from %s, and came from %s", again, at)
	}
	if !strings.Contains(k.metrics(), "\npenstock_icmp_errors_total 0\n") {
		t.Error("ICMP messages are counted")
	}
	if n := k.metric("penstock_datagrams_dropped_total", ""); n != float64(lost) {
		t.Errorf("%v datagrams are dropped, want %d", n, lost)
	}
	flows, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "alone"}, api.Page{})
	if err != nil || len(flows.Flows) != 1 || flows.Flows[0].Member != "udp://"+far.LocalAddr().String() {
		t.Errorf("%+v, %v", flows, err)
	}
	gs, err := k.admin.Groups(k.ctx())
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, g := range gs.Groups {
		for _, m := range g.Members {
			open = append(open, fmt.Sprint(g.Name, " ", m.Flows))
		}
	}
	if got := strings.Join(open, ", "); got != "alone 1, both 0, both 2" {
		t.Errorf("open flows: %s", got)
	}
}

// runMany runs a daemon whose group has, in this order, a member behind the link v0, n at ports of an address at which nobody is, and one of this host.
func runMany(t *testing.T, nobody string, n int) (k *kept, far, last net.PacketConn, members []string) {
	t.Helper()
	far = farSocket(t, "10.9.0.2")
	last, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { last.Close() })
	members = append(members, "udp://"+far.LocalAddr().String())
	for i := range n {
		members = append(members, fmt.Sprintf("udp://%s:%d", nobody, 20+i))
	}
	members = append(members, "udp://"+last.LocalAddr().String())
	return runKept(t, `
listeners: {l: {listen: "udp://127.0.0.1:0", to: many, timeouts: {idle: 10m}}}
groups: {many: {balance: first, retries: 100, members: ["`+strings.Join(members, `", "`)+`"]}}
`), far, last, members
}

// A flow whose group has more members than it can try at once, and a route to none of them, keeps its socket and its member, also while its worker
// has no free descriptor, and in the next ones; and goes to the only one that has a route in the end.
func TestManyMembersAway(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("prlimit(1) of util-linux is needed:", err)
	}
	k, far, last, members := runMany(t, "10.9.0.2", 10)
	own := members[0]
	block := "rule add pref 0 ipproto udp dport " + fmt.Sprint(last.LocalAddr().(*net.UDPAddr).Port) + " prohibit"
	testnet.IP(t, "rule add pref 9 table local", "rule del pref 0", block)
	c := k.to("l")
	say := func(text string) {
		t.Helper()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	say("before")
	at := heard(t, far, "before")
	k.settled(1)
	testnet.IP(t, "link set v0 down")
	// Each round of questions ends with a failure of the flow's own member.
	rounds := func(n float64) {
		t.Helper()
		before := k.metric("penstock_member_connect_failures_total", `member="`+own+`"`)
		testwait.Until(t, "it asks again", func() bool {
			say("lost")
			return k.metric("penstock_member_connect_failures_total", `member="`+own+`"`) >= before+n
		})
		flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
		if err != nil || len(flows.Flows) != 1 || flows.Flows[0].Member != own {
			t.Errorf("%+v, %v", flows, err)
		}
	}
	rounds(2)
	exhaust(t, k.worker())
	rounds(2)
	k.crash()
	rounds(2)
	k.upgrade()
	rounds(2)
	testnet.IP(t, "link set v0 up")
	testwait.Until(t, "the link is up", func() bool {
		out, err := exec.Command("ip", "-o", "link", "show", "v0").Output()
		return err == nil && strings.Contains(string(out), " state UP ")
	})
	say("after")
	if again := heard(t, far, "after"); again != at {
		t.Errorf("after the link was away it comes from %s, and came from %s", again, at)
	}
	if n := k.metric("penstock_datagrams_dropped_total", `reason="unreachable"`); n == 0 || n != k.metric("penstock_datagrams_dropped_total", "") {
		t.Errorf("%v datagrams are dropped as unreachable, of %v", n, k.metric("penstock_datagrams_dropped_total", ""))
	}
	testnet.IP(t, "link set v0 down", strings.Replace(block, "add", "del", 1))
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		heardAny(last)
	}()
	testwait.Until(t, "it goes to the last member", func() bool {
		say("moved")
		select {
		case <-rest:
			return true
		default:
			return false
		}
	})
}

// A flow that has left its member for want of a route, and whose next members refuse, goes on to those that it has not tried, and does not go back to
// the one that it has left.
func TestLeftMemberIsNotTriedAgain(t *testing.T) {
	if !testnet.Netns(t) {
		return
	}
	k, far, last, members := runMany(t, "127.0.0.1", 8) // nobody is there, and more than a flow without a route asks for at once
	c := k.to("l")
	c.Write([]byte("before"))
	heard(t, far, "before")
	testnet.IP(t, "link set v0 down")
	arrived := make(chan struct{})
	go func() {
		defer close(arrived)
		heardAny(last)
	}()
	testwait.Until(t, "it goes to the last member", func() bool {
		c.Write([]byte("moves"))
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	for _, m := range members[:len(members)-1] {
		if n := k.metric("penstock_member_connect_failures_total", fmt.Sprintf(`member="%v"`, m)); n != 1 {
			t.Errorf("%v has failed %v times", m, n)
		}
	}
}

// heardAny waits for a datagram.
func heardAny(c net.PacketConn) { c.ReadFrom(make([]byte, 100)) }

// exhaust leaves a process no free descriptor, by its limit.
func exhaust(t *testing.T, pid int) {
	t.Helper()
	free := 0
	for {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, free)); err != nil {
			break
		}
		free++
	}
	if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(pid), fmt.Sprintf("--nofile=%d:", free)).CombinedOutput(); err != nil {
		t.Fatalf("prlimit: %v: %s", err, out)
	}
}

// A flow that has ignored an error before it is held has its member in the next worker.
func TestIgnoredErrorOutlivesWorker(t *testing.T) {
	t.Parallel()
	s, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	member := "udp://" + s.LocalAddr().String()
	s.Close() // so that what is sent there is refused
	k := &kept{configured: runFile(t, `
listeners: {l: {listen: "udp://127.0.0.1:0", unreachable: ignore, to: "{0}", timeouts: {idle: 10m}}}
keeper: {keep-after: 500ms, healthy-after: 100ms}
`, member)}
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	if _, err := k.to("l").Write([]byte("refused")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "an error is counted", func() bool { return strings.Contains(k.metrics(), "\npenstock_icmp_errors_total 1\n") })
	k.settled(1)
	k.crash()
	flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
	if err != nil || len(flows.Flows) != 1 || flows.Flows[0].Member != member {
		t.Errorf("%+v, %v", flows, err)
	}
	gs, err := k.admin.Groups(k.ctx())
	if err != nil || len(gs.Groups) != 1 || gs.Groups[0].Members[0].Flows != 1 {
		t.Errorf("%+v, %v", gs, err)
	}
}
