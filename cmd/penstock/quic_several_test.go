package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	quicgo "github.com/quic-go/quic-go"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// severalConfig has two names, each with a member of its own.
func severalConfig(ids string) string {
	return `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    routes:
      - {name: one, sni: one.test, to: one}
      - {name: two, sni: two.test, to: two}
groups:
  one: {members: [{to: "udp://{0}", quic-server-id: "73727630"}]` + ids + `}
  two: {members: [{to: "udp://{1}", quic-server-id: "73727631"}]` + ids + `}
`
}

// severalServers are the members of severalConfig.
func severalServers(t *testing.T, ctx context.Context, routable bool) (addresses []any, client func(tr *quicgo.Transport, to net.Addr, name string) *movingClient) {
	t.Helper()
	serverTLS, clientTLS := certificate(t, "one.test", "two.test")
	for i, name := range []string{"one", "two"} {
		var ids quicgo.ConnectionIDGenerator
		if routable {
			ids = &serverIDs{layout(1, 4, 12, "8f95f09245765f80256934e50c66207f")(t), fmt.Appendf(nil, "srv%d", i), 12}
		}
		addresses = append(addresses, movingServer(t, ctx, name, serverTLS, ids))
	}
	return addresses, func(tr *quicgo.Transport, to net.Addr, name string) *movingClient {
		t.Helper()
		tls := clientTLS.Clone()
		tls.ServerName = name + ".test"
		conn, err := tr.Dial(ctx, to, tls, movingConfig())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := &movingClient{t: t, ctx: ctx, conn: conn, server: name}
		c.ask(1)
		return c
	}
}

// routableIDs are the settings of severalServers' IDs.
const routableIDs = `, quic: {ids: [{config: 1, server-id: 4, nonce: 12, key: "8f95f09245765f80256934e50c66207f"}]}`

// Connections of one client's socket to two names are flows of their own, each to the member of its name, while their worker is killed and
// upgraded, while their client gets another port, and when one of them moves: every byte comes back from the server of its name.
func TestQUICSeveralConnections(t *testing.T) {
	t.Parallel()
	for kind, ids := range map[string]string{"learned": "", "routable": routableIDs} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			addresses, dial := severalServers(t, ctx, kind == "routable")
			k := runKept(t, severalConfig(ids), addresses...)
			n := newNAT(t, k.at("quic"))
			tr := movingTransport(t)
			var clients []*movingClient
			for i := range 6 {
				clients = append(clients, dial(tr, n.inside.LocalAddr(), []string{"one", "two"}[i%2]))
			}
			all := func(what string) {
				t.Helper()
				var wg sync.WaitGroup
				for i, c := range clients {
					wg.Go(func() {
						if err := c.exchange(200); err != nil {
							t.Errorf("%s: connection %d: %v", what, i, err)
						}
					})
				}
				if wg.Wait(); t.Failed() {
					t.FailNow()
				}
			}
			all("at first")
			flows, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "quic"}, api.Page{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			peers := map[string]bool{}
			for _, f := range flows.Flows {
				got = append(got, f.SNI+" "+f.Route)
				peers[fmt.Sprint(f.Client)] = true
			}
			slices.Sort(got)
			if want := "[one.test one one.test one one.test one two.test two two.test two two.test two]"; fmt.Sprint(got) != want || len(peers) != 1 {
				t.Errorf("flows %v of %v, want %s of one", got, peers, want)
			}
			kept := func() {
				t.Helper()
				testwait.Until(t, "all flows are kept", func() bool {
					s, err := k.admin.Status(k.ctx())
					return err == nil && s.Keeper != nil && s.Keeper.Flows >= s.Totals.Flows
				})
			}
			for i, replace := range []func(){k.crash, k.upgrade} {
				kept()
				replace()
				all(fmt.Sprint("replacement ", i))
				n.rebind()
				all(fmt.Sprint("another port ", i))
			}
			if kind == "routable" { // an ID that nobody has seen says enough then
				direct := movingTransport(t)
				one, two := dial(direct, k.at("quic"), "one"), dial(direct, k.at("quic"), "two")
				clients = append(clients, one, two)
				one.move()
				all("one has moved")
				two.move()
				all("both have moved")
			}
		})
	}
}
