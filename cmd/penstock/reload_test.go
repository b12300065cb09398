package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// hup reloads with the signal, and waits until the log has n lines with the outcome.
func (c *configured) hup(msg string, n int) map[string]any {
	c.t.Helper()
	c.signal(syscall.SIGHUP)
	return c.wait(msg, n)[n-1]
}

const notTaken = "configuration rejected; nothing changed"

// Reloads under load: two files that lead a listener's clients to different groups with different
// members, and a listener that comes and goes. No client is refused, no flow is cut, and clients
// that come after a reload go where the new file says.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	one, two, three := speak(t, "one"), speak(t, "two"), speak(t, "three")
	const files = 2
	texts := [files]string{`
listeners:
  main:
    listen: tcp://127.0.0.1:0
    routes: [{name: lan, from: 127.0.0.0/8, to: first}]
groups:
  first: {members: ["{0}", "{1}"]}
`, `
listeners:
  main:
    listen: tcp://127.0.0.1:0
    routes: [{name: lan, from: 127.0.0.0/8, to: second}]
  added: {listen: "tcp://127.0.0.1:0", to: first}
groups:
  first: {balance: p2c, members: ["{0}"]}
  second: {members: ["{2}"]}
`}
	values := []any{one.url(), two.url(), three.url()}
	d := runFile(t, texts[0], values...)
	addr := d.at("main").String()

	var long []net.Conn
	for range 10 {
		c := d.to("main")
		name(t, c)
		long = append(long, c)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var served, visits atomic.Int64
	visit := func() error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		if _, err := readName(c); err != nil {
			return err
		}
		visits.Add(1)
		return pingOn(c)
	}
	always := func(do func() error) {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
				served.Add(1)
			}
		})
	}
	for range 3 {
		always(visit)
	}
	for _, c := range long {
		always(func() error {
			c.SetDeadline(time.Now().Add(patience))
			return pingOn(c)
		})
	}
	halt := sync.OnceFunc(func() { close(stop); load.Wait() })
	t.Cleanup(halt)
	for i := range 12 {
		c := i + 1
		d.write(t, texts[c%files], values...)
		d.hup("reloaded", c)
		late := d.to("main")
		if n := name(t, late); (n == "three") != (c%files == 1) {
			t.Errorf("after reload %d a client went to %s", c, n)
		}
		late.Close()
		if c%files == 1 {
			added := d.to("added")
			if n := name(t, added); n != "one" {
				t.Errorf("a client of the new listener went to %s", n)
			}
			added.Close()
		}
		seen := served.Load()
		testwait.Until(t, "the load goes on", func() bool { return served.Load() > seen+20 || t.Failed() })
	}
	halt()
	for _, c := range long {
		mustPing(t, c)
	}
	s, err := d.admin.Status(d.ctx())
	if err != nil || s.Totals.Refused+s.Totals.Failed > 0 || s.Totals.Begun < visits.Load() {
		t.Errorf("%v, %+v", err, s.Totals)
	}
}

func pingOn(c net.Conn) error {
	buf := []byte("ping")
	if _, err := c.Write(buf); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "ping" {
		return fmt.Errorf("%q, %w", buf, err)
	}
	return nil
}

