package main

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// closeOnFailure is the field of a Cluster that ends the flows of endpoints whose health check fails.
const closeOnFailure = `, "closeConnectionsOnHostHealthFailure": true`

// pingCheck is a health check of a Redis: PING, +PONG.
const pingCheck = `, "healthChecks": [{"timeout": "3s", "interval": "0.5s", "noTrafficInterval": "0.5s", "unhealthyThreshold": 2, "healthyThreshold": 1, "tcpHealthCheck": {"send": {"text": "50494e470d0a"}, "receive": [{"text": "2b504f4e47"}]}}]`

// A Redis hangs: the sessions of its clients end where the cluster says so, and go on where it does not, in Penstock and, with -envoy, in Envoy.
func TestEndpointHangsAsInEnvoy(t *testing.T) {
	need(t, "redis-server")
	t.Parallel()
	victim, p := hanging(t)
	var endpoints []string
	for i := range 3 {
		at := victim
		if i > 0 {
			at, _ = hanging(t)
		}
		a, err := net.ResolveTCPAddr("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, endpointAt(a, ""))
	}
	var resources []string
	for name, more := range map[string]string{"close": closeOnFailure, "keep": ""} {
		resources = append(resources, tcpListener(name, name, 0, ""), edsCluster(name, pingCheck+more), assignment(name, endpoints...))
	}
	plane := newXDSPlane(t, resources...)
	d := runXDS(t, plane, t.TempDir())
	relays := map[string]func(string) net.Addr{"Penstock": d.at}
	if *envoy != "" {
		theirs := runEnvoy(t, plane)
		relays["Envoy"] = func(name string) net.Addr { return theirs(t, name) }
	}
	_, port, _ := net.SplitHostPort(victim)
	at := func(relay, name string) net.Conn {
		return connectedTo(t, relay+" leads to the Redis that will hang", relays[relay](name).String(), port)
	}
	closed, kept := map[string]net.Conn{}, map[string]net.Conn{}
	for relay := range relays {
		closed[relay], kept[relay] = at(relay, "close"), at(relay, "keep")
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	start := time.Now()
	for relay, c := range closed {
		wg.Go(func() {
			mustEnd(t, c)
			t.Logf("%s ends the session after %v", relay, time.Since(start).Round(time.Millisecond))
		})
	}
	wg.Wait()
	d.memberIs("keep", "tcp://"+victim, "down")
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for relay, c := range kept {
		c.SetDeadline(time.Now().Add(patience))
		if got := isAt(c); got != port {
			t.Errorf("%s: the session that was to go on is at %q", relay, got)
		}
	}
	if ended, kept := d.metric("penstock_flows_ended_total", `cause="down"`), d.metric("penstock_down_kept_flows_total", ""); ended != 1 || kept != 0 {
		t.Errorf("%v flows have ended, and %v were kept", ended, kept)
	}
}

// connectedTo connects to a relay until it leads to the Redis at a port.
func connectedTo(t *testing.T, what, relay, port string) (found net.Conn) {
	t.Helper()
	testwait.Until(t, what, func() bool {
		c, err := net.DialTimeout("tcp", relay, patience)
		if err != nil {
			return false
		}
		c.SetDeadline(time.Now().Add(patience))
		if isAt(c) != port {
			c.Close()
			return false
		}
		t.Cleanup(func() { c.Close() })
		found = c
		return true
	})
	return found
}
