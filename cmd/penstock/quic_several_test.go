package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
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
			ids = &serverIDs{layout(1, 4, 12, "8f95f09245765f80256934e50c66207f")(t), fmt.Appendf(nil, "srv%d", i), 12, 0}
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
			for i, replace := range []func(){k.crash, k.upgrade} {
				k.allKept()
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

// Workers with other numbers of loops follow each other, so that the kernel gives what comes from a client's socket to other loops than those of its
// flows. All connections of the socket go on, those too that began meanwhile, each at the server of its name, and none is a flow of its own twice.
func TestQUICSeveralOtherLoops(t *testing.T) {
	t.Parallel()
	for kind, ids := range map[string]string{"learned": "", "routable": routableIDs} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			addresses, dial := severalServers(t, ctx, kind == "routable")
			k := runKept(t, "engine: {loops: 3}\n"+severalConfig(ids), addresses...)
			sockets := []*quicgo.Transport{movingTransport(t), movingTransport(t), movingTransport(t)}
			var clients []*movingClient
			begin := func() {
				for i, tr := range sockets {
					clients = append(clients, dial(tr, k.at("quic"), []string{"one", "two"}[(i+len(clients)/len(sockets))%2]))
				}
			}
			begin()
			begin()
			for step, loops := range []int{1, 4, 2, 3} {
				text, err := os.ReadFile(k.file)
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _ := strings.Cut(string(text), "\n")
				if err := os.WriteFile(k.file, []byte(fmt.Sprintf("engine: {loops: %d}\n%s", loops, rest)), 0o600); err != nil {
					t.Fatal(err)
				}
				k.allKept()
				if k.upgrade(); step%2 == 1 {
					k.allKept()
					k.crash()
				}
				begin()
				for i, c := range clients {
					if err := c.exchange(60); err != nil {
						t.Fatalf("%d loops: connection %d: %v", loops, i, err)
					}
				}
				flows, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "quic"}, api.Page{})
				if err != nil {
					t.Fatal(err)
				}
				if len(flows.Flows) != len(clients) {
					t.Errorf("%d loops: %d connections are %d flows", loops, len(clients), len(flows.Flows))
				}
			}
		})
	}
}

