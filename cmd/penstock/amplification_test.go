package main

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// A client gets at most three times what came from it, until it has sent something after the first reply.
// What is dropped has its reason in the metrics.
func TestAmplification(t *testing.T) {
	t.Parallel()
	const more = 300 // bytes that the upstream adds
	up := datagramEcho(t, "udp4", "127.0.0.1:0", strings.Repeat("a", more))
	d := runFile(t, "listeners:\n  l: {listen: \"udp://127.0.0.1:0\", amplification: 3, to: \"udp://{0}\"}\n", up.String())
	c, err := net.Dial("udp", d.at("l").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "400 bytes for 100 are dropped", func() bool { return d.metric("penstock_datagrams_dropped_total", `reason="amplification"`) == 1 })
	if s, err := d.admin.Status(d.ctx()); err != nil || !slices.Equal(s.Resources.DatagramsDropped, []api.DatagramDrop{{Reason: "amplification", Count: 1}}) {
		t.Errorf("status: %+v, %v", s.Resources.DatagramsDropped, err)
	}
	if answer := ask(t, c, make([]byte, 200)); len(answer) != 200+more {
		t.Errorf("the first reply has %d bytes", len(answer))
	}
	for range 5 {
		if answer := ask(t, c, []byte("b")); len(answer) != 1+more || !bytes.HasSuffix(answer, []byte("ab")) {
			t.Errorf("a reply to a verified client has %d bytes", len(answer))
		}
	}
	if n := d.metric("penstock_datagrams_dropped_total", `reason="amplification"`); n != 1 {
		t.Errorf("%v datagrams dropped", n)
	}
	if n := d.metric("penstock_datagrams_dropped_total", `reason="limited"`); n != 0 {
		t.Errorf("%v datagrams of new clients dropped without a flood", n)
	}
}

// With always, a client that asks again and again, as whoever forges its address would, gets no more than that either.
func TestAmplificationAlways(t *testing.T) {
	t.Parallel()
	up := datagramEcho(t, "udp4", "127.0.0.1:0", strings.Repeat("a", 300))
	d := runFile(t, "listeners:\n  l: {listen: \"udp://127.0.0.1:0\", amplification: {ratio: 3, always: true}, to: \"udp://{0}\"}\n", up.String())
	c, err := net.Dial("udp", d.at("l").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	if answer := ask(t, c, make([]byte, 200)); len(answer) != 500 { // of 600
		t.Errorf("the first reply has %d bytes", len(answer))
	}
	if answer := ask(t, c, make([]byte, 100)); len(answer) != 400 { // of 900
		t.Errorf("the second reply has %d bytes", len(answer))
	}
	for i := range 5 {
		if _, err := c.Write([]byte("b")); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "a reply to a verified client is dropped", func() bool {
			return d.metric("penstock_datagrams_dropped_total", `reason="amplification"`) == float64(i+1)
		})
	}
}
