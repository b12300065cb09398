package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// from dials a listener from an address.
func (c *configured) from(ip net.IP, listener string) net.Conn {
	c.t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}).Dial("tcp", c.at(listener).String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// mustAnswer expects an echo.
func mustAnswer(t *testing.T, c net.Conn) {
	t.Helper()
	b := make([]byte, 1)
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, b); err != nil || b[0] != 'x' {
		t.Errorf("%q, %v", b, err)
	}
}

// Clients of a listener, or of a route, are split among groups, on TCP, UDP and Unix sockets. A part may refuse, and its flows have a reason.
// Each part is counted.
func TestSplit(t *testing.T) {
	t.Parallel()
	blue, green := speak(t, "blue"), speak(t, "green")
	d := runFile(t, `
listeners:
  all: {listen: "tcp://127.0.0.1:0", to: [{group: blue, weight: 1}, {group: green, weight: 1}]}
  none: {listen: "tcp://127.0.0.1:0", to: [{group: blue, weight: 0}, {refuse: true, weight: 1}]}
  unix: {listen: "unix://{dir}/s", split-by: source, to: [{group: blue, weight: 1}, {group: green, weight: 1}]}
  udp: {listen: "udp://127.0.0.1:0", routes: [{name: part, from: 127.0.0.1, to: [{group: "echo:", weight: 1}, {group: "discard:", weight: 0}]}]}
  udp-none: {listen: "udp://127.0.0.1:0", to: [{group: "echo:", weight: 0}, {refuse: true, weight: 3}]}
groups:
  blue: {members: ["{0}"]}
  green: {members: ["{1}"]}
`, blue.url(), green.url())
	for _, listener := range []string{"all", "unix"} { // at random: a client of a Unix socket has no address
		seen := map[string]bool{}
		testwait.Until(t, "clients of "+listener+" at both", func() bool {
			c := d.to(listener)
			defer c.Close()
			seen[name(t, c)] = true
			return seen["blue"] && seen["green"]
		})
	}
	d.mustTurnAway("none", "x")
	c := d.to("udp")
	mustAnswer(t, c)
	gone := d.to("udp-none")
	gone.Write([]byte("x"))
	testwait.Until(t, "refused flows in the access log", func() bool {
		n := 0
		for _, r := range d.records(1) {
			switch r["listener"] {
			case "none", "udp-none":
				mustBe(t, r, "cause", "refused", "reason", "split", "route", "default", "group", nil)
				n++
			}
		}
		return n == 2
	})
	l, err := d.admin.Listeners(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range l.Listeners {
		r := l.Routes[0]
		if len(r.Parts) != 2 {
			t.Fatalf("%s: %+v", l.Name, r)
		}
		a, b := r.Parts[0], r.Parts[1]
		switch l.Name {
		case "all", "unix":
			if a.Name != "blue" || a.Weight != 1 || b.Name != "green" || b.Weight != 1 || a.Begun == 0 || b.Begun == 0 || a.Begun+b.Begun != r.Begun {
				t.Errorf("%s: %+v", l.Name, r)
			}
		case "none", "udp-none":
			if !b.Refuse || a.Begun != 0 || b.Begun != 1 || b.Refused != 1 {
				t.Errorf("%s: %+v", l.Name, r)
			}
		case "udp":
			if r.Name != "part" || a.Begun != 1 || b.Begun != 0 {
				t.Errorf("%s: %+v", l.Name, r)
			}
		}
	}
}

// Clients that are split by their address stay in a part whose weight grows, over reloads, and penstock explain knows which one they have. The
// open flows of a part whose weight becomes 0 go on; those of a part that a reload removes end as the route says.
func TestSplitByAddress(t *testing.T) {
	t.Parallel()
	blue, green := speak(t, "blue"), speak(t, "green")
	const text = `
listeners:
  web:
    listen: "tcp://127.0.0.1:0"
    removed: {live-flows: close}
    split-by: source
    to: [{group: blue, weight: {2}}, {group: green, weight: {3}}]
groups:
  blue: {members: ["{0}"]}
  green: {members: ["{1}"]}
`
	d := runFile(t, text, blue.url(), green.url(), 100, 0)
	client := func(i int) net.IP { return net.IPv4(127, 77, 0, byte(i+1)) }
	var first net.Conn
	at := func() (list []string) {
		for i := range 40 {
			c := d.from(client(i), "web")
			list = append(list, name(t, c))
			if first == nil {
				first = c
				continue
			}
			c.Close()
		}
		return list
	}
	was, sum := at(), 0
	for _, weight := range []int{10, 30, 60, 100} {
		d.write(t, text, blue.url(), green.url(), 100-weight, weight)
		if diff := d.reload(); len(diff.Changes) != 1 || diff.Flows != 0 {
			t.Errorf("green %d: %+v", weight, diff)
		}
		now := at()
		moved := 0
		for i := range now {
			if was[i] == "green" && now[i] != "green" {
				t.Errorf("green %d: %v has left", weight, client(i))
			}
			if was[i] != now[i] {
				moved++
			} else if i%8 != 0 { // explain is a process of its own, and it is asked for those that move, and for a few of those that stay
				continue
			}
			out, _ := command(t, "explain", "-c", d.file, "--listener", "web", "--from", client(i).String())
			if want := fmt.Sprintf("by a hash of the client's address: %s, of blue", now[i]); !strings.Contains(out, want) {
				t.Errorf("explain: %s\nwant: %s", out, want)
			}
		}
		was, sum = now, sum+moved
	}
	if sum != 40 {
		t.Errorf("%d moves of 40 clients", sum)
	}
	mustAnswer(t, first)
	d.write(t, strings.Replace(text, "{group: blue, weight: {2}}, ", "", 1), blue.url(), green.url(), 0, 1)
	if diff := d.reload(); diff.Flows != 1 {
		t.Errorf("%+v", diff)
	}
	mustEnd(t, first)
	if l, err := d.admin.Listeners(d.ctx()); err != nil || l.Listeners[0].Routes[0].Group != "green" || len(l.Listeners[0].Routes[0].Parts) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Operators change the weights of parts at run time. What they have changed is there after a reload that changes something else, after a
// crash and after an upgrade, until the file has other weights; penstock diff --yaml prints it for the file.
func TestSplitAtRunTime(t *testing.T) {
	t.Parallel()
	blue, green := speak(t, "blue"), speak(t, "green")
	const text = `
reload: {watch: false}
listeners:
  web: {listen: "tcp://127.0.0.1:0", split-by: source, to: [{group: blue, weight: {2}}, {group: green, weight: {3}}, {refuse: true, weight: 0}]}
  other: {listen: "tcp://127.0.0.1:0", routes: [{name: one, from: 127.0.0.0/8, to: [{group: blue, weight: 1}, {group: green, weight: 0}]}], limits: {flows: {4}}}
  plain: {listen: "tcp://127.0.0.1:0", to: blue}
groups:
  blue: {members: ["{0}"]}
  green: {members: ["{1}"]}
`
	k := runKept(t, text, blue.url(), green.url(), 100, 0, 100)
	penstock := func(args ...string) string {
		t.Helper()
		out, code := command(t, append(args, "--admin", "unix://"+k.dir+"/admin.sock")...)
		if code != 0 {
			t.Fatalf("penstock %s: %d: %s", strings.Join(args, " "), code, out)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		if out, code := command(t, append(args, "--admin", "unix://"+k.dir+"/admin.sock")...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("penstock %s: %d: %s; want: %s", strings.Join(args, " "), code, out, want)
		}
	}
	at := func() (list []string) {
		for i := range 30 {
			c := k.from(net.IPv4(127, 78, 0, byte(i+1)), "web")
			list = append(list, name(t, c))
			c.Close()
		}
		return list
	}
	first := k.from(net.IPv4(127, 78, 0, 1), "web")
	if n := name(t, first); n != "blue" {
		t.Errorf("%s with all the weight at blue", n)
	}
	was, moved := at(), 0
	step := func(what string, grows bool) {
		t.Helper()
		now := at()
		for i := range now {
			if now[i] != was[i] {
				if moved++; !grows || now[i] != "green" {
					t.Errorf("%s: client %d from %s to %s", what, i, was[i], now[i])
				}
			}
		}
		was = now
	}
	for _, w := range []int{5, 30, 50} {
		penstock("split", "web", fmt.Sprint("blue=", 100-w), fmt.Sprint("green=", w))
		step(fmt.Sprint("green ", w), true)
	}
	if moved == 0 || moved == 30 {
		t.Errorf("%d of 30 clients are in green with a half of the weight", moved)
	}
	penstock("split", "other/one", "green=3")

	// What is changed stays.
	k.write(t, text, blue.url(), green.url(), 100, 0, 50)
	k.reload()
	step("a reload", false)
	k.settled(1)
	k.crash()
	step("a crash", false)
	k.upgrade()
	step("an upgrade", false)
	mustAnswer(t, first) // the flow, too
	if out := penstock("split"); !strings.Contains(out, "green") || !strings.Contains(out, "75%") {
		t.Errorf("penstock split: %s", out)
	}
	if out := penstock("diff"); !strings.Contains(out, "route web/default: blue has weight 50 instead of 100, green has weight 50 instead of 0") || !strings.Contains(out, "route other/one: green has weight 3 instead of 0") {
		t.Errorf("penstock diff: %s", out)
	}
	yaml := penstock("diff", "--yaml")
	if want := `# listener other, route one: to: [{group: blue, weight: 1}, {group: green, weight: 3}]
listeners:
  "web": {to: [{group: blue, weight: 50}, {group: green, weight: 50}, {refuse: true, weight: 0}]}
`; yaml != want {
		t.Errorf("penstock diff --yaml: %s, want %s", yaml, want)
	}
	if text, want := k.metrics(), `penstock_route_part_weight{listener="web",route="default",part="green"} 50`+"\n"; !strings.Contains(text, want) {
		t.Errorf("no %s in %s", want, text)
	}

	// Mistakes change nothing.
	refused("all weights would be 0", "split", "web", "blue=0", "green=0")
	refused("0 to 1000000", "split", "web", "blue=1000001")
	refused("no part", "split", "web", "red=1")
	refused("no listener", "split", "none", "red=1")
	refused("has one part", "split", "plain", "blue=1")
	step("mistakes", false)

	// The file overtakes the change of its own route only.
	k.write(t, text, blue.url(), green.url(), 90, 10, 50)
	k.reload()
	if l := parts(t, k.configured, "web"); l[0].Weight != 90 || l[1].Weight != 10 || l[1].FileWeight != 10 {
		t.Errorf("after the file has changed: %+v", l)
	}
	if l := parts(t, k.configured, "other"); l[1].Weight != 3 || l[1].FileWeight != 0 {
		t.Errorf("the other route: %+v", l)
	}
	penstock("split", "other/one", "--restore")
	if l := parts(t, k.configured, "other"); l[1].Weight != 0 {
		t.Errorf("restored: %+v", l)
	}
	if out := penstock("diff"); !strings.Contains(out, "as the file has them") {
		t.Errorf("penstock diff: %s", out)
	}
}

// parts returns the parts of the first route of a listener.
func parts(t *testing.T, c *configured, listener string) []api.Part {
	t.Helper()
	l, err := c.admin.Listeners(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(l.Listeners, func(l api.Listener) bool { return l.Name == listener })
	return l.Listeners[i].Routes[0].Parts
}