// A route decides what happens to flows whose member is gone: they stay, they end in the time before a deadline, or they
// end at once. That they are spread over that time is in the tests of package liveflows.
func TestRemovedMembers(t *testing.T) {
	t.Parallel()
	old, fresh := speak(t, "old"), speak(t, "fresh")
	const text = `
listeners:
  keep: {listen: "tcp://127.0.0.1:0", to: all}
  drain: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: drain, after: 1500ms, jitter: 1s}}
  close: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: close}}
  gone: {listen: "tcp://127.0.0.1:0", to: all, removed: {live-flows: close}}
groups: {all: {members: ["{0}"]}}
`
	d := runFile(t, text, old.url())
	const each = 8
	conns := map[string][]net.Conn{}
	for _, l := range []string{"keep", "drain", "close", "gone"} {
		for range each {
			c := d.to(l)
			name(t, c)
			conns[l] = append(conns[l], c)
		}
	}
	gone := d.at("gone").String()
	next := strings.Replace(text, "  gone:", "  # gone:", 1)
	d.write(t, next, fresh.url())
	before := time.Now()
	diff := d.reload()
	if diff.Flows != 3*each { // the flows of keep go on
		t.Errorf("the reload ends %d flows, of %d: %+v", diff.Flows, 4*each, diff)
	}
	if c, err := net.Dial("tcp", gone); err == nil {
		c.Close()
		t.Error("a listener that is gone takes clients")
	}
	for _, c := range append(conns["close"], conns["gone"]...) {
		mustEnd(t, c)
	}
	for _, c := range conns["drain"] {
		mustEnd(t, c)
	}
	for _, c := range conns["keep"] {
		mustPing(t, c)
	}
	for _, r := range d.records(3 * each) {
		mustBe(t, r, "cause", "removed", "reason", "removed", "member", old.url())
		if r["listener"] != "drain" {
			continue
		}
		start, err := time.Parse(time.RFC3339Nano, r["time"].(string))
		if err != nil {
			t.Fatal(err)
		}
		end := start.Add(time.Duration(r["duration"].(float64) * float64(time.Second)))
		if end.Before(before.Add(500*time.Millisecond - 20*time.Millisecond)) {
			t.Errorf("a flow was to go on for half a second at least, and ended after %v", end.Sub(before))
		}
	}
	c := d.to("keep")
	if n := name(t, c); n != "fresh" {
		t.Errorf("a new client went to %s", n)
	}
}

