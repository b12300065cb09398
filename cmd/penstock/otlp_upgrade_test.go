package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// An upgrade makes neither a hole nor a double in what a collector has: flows that end while it does not answer are sent by the next worker,
// counters go on with the time from which they count, and what the last worker has counted is sent at its end. A crash loses the record that
// has no answer yet, which is counted, and no other.
func TestCollectorOverUpgrade(t *testing.T) {
	t.Parallel()
	one := speak(t, "one")
	c := &otlpCollector{flows: map[string]int{}}
	var gate atomic.Pointer[chan struct{}] // closed: it answers
	hang := func() (answer func()) {
		c := make(chan struct{})
		gate.Store(&c)
		return func() { close(c) }
	}
	answer := hang()
	given := make(chan struct{}, 2) // a request was given up
	asked := make(chan struct{}, 1)
	l := testnet.Listen(t, "tcp4")
	var hanging http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/logs" {
			b, err := io.ReadAll(r.Body) // the end of the connection is noticed after that only
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			select {
			case <-*gate.Load():
			default:
				select {
				case asked <- struct{}{}:
				default:
				}
				select {
				case <-*gate.Load():
				case <-r.Context().Done(): // nothing is noted
					given <- struct{}{}
					return
				}
			}
		}
		c.ServeHTTP(w, r)
	}
	s := &http.Server{Handler: hanging}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	k := runKept(t, `access-log: {to: otlp}
otlp: {to: "http://{1}", every: 1s}
listeners: {a: {listen: "tcp://127.0.0.1:0", to: all}}
groups: {all: {members: [{name: one, to: "{0}"}]}}
`, one.url(), l.Addr().String())
	var clients []string
	flow := func() net.Conn {
		t.Helper()
		c := k.to("a")
		name(t, c)
		clients = append(clients, c.LocalAddr().String())
		return c
	}
	long := flow()
	for range 3 {
		flow().Close()
	}
	<-asked // the collector has the request, and does not answer
	for range 3 {
		flow().Close()
	}
	testwait.Until(t, "all flows but one have ended", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == 1 && s.Totals.Begun == 7
	})
	k.holds(1)
	k.upgrade()
	<-given
	answer()
	long.Close()
	lost := map[string]bool{}
	has := func(what string) {
		t.Helper()
		testwait.Until(t, what, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.connects == float64(len(clients)) && !slices.ContainsFunc(clients, func(client string) bool { return c.flows[client] == 0 && !lost[client] })
		})
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, client := range clients {
			if n := c.flows[client]; n != 1 && !lost[client] || n != 0 && lost[client] {
				t.Errorf("%s: %d records of the flow from %s", what, n, client)
			}
		}
		if c.less || c.dropped != float64(len(lost)) {
			t.Errorf("%s: connects have decreased: %v; %v records were dropped", what, c.less, c.dropped)
		}
	}
	has("after an upgrade")
	for len(asked) > 0 {
		<-asked
	}
	for len(given) > 0 { // by the time of a request, which is over on a machine that is busy
		<-given
	}
	answer = hang()
	flow().Close()
	<-asked // so all records before it are done with
	k.crash()
	<-given
	lost[clients[len(clients)-1]] = true
	answer()
	flow().Close()
	has("after a crash")
	flow().Close()
	k.signal(syscall.SIGTERM)
	k.mustExit(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := clients[len(clients)-1]; c.connects != float64(len(clients)) || c.flows[client] != 1 || c.less {
		t.Errorf("at the end the collector has %v of %d flows, and %d records of the last", c.connects, len(clients), c.flows[client])
	}
}
