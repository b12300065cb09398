package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/internal/testwait"
)

func setMember(t *testing.T, d *configured, member, state string) {
	t.Helper()
	if _, err := d.admin.SetMember(d.ctx(), "servers", member, api.MemberChange{State: state}); err != nil {
		t.Fatal(err)
	}
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// A client whose router gives it another port stays at its server, which writes nothing of its own into connection IDs. Clients
// go to the servers in turn, so that one that is not recognised would reach another one.
func TestQUICRebinding(t *testing.T) {
	t.Parallel()
	for name, listener := range map[string]string{
		"by name": `routes: [{name: named, sni: test, to: servers}]`, "by group": `to: servers`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			serverTLS, clientTLS := certificate(t)
			group := ""
			if name == "by group" {
				group = ", quic: {}"
			}
			d := runFile(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", `+listener+`}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}", "udp://{2}"]`+group+`}
`, movingServer(t, ctx, "one", serverTLS, nil), movingServer(t, ctx, "two", serverTLS, nil), movingServer(t, ctx, "three", serverTLS, nil))
			servers := map[string]int{}
			for range 4 {
				n := newNAT(t, d.addr())
				c := dialMoving(t, ctx, n.inside.LocalAddr(), clientTLS)
				servers[c.server]++
				for range 4 {
					c.ask(100)
					n.rebind()
					c.ask(100)
				}
			}
			if len(servers) != 3 {
				t.Errorf("clients reached %v: one that is not recognised may have reached the same", servers)
			}
		})
	}
}

// routableGroups are groups whose servers write their IDs into those of connections.
var routableGroups = map[string]struct {
	ids    string
	layout func(t *testing.T) *quicid.Layout
	server int
	nonce  int
	first  byte
}{
	"cloud":            {`cloud`, func(*testing.T) *quicid.Layout { return quicid.Cloud }, 8, 9, 0},
	"cloud first byte": {`cloud`, func(*testing.T) *quicid.Layout { return quicid.Cloud }, 8, 9, 0xff},
	"plaintext":        {`[{config: 1, server-id: 3, nonce: 5}]`, layout(1, 3, 5, ""), 3, 5, 0},
	"one pass":         {`[{config: 2, server-id: 4, nonce: 12, key: "8f95f09245765f80256934e50c66207f"}]`, layout(2, 4, 12, "8f95f09245765f80256934e50c66207f"), 4, 12, 0},
	"four passes": {`[{config: 0, server-id: 2, nonce: 4}, {config: 6, server-id: 9, nonce: 5, key: "0x8f95f09245765f80256934e50c66207f"}]`,
		layout(6, 9, 5, "8f95f09245765f80256934e50c66207f"), 9, 5, 0},
}

func layout(config, server, nonce int, key string) func(t *testing.T) *quicid.Layout {
	return func(t *testing.T) *quicid.Layout {
		b, _ := hex.DecodeString(key)
		l, err := quicid.New(config, server, nonce, b)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// A client that goes on by another socket, with an ID that nobody has seen before, stays at its server if that writes its own ID into
// those of connections; also if it was drained meanwhile, and for two relays that know nothing of each other.
func TestQUICMigration(t *testing.T) {
	t.Parallel()
	for name, g := range routableGroups {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			serverTLS, clientTLS := certificate(t)
			l := g.layout(t)
			var addresses []any
			var members []string
			for i, name := range []string{"one", "two", "three"} {
				id := []byte(strings.Repeat(string(rune('a'+i)), g.server))
				addresses = append(addresses, movingServer(t, ctx, name, serverTLS, &serverIDs{l, id, g.nonce, g.first}))
				members = append(members, fmt.Sprintf(`{name: %s, to: "udp://{%d}", quic-server-id: "%x"}`, name, i, id))
			}
			text := `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: [` + strings.Join(members, ", ") + `], quic: {learn: false, ids: ` + g.ids + `}}
`
			d, other := runFile(t, text, addresses...), runFile(t, text, addresses...)
			var clients []*movingClient
			for range 3 {
				n := newNAT(t, d.addr())
				c := dialMoving(t, ctx, n.inside.LocalAddr(), clientTLS)
				clients = append(clients, c)
				c.ask(100)
				n.rebind()
				c.ask(100)
				n.mu.Lock()
				n.to = other.addr().(*net.UDPAddr) // another relay of a fleet
				n.mu.Unlock()
				n.rebind()
				c.ask(100)
				setMember(t, d, c.server, "drain")
				n.mu.Lock()
				n.to = d.addr().(*net.UDPAddr)
				n.mu.Unlock()
				n.rebind()
				c.ask(100)
				setMember(t, d, c.server, "file")
			}
			for i := range 3 {
				c := dialMoving(t, ctx, d.addr(), clientTLS)
				for range i + 1 {
					c.move()
					c.ask(100)
				}
				clients = append(clients, c)
			}
			for _, c := range clients {
				c.ask(1)
			}
		})
	}
}

var _ quicgo.ConnectionIDGenerator = (*serverIDs)(nil)

// A connection that begins with an ID in which a server is, and that server does not answer: the flow goes to another one, and the
// first one has no flow of it.
func TestQUICPreferredIsDown(t *testing.T) {
	t.Parallel()
	dead, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	d := runFile(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers:
    retries: 1
    quic: {ids: cloud}
    members: [{to: "udp://{0}", quic-server-id: "aabbccddeeff0011"}, {to: "udp://{1}", quic-server-id: "aabbccddeeff0012"}]
`, dead.LocalAddr().String(), datagramEcho(t, "udp4", "127.0.0.1:0", "alive "))
	q := &quicClients{t: t, to: d.addr()}
	c, packet := q.open(), quicInitial("\x1f\xaa\xbb\xcc\xdd\xee\xff\x00\x11nonce", "")
	testwait.Until(t, "the server that is there answers", func() bool { // its client sends again, as the first one may be lost
		answer := make([]byte, 100)
		c.Write([]byte(packet))
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := c.Read(answer)
		return err == nil && string(answer[:n]) == "alive "+packet
	})
	groups, err := d.admin.Groups(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	var flows []int64
	for _, m := range groups.Groups[0].Members {
		flows = append(flows, int64(m.Flows))
	}
	if fmt.Sprint(flows) != "[0 1]" {
		t.Errorf("the members have %v flows", flows)
	}
}