// A configuration with errors changes nothing, and the log, the API and check say why. Neither does
// one with a listener whose port is in use.
func TestBadReload(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	const text = `
listeners:
  main: {listen: "tcp://127.0.0.1:0", to: "{0}"}
`
	d := runFile(t, text, one.url())
	c := d.to("main")
	name(t, c)
	was, err := d.admin.Status(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	same := func() {
		t.Helper()
		mustPing(t, c)
		late := d.to("main")
		if n := name(t, late); n != "one" {
			t.Errorf("a client went to %s", n)
		}
		late.Close()
		s, err := d.admin.Status(d.ctx())
		if err != nil || s.Config.Hash != was.Config.Hash || len(s.Listeners) != 1 {
			t.Errorf("%v, %+v", err, s)
		}
	}

	d.write(t, "listeners:\n  main: {listen: \"tcp://127.0.0.1:0\", to: \"{0}\", too: 1}\n  other: {listen: \"tcp:/nowhere\", to: \"{0}\"}\n", two.url())
	d.signal(syscall.SIGHUP)
	lines := d.wait(notTaken, 2)
	for i, place := range []string{":2:", ":3:"} {
		if e, _ := lines[i]["error"].(string); !strings.HasPrefix(e, d.file+place) {
			t.Errorf("error %d is %q, want one at %s", i, e, place)
		}
	}
	same()
	var problem *api.Problem
	if _, err := d.admin.Reload(d.ctx()); !errors.As(err, &problem) || len(problem.Errors) != 2 || problem.Errors[0].Line != 2 ||
		!strings.Contains(problem.Errors[0].Message, "did you mean to?") || problem.Errors[1].Allowed == "" {
		t.Errorf("%v, %+v", err, problem)
	}
	s, err := d.admin.Status(d.ctx())
	if err != nil || s.Config.Failed == nil || len(s.Config.Failed.Errors) != 2 {
		t.Errorf("%v, %+v", err, s.Config)
	}
	if out, code := command(t, "check", "-c", d.file); code != 2 || !strings.Contains(out, d.file+":2:") || !strings.Contains(out, d.file+":3:") {
		t.Errorf("%d: %s", code, out)
	}

	taken := testnet.Listen(t, "tcp4")
	d.write(t, text+`
  other: {listen: "tcp://127.0.0.1:0", to: "{0}"}
  taken: {listen: "{1}", to: "{0}"}
  last: {listen: "unix://{dir}/last", to: "{0}"}
`, two.url(), url(taken.Addr()))
	if out, code := command(t, "check", "-c", d.file); code != 0 {
		t.Errorf("%d: %s", code, out)
	}
	if l := d.hup(notTaken, 5); !strings.Contains(l["error"].(string), "listener taken") {
		t.Errorf("%v", l)
	}
	same()
	taken.Close()
	testwait.Until(t, "the address is free", func() bool { // a process that another test has just started may have a copy of the listener
		_, err := d.admin.Reload(d.ctx())
		return err == nil
	})
	late := d.to("taken")
	if n := name(t, late); n != "two" {
		t.Errorf("a client went to %s", n)
	}
	mustPing(t, c)
	if s, err = d.admin.Status(d.ctx()); err != nil || s.Config.Failed != nil || len(s.Listeners) != 4 {
		t.Errorf("%v, %+v", err, s.Config)
	}
}

// Every reload reports what waits for the next start, until the restart or until it is undone,
// which changes nothing.
func TestReloadComparesWithTheRunningConfiguration(t *testing.T) {
	t.Parallel()
	const text = `
listeners: {main: {listen: "tcp://127.0.0.1:0", to: "echo:"}}
`
	d := runFile(t, text)
	reload := func(text string, restart bool, changes int) {
		t.Helper()
		d.write(t, text)
		diff, err := d.admin.Reload(d.ctx())
		if err != nil || diff.Restart != restart || len(diff.Changes) != changes {
			t.Errorf("%v, %+v", err, diff)
		}
	}
	reload(text+"engine: {pipes: 9}\n", true, 1)
	reload(text+"engine: {pipes: 9}\n", true, 1)
	reload(text, false, 0)
}

// Flows that are not connected yet when their group is removed, because they are queued or being
// sniffed, go where the new file says.
func TestReloadWhileConnecting(t *testing.T) {
	t.Parallel()
	old, fresh := speak(t, "old"), speak(t, "fresh")
	const text = `
listeners:
  queue: {listen: "tcp://127.0.0.1:0", to: {1}}
  sniff:
    listen: tcp://127.0.0.1:0
    sniff: {timeout: 1m}
    routes: [{sni: one.test, to: "echo:"}]
    to: {1}
groups:
  {1}: {members: [{to: "{0}", max-flows: 1}], queue: {size: 5, timeout: 1m}}
`
	d := runFile(t, text, old.url(), "first")
	held := d.to("queue")
	name(t, held)
	waits := d.to("queue")
	testwait.Until(t, "one waits", func() bool {
		g, err := d.admin.Group(d.ctx(), "first")
		return err == nil && g.Queue.Flows == 1
	})
	says := d.to("sniff")
	says.Write([]byte("\x16\x03\x01"))
	testwait.Until(t, "one has begun to speak", func() bool {
		l, err := d.admin.Flows(d.ctx(), api.Filter{State: "sniffing"}, api.Page{})
		return err == nil && len(l.Flows) == 1
	})
	d.write(t, text, fresh.url(), "second")
	d.reload()
	if n := name(t, waits); n != "fresh" {
		t.Errorf("who waited went to %s", n)
	}
	waits.Close()
	io.WriteString(says, "no TLS, after all")
	if n := name(t, says); n != "fresh" {
		t.Errorf("who was speaking went to %s", n)
	}
	mustPing(t, held)
}

// A listener that is renamed but keeps its address keeps its clients, and they keep counting for
// its limits.
func TestRenamedListenerKeepsItsLimits(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	port := testnet.Port(t)
	const text = `
listeners: {NAME: {listen: "tcp://127.0.0.1:{0}", limits: {flows: 1}, to: "{1}"}}
`
	d := runFile(t, strings.Replace(text, "NAME", "before", 1), port, up.url())
	c := d.to("before")
	name(t, c)
	d.mustTurnAway("before", "x")
	d.write(t, strings.Replace(text, "NAME", "after", 1), port, up.url())
	d.reload()
	d.mustTurnAway("after", "x")
	mustPing(t, c)
	c.Close()
	d.records(3)
	name(t, d.to("after"))
}

// A listener that gets another name at the same address goes on: its flows are not those of a
// removed one.
func TestRenamedListenerKeepsItsFlows(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	port := testnet.Port(t)
	const text = `
listeners: {NAME: {listen: "tcp://127.0.0.1:{0}", to: "{1}", removed: {live-flows: close}}}
`
	d := runFile(t, strings.Replace(text, "NAME", "before", 1), port, up.url())
	c := d.to("before")
	name(t, c)
	d.write(t, strings.Replace(text, "NAME", "after", 1), port, up.url())
	if diff := d.reload(); diff.Flows != 0 {
		t.Errorf("the reload ends flows: %+v", diff)
	}
	mustPing(t, c)
	// At another address it is another listener.
	d.write(t, strings.Replace(text, "NAME", "moved", 1), testnet.Port(t), up.url())
	if diff := d.reload(); diff.Flows != 1 {
		t.Errorf("the reload ends %d flows, want 1: %+v", diff.Flows, diff)
	}
	mustEnd(t, c)
}