// Somebody forges datagrams of a client: first packets of connections, with IDs that are new or of other connections, and short headers. No
// connection leaves its server by that, and none ends, also if the worker is replaced meanwhile.
func TestQUICForged(t *testing.T) {
	t.Parallel()
	k := runKept(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	full := func(packet string) string { return packet + strings.Repeat("\x00", 1200) }
	victim := q.open()
	server := q.at(victim, full(quicInitial("made-up1", "server01")))
	q.at(victim, quicHandshake("server01"))
	others := ""
	for others == "" || others == server { // a connection of the one who forges, at another server
		other, id := q.open(), fmt.Sprintf("others%02d", q.count)
		others = q.at(other, full(quicInitial("made-up2", id)))
		if q.at(other, quicHandshake(id)); others != server {
			q.mustStay(quicShort(id), others)
			forged(t, q, k, victim, server, id, others, full)
		}
	}
}

func forged(t *testing.T, q *quicClients, k *kept, victim net.Conn, server, id, others string, full func(string) string) {
	t.Helper()
	newest, n := "server01", 0
	stays := func(after string) {
		t.Helper()
		n++
		last := newest
		newest = fmt.Sprintf("rotate%02d", n) // that nobody has seen
		for _, packet := range []string{quicShort(last), quicShort(newest), quicShort(newest), quicHandshake("server01")} {
			if got := q.at(victim, packet); got != server {
				t.Fatalf("after %s, %q went to %s, want %s", after, packet, got, server)
			}
		}
	}
	stays("nothing")
	for i, replace := range []func(){func() {}, k.crash, k.upgrade} {
		replace()
		stays(fmt.Sprint("replacement ", i))
		q.at(victim, full(quicInitial(fmt.Sprint("forged0", i), fmt.Sprint("anyone0", i))))
		stays("a first packet with an unknown ID")
		q.at(victim, full(quicInitial(id, "anyone99")))
		stays("a first packet with an ID of another connection")
		if got := q.at(victim, full(quicInitial("made-up1", "server01"))); got != server && i == 0 { // later nobody remembers it
			t.Errorf("the connection's own first packet went to %s", got)
		}
		if got := q.at(victim, quicShort(id)); got != others {
			t.Errorf("an ID of another connection leads to %s, want %s", got, others)
		}
		stays("a short header with an ID of another connection")
		q.at(victim, full(quicInitial("serv", "anyone98")))
		q.at(victim, full(quicInitial("server0", "server0")))
		stays("first packets with beginnings of its ID")
		q.at(victim, quicShort("nobodys1"))
		stays("a short header that nobody knows")
		k.allKept()
	}
	for i := range 40 {
		fmt.Fprint(victim, full(quicInitial(fmt.Sprintf("flood-%02d", i), "")))
	}
	last := quicShort(newest) + "behind the flood"
	fmt.Fprint(victim, last)
	for b := make([]byte, 4<<10); ; {
		n, err := victim.Read(b)
		if err != nil {
			t.Fatalf("the connection has no answer: %v", err)
		}
		if name, ok := strings.CutSuffix(string(b[:n]), last); ok {
			if name != "\x40"+quicMark+server+" " {
				t.Errorf("after a flood, %q had the answer", name)
			}
			break
		}
	}
	q.mustStay(quicShort("server01"), server)
}

// The flow with which an ID is tried that nobody knows may end, and the worker goes on.
func TestQUICTriedFlowEnds(t *testing.T) {
	t.Parallel()
	k := runFile(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	c := q.open()
	servers := map[string]bool{}
	for i := range 3 {
		servers[q.at(c, quicInitial(fmt.Sprint("made-up", i), fmt.Sprint("server0", i))+strings.Repeat("\x00", 1200))] = true
	}
	if len(servers) != 3 {
		t.Fatalf("three connections go to %v", servers)
	}
	for left := 3; left > 0; left-- {
		q.at(c, quicShort("nobodys1"))
		flows, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "quic"}, api.Page{})
		if err != nil || len(flows.Flows) != left {
			t.Fatalf("%d flows, %v, want %d", len(flows.Flows), err, left)
		}
		oldest := slices.MinFunc(flows.Flows, func(a, b api.Flow) int { return a.Start.Compare(b.Start) })
		if err := k.admin.Kill(k.ctx(), oldest.ID); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the flow has ended", func() bool {
			s, err := k.admin.Status(k.ctx())
			return err == nil && s.Totals.Flows == int64(left-1)
		})
	}
	q.at(c, quicShort("nobodys1"))
}

// An ID that was learned at a route leads no client there who may not take that route, and has it begin no flow for each datagram.
func TestQUICLearnedElsewhere(t *testing.T) {
	t.Parallel()
	k := runFile(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    routes: [{from: 127.0.0.2, to: inside}]
    to: outside
groups:
  inside: {members: ["udp://{0}"], quic: {}}
  outside: {members: ["udp://{1}"], quic: {}}
`, quicServer(t, "inside"), quicServer(t, "outside"))
	q := &quicClients{t: t, to: k.at("quic")}
	c := q.from("127.0.0.2")
	for _, packet := range []string{quicInitial("made-up1", "server01"), quicHandshake("server01"), quicShort("server01")} {
		if got := q.at(c, packet); got != "inside" {
			t.Fatalf("%q went to %s", packet, got)
		}
	}
	if got := q.at(q.from("127.0.0.2"), quicShort("server01")); got != "inside" {
		t.Errorf("it was not learned: it leads to %s", got)
	}
	c = q.open()
	for range 5 {
		if got := q.at(c, quicShort("server01")); got != "outside" {
			t.Errorf("it leads somebody else to %s", got)
		}
	}
	flows, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "quic"}, api.Page{})
	if err != nil || len(flows.Flows) != 3 {
		t.Errorf("%d flows, %v, want one of each client", len(flows.Flows), err)
	}
}

// allKept waits until the keeper has all flows.
func (k *kept) allKept() {
	k.t.Helper()
	testwait.Until(k.t, "all flows are kept", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Keeper != nil && s.Keeper.Flows >= s.Totals.Flows
	})
}
