package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	quicgo "github.com/quic-go/quic-go"

	"github.com/penstock/penstock/internal/testwait"
)

var quicReplacements = flag.Int("quic.replacements", 2, "how often a worker is killed, and how often it is upgraded, under transfers over QUIC")

// Connections of QUIC live through any number of kills and upgrades in the middle of their transfers, whose every byte is checked, while
// their clients get other ports: by IDs that were learned, and by those in which the servers write their own.
func TestQUICTransfersOutlive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	serverTLS, clientTLS := certificate(t)
	l := layout(1, 4, 12, "8f95f09245765f80256934e50c66207f")(t)
	var addresses []any
	for i := range 4 {
		var ids quicgo.ConnectionIDGenerator
		if i >= 2 {
			ids = &serverIDs{l, fmt.Appendf(nil, "srv%d", i), 12, 0}
		}
		addresses = append(addresses, movingServer(t, ctx, fmt.Sprint(i), serverTLS, ids))
	}
	k := runKept(t, `listeners:
  learned: {listen: "udp://127.0.0.1:0", to: learned}
  routable: {listen: "udp://127.0.0.1:0", to: routable}
groups:
  learned: {balance: round-robin, members: ["udp://{0}", "udp://{1}"], quic: {}}
  routable:
    balance: round-robin
    quic: {learn: false, ids: [{config: 1, server-id: 4, nonce: 12, key: "8f95f09245765f80256934e50c66207f"}]}
    members: [{to: "udp://{2}", quic-server-id: "73727632"}, {to: "udp://{3}", quic-server-id: "73727633"}]
`, addresses...)
	var nats []*nat
	var clients []*movingClient
	for _, listener := range []string{"learned", "routable"} {
		for range 3 {
			n := newNAT(t, k.at(listener))
			nats = append(nats, n)
			clients = append(clients, dialMoving(t, ctx, n.inside.LocalAddr(), clientTLS))
		}
	}
	k.settled(int64(len(clients)))
	done, failed := make([]atomic.Int64, len(clients)), make([]atomic.Pointer[error], len(clients))
	var all sync.WaitGroup
	var stop atomic.Bool
	defer func() { stop.Store(true); all.Wait() }()
	for i, c := range clients {
		all.Go(func() {
			for !stop.Load() {
				if err := c.exchange(300); err != nil {
					failed[i].Store(&err)
					return
				}
				done[i].Add(1)
			}
		})
	}
	for round := range *quicReplacements {
		for what, replace := range []func(){k.crash, k.upgrade} {
			wait := func(why string, more int64) {
				var before []int64
				for i := range done {
					before = append(before, done[i].Load())
				}
				for i := range clients {
					testwait.Until(t, fmt.Sprintf("client %d goes on: round %d, %s", i, round, why), func() bool {
						if err := failed[i].Load(); err != nil {
							t.Fatalf("client %d, round %d, %s: %v", i, round, why, *err)
						}
						return done[i].Load() >= before[i]+more
					})
				}
			}
			for i, n := range nats {
				if (i+round)%2 == 0 {
					n.rebind()
				}
			}
			wait("another port", 2)
			// A flow that is not kept yet takes with it what it alone has learned.
			testwait.Until(t, "all flows are kept", func() bool {
				s, err := k.admin.Status(k.ctx())
				return err == nil && s.Keeper != nil && s.Keeper.Flows >= s.Totals.Flows
			})
			replace()
			wait([...]string{"kill", "upgrade"}[what], 2)
		}
	}
	var exchanges int64
	for i := range done {
		exchanges += done[i].Load()
	}
	t.Logf("%d kills and %d upgrades under %d connections, which have moved %d times 300 KiB in each direction", *quicReplacements, *quicReplacements, len(clients), exchanges)
}
