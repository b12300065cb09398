package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// soon is a check that finds out soon: whoever does not listen refuses it at once, and whoever does may take its time.
const soon = "{tcp: {every: 100ms, timeout: 60s, rise: 1, fall: 2}}"

// memberIs waits until a member is in a state.
func (c *configured) memberIs(group, member, state string) {
	c.t.Helper()
	testwait.Until(c.t, member+" is "+state, func() bool {
		g, err := c.admin.Group(c.ctx(), group)
		if err != nil {
			return false
		}
		for _, m := range g.Members {
			if m.Name == member && m.State == state {
				return true
			}
		}
		return false
	})
}

// mustReset expects that a stream is reset.
func mustReset(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if rest, err := io.ReadAll(c); len(rest) > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream is not reset: %q, %v", rest, err)
	}
}

// resume is speak at the address of a speaker that has closed its listener.
func (s *speaker) resume(t *testing.T) *speaker {
	t.Helper()
	l, err := net.Listen(s.Addr().Network(), s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return speakAt(t, l, s.name)
}

// streams returns how many connections a speaker has.
func (s *speaker) streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Members that no longer listen, but go on with the connections that they have: of those of a group that says so, the flows end, with a reset
// towards both sides, also if the member is drained. Others go on.
func TestFlowsOfMembersThatGoDown(t *testing.T) {
	t.Parallel()
	one, two, three := speak(t, "one"), speak(t, "two"), speak(t, "three")
	d := runFile(t, `
listeners:
  close: {listen: "tcp://127.0.0.1:0", to: close}
  path: {listen: "unix://{dir}/path", to: close}
  keep: {listen: "tcp://127.0.0.1:0", to: keep}
groups:
  close: {balance: first, check: {3}, down: {live-flows: close}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}, {name: three, to: "{2}"}]}
  keep: {balance: first, check: {3}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}, {name: three, to: "{2}"}]}
`, one.url(), two.url(), three.url(), soon)
	d.memberIs("close", "one", "up")
	d.memberIs("keep", "one", "up")
	closed, kept := d.to("close"), d.to("keep")
	path := testnet.Dial(t, &net.UnixAddr{Net: "unix", Name: d.dir + "/path"})
	for _, c := range []net.Conn{closed, path, kept} {
		if n := name(t, c); n != "one" {
			t.Fatalf("a client is at %s", n)
		}
	}
	one.Close()
	mustReset(t, closed)
	mustEnd(t, path)
	d.memberIs("keep", "one", "down")
	mustPing(t, kept)
	testwait.Until(t, "the member has lost the flows that ended", func() bool { return one.streams() == 1 })
	for _, r := range d.records(2)[:2] {
		mustBe(t, r, "cause", "down", "reason", "check-failed", "member", "one", "group", "close")
	}
	if n := d.metric("penstock_flows_ended_total", `cause="down"`); n != 2 {
		t.Errorf("%v flows ended by the cause", n)
	}

	// A client of a member that is drained, and then goes down.
	c := d.to("close")
	if n := name(t, c); n != "two" {
		t.Fatalf("a client is at %s", n)
	}
	if _, err := d.admin.SetMember(d.ctx(), "close", "two", api.MemberChange{State: "drain"}); err != nil {
		t.Fatal(err)
	}
	mustPing(t, c)
	two.Close()
	mustReset(t, c)
}

// A member that was added at run time is as one of the file.
func TestFlowsOfAddedMemberThatGoesDown(t *testing.T) {
	t.Parallel()
	one, two, added := speak(t, "one"), speak(t, "two"), speak(t, "added")
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {check: {2}, down: {live-flows: close}, members: [{name: one, to: "{0}", backup: true}, {name: two, to: "{1}", backup: true}]}}
`, one.url(), two.url(), soon)
	if _, err := d.admin.AddMember(d.ctx(), "all", api.NewMember{Name: "added", Address: added.url()}); err != nil {
		t.Fatal(err)
	}
	d.memberIs("all", "added", "up")
	d.memberIs("all", "one", "up")
	c := d.to("a")
	if n := name(t, c); n != "added" {
		t.Fatalf("a client is at %s", n)
	}
	added.Close()
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "down", "member", "added")
}

// A member that is ejected, because a new client cannot connect to it, loses the clients that it has.
func TestFlowsOfEjectedMember(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: first, eject: {failures: 1}, down: {live-flows: close}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`, one.url(), two.url())
	c := d.to("a")
	if n := name(t, c); n != "one" {
		t.Fatalf("a client is at %s", n)
	}
	one.Close()
	other := d.to("a")
	if n := name(t, other); n != "two" {
		t.Fatalf("a client is at %s", n)
	}
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "down", "reason", "ejected", "member", "one")
	mustPing(t, other)
}

