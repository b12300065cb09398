package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

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
