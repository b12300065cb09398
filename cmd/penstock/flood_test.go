package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testnet"
)

// flood makes n connections at once and returns those that were admitted, which a speaker answers.
func flood(t *testing.T, to net.Addr, n int) (in []net.Conn) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			c, err := net.Dial("tcp", to.String())
			if err != nil {
				return // a reset may come before connect has returned
			}
			c.SetDeadline(time.Now().Add(patience))
			if _, err := readName(c); err != nil {
				c.Close()
				return
			}
			mu.Lock()
			in = append(in, c)
			mu.Unlock()
		})
	}
	all.Wait()
	t.Cleanup(func() { closeAll(in) })
	return in
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// metric returns the sum of the samples of a series whose labels contain a text.
func (c *configured) metric(series, labels string) (sum float64) {
	c.t.Helper()
	for line := range strings.Lines(c.metrics()) {
		if rest, ok := strings.CutPrefix(line, series); ok && strings.HasPrefix(rest, "{") && strings.Contains(rest, labels) {
			f := strings.Fields(rest)
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				c.t.Fatalf("%q: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// metrics returns all metrics as text.
func (c *configured) metrics() string {
	c.t.Helper()
	h := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(c.dir, "admin.sock"))
	}}}
	resp, err := h.Get("http://localhost/metrics")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		c.t.Fatalf("%v, %s", err, resp.Status)
	}
	return string(text)
}

// A flood above each limit: as many clients as the limit allows are admitted, and the others are
// refused with its reason, in the access log and the metrics. When the first ones have left, others
// are admitted.
func TestFlood(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	const limit, many = 10, 40
	for _, c := range []struct{ reason, all, listener string }{
		{"flows", "flows: 10", ""},
		{"listener-flows", "", "flows: 10"},
		{"source-flows", "", "source: {flows: 10}"},
		{"rate", "new-flows: 1/h, burst: 10", ""},
		{"listener-rate", "", "new-flows: 1/h, burst: 10"},
		{"source-rate", "", "source: {new-flows: 1/h, burst: 10}"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			const text = "limits: {{0}}\nlisteners:\n  l: {listen: \"tcp://127.0.0.1:0\", limits: {{1}}, to: \"{2}\"}\n"
			d := runFile(t, text, c.all, c.listener, up.url())
			addr := d.at("l")
			in := flood(t, addr, many)
			if len(in) != limit {
				t.Errorf("%d are in, want %d", len(in), limit)
			}
			for _, r := range d.records(many - limit)[:many-limit] {
				mustBe(t, r, "cause", "refused", "reason", c.reason, "listener", "l")
			}
			if n := d.metric("penstock_refusals_total", fmt.Sprintf("reason=%q", c.reason)); n != many-limit {
				t.Errorf("%v refusals in the metrics", n)
			}
			for _, conn := range in {
				mustPing(t, conn)
			}
			closeAll(in)
			d.records(many)
			if strings.Contains(c.reason, "rate") {
				// A rate has nobody leaving; another file lifts it.
				if again := flood(t, addr, 5); len(again) > 0 {
					t.Errorf("%d came in again", len(again))
				}
				d.write(t, text, "", "", up.url())
				d.reload()
			}
			again := flood(t, addr, limit)
			if len(again) != limit {
				t.Errorf("%d of %d are in after the first have left", len(again), limit)
			}
			closeAll(again)
		})
	}
}

// proxied dials a listener as a proxy on behalf of a client.
func proxied(t *testing.T, to net.Addr, version byte, client string) net.Conn {
	t.Helper()
	from, err := net.ResolveTCPAddr("tcp", client)
	if err != nil {
		t.Fatal(err)
	}
	dst := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	if from.IP.To4() == nil {
		dst.IP = net.ParseIP("2001:db8::1")
	}
	c := testnet.Dial(t, to)
	c.SetDeadline(time.Now().Add(patience))
	if _, err := proxyproto.HeaderProxyFromAddrs(version, from, dst).WriteTo(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A source is an IPv4 address or an IPv6 /64; denied clients are refused.
func TestSources(t *testing.T) {
	t.Parallel()
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  proxied:
    listen: tcp://127.0.0.1:0
    proxy-protocol: {from: 127.0.0.0/8}
    deny: ["2001:db8:bad::/48", 198.51.100.7]
    limits: {source: {flows: 2}}
    to: "{0}"
  direct:
    listen: tcp://127.0.0.1:0
    allow: 127.0.0.0/8
    deny: 127.0.0.2
    to: "{0}"
`, up.url())
	to := d.at("proxied")
	refused := 0
	for _, c := range []struct{ client, reason string }{
		{"[2001:db8:0:1::1]:1000", ""},
		{"[2001:db8:0:1:ffff::2]:1000", ""},
		{"[2001:db8:0:1::3]:1000", "source-flows"},
		{"[2001:db8:0:2::1]:1000", ""},
		{"[2001:db8:bad:7::1]:1000", "denied"},
		{"192.0.2.1:1000", ""},
		{"192.0.2.1:1001", ""},
		{"192.0.2.1:1002", "source-flows"},
		{"192.0.2.2:1000", ""},
		{"198.51.100.7:1000", "denied"},
		{"198.51.100.8:1000", ""},
	} {
		conn := proxied(t, to, 2, c.client)
		if c.reason == "" {
			name(t, conn)
			continue
		}
		mustEnd(t, conn)
		refused++
		mustBe(t, d.records(refused)[refused-1], "cause", "refused", "reason", c.reason, "client", "tcp://"+c.client)
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", d.at("direct").String())
		if err == nil {
			conn.SetDeadline(time.Now().Add(patience))
			_, err = readName(conn)
			conn.Close()
		}
		if (err == nil) != (from == "127.0.0.1") || os.IsTimeout(err) {
			t.Errorf("from %s: %v", from, err)
		}
	}
	for _, r := range d.records(refused + 2) {
		if r["listener"] == "direct" && r["client_ip"] == "127.0.0.2" {
			mustBe(t, r, "cause", "refused", "reason", "denied")
		}
	}
}