// A check that fails for most members at once does not end their flows, and that is said. Here it does for the only member.
func TestFlowsOfMostMembersGoOn(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	d := runFile(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {check: {1}, down: {live-flows: close}, members: [{name: one, to: "{0}"}]}}
`, one.url(), soon)
	d.memberIs("all", "one", "up")
	c := d.to("a")
	name(t, c)
	one.Close()
	mustBe(t, d.line("most members have failed at once: their flows continue, whatever down says"), "group", "all", "member", "one", "failed", 1.0, "members", 1.0)
	d.memberIs("all", "one", "down")
	mustPing(t, c)
	if n := d.metric("penstock_down_kept_flows_total", `group="all"`); n != 1 {
		t.Errorf("%v flows are counted", n)
	}
	events, err := d.admin.Events(d.ctx(), 0)
	if err != nil || !strings.Contains(fmt.Sprint(events.Events), "their flows continue") {
		t.Errorf("%v, %+v", err, events)
	}
}

// Flows on a backup end when a primary is back; those that come to it later, because the primary is full, go on.
func TestFlowsOfBackupsGoBack(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
listeners:
  a: {listen: "tcp://127.0.0.1:0", to: all}
  gone: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: close}}
groups: {all: {check: {2}, up: {live-flows: close}, members: [{name: one, to: "{0}", max-flows: 2}, {name: two, to: "{1}", backup: true}]}}
`
	d := runFile(t, text, one.url(), two.url(), soon)
	d.memberIs("all", "one", "up")
	before := d.to("a")
	name(t, before)
	one.Close()
	d.memberIs("all", "one", "down")
	c := d.to("a")
	if n := name(t, c); n != "two" {
		t.Fatalf("a client is at %s", n)
	}
	one.resume(t)
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "failback", "member", "two")
	mustPing(t, before)
	gone := d.to("gone")
	if n := name(t, gone); n != "one" {
		t.Errorf("a client is at %s", n)
	}
	late := d.to("a")
	if n := name(t, late); n != "two" {
		t.Errorf("a client is at %s", n)
	}
	d.write(t, strings.Replace(text, "  gone:", "  # gone:", 1), one.url(), two.url(), soon)
	d.reload() // which looks for flows that are to end
	mustReset(t, gone)
	mustPing(t, late)
	mustPing(t, before)
}

// A member that is up again before the end of after keeps its flows; a reload that no longer wants the end keeps them, too; one that
// removes the member ends them as it says.
func TestFlowsOfMemberThatIsUpAgain(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: close}}}
groups: {all: {balance: first, check: {2}, down: {live-flows: drain, after: 1h}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`
	d := runFile(t, text, one.url(), two.url(), soon)
	d.memberIs("all", "one", "up")
	c := d.to("a")
	name(t, c)
	one.Close()
	d.memberIs("all", "one", "down")
	mustPing(t, c)
	again := one.resume(t)
	d.memberIs("all", "one", "up")
	mustPing(t, c)
	again.Close()
	d.memberIs("all", "one", "down")
	d.write(t, strings.Replace(text, `{name: one, to: "{0}"}, `, "", 1), one.url(), two.url(), soon)
	d.reload()
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "removed", "member", "one")
}

// Flows that wait for their end take what a reload says of it: here it comes an hour sooner.
func TestReloadMovesEndsOfFlows(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: first, check: {2}, down: {live-flows: drain, after: {3}}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`
	d := runFile(t, text, one.url(), two.url(), soon, "1h")
	d.memberIs("all", "one", "up")
	c := d.to("a")
	name(t, c)
	one.Close()
	d.memberIs("all", "one", "down")
	d.write(t, text, one.url(), two.url(), soon, "2h")
	d.reload()
	mustPing(t, c)
	d.write(t, text, one.url(), two.url(), soon, "100ms")
	d.reload()
	mustReset(t, c)
	mustBe(t, d.records(1)[0], "cause", "down", "reason", "check-failed", "member", "one")
}

// A worker that takes over between the member's failure and the end of its flows ends them, however the one before has ended.
func TestEndsOfFlowsOutliveWorker(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*kept)
	}{{"crash", (*kept).crash}, {"upgrade", (*kept).upgrade}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one, two := speak(t, "one"), speak(t, "two")
			k := runKept(t, `
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {balance: first, check: {2}, down: {live-flows: drain, after: 4s}, members: [{name: one, to: "{0}"}, {name: two, to: "{1}"}]}}
`, one.url(), two.url(), soon)
			k.memberIs("all", "one", "up")
			conn := k.to("a")
			name(t, conn)
			k.settled(1)
			one.Close()
			k.memberIs("all", "one", "down")
			c.end(k)
			mustEnd(t, conn)
			mustBe(t, k.records(1)[0], "cause", "down", "member", "one")
			k.memberIs("all", "one", "down")
		})
	}
}

// A client of UDP whose member goes down is at another one with its next datagram.
func TestDatagramFlowsOfMemberThatGoesDown(t *testing.T) {
	t.Parallel()
	one, two := datagramEcho(t, "udp4", "127.0.0.1:0", "one "), datagramEcho(t, "udp4", "127.0.0.1:0", "two ")
	// The first one is checked at another port, which refuses at once when nobody is there.
	checks, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer checks.Close()
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := checks.ReadFrom(b)
			if err != nil {
				return
			}
			checks.WriteTo(b[:n], from)
		}
	}()
	d := runFile(t, `
listeners: {a: {listen: "udp://127.0.0.1:0", to: all}}
groups:
  all:
    balance: first
    check: {udp: {every: 100ms, timeout: 60s, rise: 1, fall: 2, send: check, expect: check}}
    down: {live-flows: close}
    members: [{name: one, to: "udp://{0}", check-port: {2}}, {name: two, to: "udp://{1}"}]
`, one, two, portOf(checks.LocalAddr()))
	d.memberIs("all", "one", "up")
	c := testnet.Dial(t, d.at("a"))
	b := make([]byte, 100)
	ask := func() string {
		testwait.Until(t, "an answer comes", func() bool {
			c.SetDeadline(time.Now().Add(time.Second))
			io.WriteString(c, "hello")
			n, err := c.Read(b)
			b = b[:max(n, 0)]
			return err == nil
		})
		defer func() { b = b[:cap(b)] }()
		return string(b)
	}
	if a := ask(); a != "one hello" {
		t.Fatalf("%q", a)
	}
	checks.Close()
	mustBe(t, d.records(1)[0], "cause", "down", "member", "one")
	if a := ask(); a != "two hello" {
		t.Errorf("%q", a)
	}
}
