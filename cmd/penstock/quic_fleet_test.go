package main

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// Clients whose datagrams suddenly go to another relay of a fleet, as they do when a route or a load balancer in front of it changes, stay with
// their servers in the middle of their transfers, whose every byte is checked, also when the first relay is gone. The relays share nothing but
// their settings: the servers write their IDs into those of connections.
func TestQUICOtherRelay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addresses, dial := severalServers(t, ctx, true)
	relays := []*configured{runFile(t, severalConfig(routableIDs), addresses...), runFile(t, severalConfig(routableIDs), addresses...)}
	var nats []*nat
	var clients []*movingClient
	for i := range 4 {
		n := newNAT(t, relays[i%2].at("quic"))
		nats = append(nats, n)
		clients = append(clients, dial(movingTransport(t), n.inside.LocalAddr(), []string{"one", "two"}[i/2]))
	}
	for round := range 4 {
		var before []int
		for _, n := range nats {
			before = append(before, n.passed())
		}
		var all sync.WaitGroup
		errs := make([]error, len(clients))
		for i, c := range clients {
			all.Go(func() {
				errs[i] = c.exchange(500)
			})
		}
		for i, n := range nats {
			testwait.Until(t, "a transfer has begun", func() bool { return n.passed() > before[i]+50<<10 })
			n.reroute(relays[(i+round+1)%2].at("quic"))
		}
		all.Wait()
		for i, err := range errs {
			if err != nil {
				t.Fatalf("round %d, client %d: %v", round, i, err)
			}
		}
	}
	for i, n := range nats {
		n.reroute(relays[1].at("quic"))
		if err := clients[i].exchange(100); err != nil {
			t.Fatalf("client %d at the second relay: %v", i, err)
		}
	}
	relays[0].signal(os.Kill)
	relays[0].exit()
	for i, c := range clients {
		if err := c.exchange(100); err != nil {
			t.Errorf("client %d without the first relay: %v", i, err)
		}
	}
	if s, err := relays[1].admin.Status(t.Context()); err != nil || s.Totals.Flows < int64(len(clients)) {
		t.Errorf("%+v, %v", s.Totals, err)
	}
}

// reroute has what the client sends go to another relay, from another port.
func (n *nat) reroute(to net.Addr) {
	n.t.Helper()
	n.mu.Lock()
	n.to = to.(*net.UDPAddr)
	n.mu.Unlock()
	n.rebind()
}

// passed returns how many bytes the client has had.
func (n *nat) passed() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got
}
