package main

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Packets of QUIC as somebody sees them who has no keys.

func quicInitial(id string) string   { return quicLong(0xc0, id) }
func quicHandshake(id string) string { return quicLong(0xe0, id) }
func quicShort(id string) string     { return "\x40" + id + "0123456789abcdef" }

func quicLong(first byte, id string) string {
	return string([]byte{first}) + "\x00\x00\x00\x01" + string(rune(len(id))) + id + "\x00\x00\x10" + strings.Repeat("x", 16)
}

// quicClients are clients of a listener whose servers say their names in front of what they return.
type quicClients struct {
	t      *testing.T
	to     net.Addr
	count  int
	opened int64
}

// from opens a socket at an address of this host.
func (q *quicClients) from(ip string) net.Conn {
	q.t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("udp4", q.to.String())
	if err != nil {
		q.t.Fatal(err)
	}
	q.opened++
	q.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

func (q *quicClients) open() net.Conn { return q.from("127.0.0.1") }

// at sends a packet and returns the name of the server that has it. Whatever comes must be the answer to it.
func (q *quicClients) at(c net.Conn, packet string) string {
	q.t.Helper()
	q.count++
	packet = strings.Clone(packet) + fmt.Sprint(q.count)
	got := ask(q.t, c, []byte(packet))
	name, rest, _ := bytes.Cut(got, []byte(" "))
	if string(rest) != packet {
		q.t.Fatalf("%q was answered by %q", packet, got)
	}
	return string(name)
}

// mustStay checks that an ID leads to a server from any number of new sockets.
func (q *quicClients) mustStay(packet, server string) {
	q.t.Helper()
	for range 7 {
		if got := q.at(q.open(), packet); got != server {
			q.t.Fatalf("%q leads to %s, want %s", packet, got, server)
		}
	}
}

// An ID that a client uses leads to its server, whoever sends it from wherever, and each gets its own answers only; also the next one,
// and after crashes and upgrades. Who has seen an ID cannot have it lead elsewhere.
func TestQUICLearned(t *testing.T) {
	t.Parallel()
	const ip = "127.0.0.1:0"
	k := runKept(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}", "udp://{2}"], quic: {}}
`, datagramEcho(t, "udp4", ip, "one "), datagramEcho(t, "udp4", ip, "two "), datagramEcho(t, "udp4", ip, "three "))
	q := &quicClients{t: t, to: k.at("quic")}
	seen := map[string]bool{}
	for i := range 6 {
		seen[q.at(q.open(), quicShort(fmt.Sprintf("nobody%02d", i)))] = true
	}
	if len(seen) != 3 {
		t.Errorf("IDs that nobody knows lead to %v", seen)
	}

	victim := q.open()
	server := q.at(victim, quicInitial("made-up1"))
	for _, packet := range []string{quicInitial("made-up1"), quicHandshake("server01"), quicShort("server01")} {
		if got := q.at(victim, packet); got != server {
			t.Fatalf("%q went to %s, want %s", packet, got, server)
		}
	}
	q.mustStay(quicShort("server01"), server)
	q.mustStay(quicHandshake("server01"), server)
	if got := q.at(victim, quicShort("rotated1")); got != server { // a later one, of which no long header tells
		t.Fatal(got)
	}
	q.mustStay(quicShort("rotated1"), server)
	q.mustStay(quicShort("server01"), server)

	// Other lengths beside it.
	brief := q.open()
	briefs := q.at(brief, quicInitial("made-up2"))
	q.at(brief, quicHandshake("abcd"))
	q.mustStay(quicShort("abcd"), briefs)
	q.mustStay(quicShort("rotated1"), server)

	// Somebody has a connection of his own, at another server, and uses the ID there.
	for {
		thief := q.open()
		at := q.at(thief, quicInitial("made-up3"))
		if at == server {
			continue
		}
		for _, packet := range []string{quicHandshake("server01"), quicHandshake("thieves1"), quicShort("server01"), quicShort("rotated1")} {
			if got := q.at(thief, packet); got != at {
				t.Fatalf("a flow has left its server: %s, was %s", got, at)
			}
		}
		break
	}
	q.mustStay(quicShort("server01"), server)
	q.mustStay(quicShort("rotated1"), server)
	if got := q.at(victim, quicShort("rotated1")); got != server {
		t.Fatal(got)
	}

	for _, replace := range []func(){k.crash, k.upgrade, k.crash} {
		k.settled(q.opened)
		replace()
		q.mustStay(quicShort("server01"), server)
		q.mustStay(quicShort("abcd"), briefs)
		if got := q.at(victim, quicShort("rotated1")); got != server {
			t.Fatal(got)
		}
		if got := q.at(victim, quicShort("rotated2")); got != server { // it goes on being watched
			t.Fatal(got)
		}
		q.mustStay(quicShort("rotated2"), server)
	}
}

// An ID does not lead past the conditions of a route on addresses, and not into another listener.
func TestQUICLearnedByRoute(t *testing.T) {
	t.Parallel()
	const ip = "127.0.0.1:0"
	d := runFile(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    routes: [{name: inside, from: 127.0.0.1, to: servers}]
    to: "udp://{1}"
groups:
  servers: {members: [{to: "udp://{0}", quic-server-id: "aabbccddeeff0011"}], quic: {ids: cloud}}
`, datagramEcho(t, "udp4", ip, "inside "), datagramEcho(t, "udp4", ip, "outside "))
	q := &quicClients{t: t, to: d.addr()}
	c := q.open()
	for _, packet := range []string{quicInitial("made-up1"), quicHandshake("server01")} {
		if got := q.at(c, packet); got != "inside" {
			t.Fatal(got)
		}
	}
	routable := "\x1f\xaa\xbb\xcc\xdd\xee\xff\x00\x11nonce"
	for _, id := range []string{"server01", routable} {
		if got := q.at(q.from("127.0.0.2"), quicShort(id)); got != "outside" {
			t.Errorf("%q leads from outside to %s", id, got)
		}
		if got := q.at(q.from("127.0.0.1"), quicShort(id)); got != "inside" {
			t.Errorf("%q leads from inside to %s", id, got)
		}
	}

	// All of it is seen.
	status, err := d.admin.Status(d.ctx())
	if want := (api.QUIC{IDs: 2, ServerID: 1, Learned: 1, Unknown: 2}); err != nil || status.QUIC == nil || *status.QUIC != want {
		t.Errorf("%+v, %v; want %+v", status.QUIC, err, want)
	}
	all, err := d.admin.Flows(d.ctx(), api.Filter{}, api.Page{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, f := range all.Flows {
		detail, err := d.admin.Flow(d.ctx(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		seen[detail.QUICID+" "+detail.QUICCame]++
	}
	if want := fmt.Sprintf("map[ server-id:1  unknown:2 %x :1 %x learned:1]", "server01", "server01"); fmt.Sprint(seen) != want {
		t.Errorf("%v, want %s", seen, want)
	}
}

// Somebody who has seen an ID cannot have it lead elsewhere by longer ones either: the byte that follows an ID in a packet is any of
// 256. And nobody has clients recognised by IDs that everything begins with.
func TestQUICLearnedLonger(t *testing.T) {
	t.Parallel()
	const ip = "127.0.0.1:0"
	d := runFile(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}"], quic: {}}
`, datagramEcho(t, "udp4", ip, "one "), datagramEcho(t, "udp4", ip, "two "))
	q := &quicClients{t: t, to: d.addr()}
	victim := q.open()
	server := q.at(victim, quicInitial("made-up1"))
	q.at(victim, quicHandshake("server01"))
	learned := func() int64 {
		t.Helper()
		status, err := d.admin.Status(d.ctx())
		if err != nil || status.QUIC == nil {
			t.Fatalf("%+v, %v", status, err)
		}
		return status.QUIC.Learned
	}
	thief := q.open()
	for q.at(thief, quicInitial("made-up2")) == server {
		thief = q.open()
	}
	for _, longer := range []string{"server010", "server0101", "server01012"} { // as quicShort goes on
		q.at(thief, quicHandshake(longer))
	}
	q.mustStay(quicShort("server01"), server)
	before := learned()
	other := q.open()
	q.at(other, quicInitial("made-up3"))
	for _, short := range []string{"n", "no", "nob"} {
		q.at(other, quicHandshake(short))
	}
	seen := map[string]bool{}
	for range 4 {
		seen[q.at(q.open(), quicShort("nobody01"))] = true
	}
	if len(seen) != 2 || learned() != before {
		t.Errorf("an ID that nobody knows leads to %v; %d were recognised", seen, learned()-before)
	}
}
