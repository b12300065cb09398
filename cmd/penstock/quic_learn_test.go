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

// quicInitial begins a connection with a server of quicServer, which then calls itself what server says.
func quicInitial(id, server string) string { return quicLong(0xc0, id, server) }
func quicHandshake(id string) string       { return quicLong(0xe0, id, "") }
func quicShort(id string) string           { return "\x40" + id + "0123456789abcdef" }

// quicGreased is quicShort without the bit that is 1 otherwise. RFC 9287.
func quicGreased(id string) string { return "\x00" + id + "0123456789abcdef" }

func quicLong(first byte, id, from string) string {
	return string([]byte{first}) + "\x00\x00\x00\x01" + string(rune(len(id))) + id + string(rune(len(from))) + from + "\x00\x10" + strings.Repeat("x", 16)
}

// quicServer returns each packet behind a short header and its name, but a client's first ones behind an Initial packet of its own, in
// which it calls itself as the client wishes.
func quicServer(t *testing.T, name string) net.Addr {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-ended })
	go func() {
		defer close(ended)
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			head := "\x40"
			if n > 7 && b[0] == 0xc0 {
				from := b[6+b[5]:]
				head = quicLong(0xc0, "", string(from[1:1+from[0]]))
			}
			c.WriteTo([]byte(head+quicMark+name+" "+string(b[:n])), from)
		}
	}()
	return c.LocalAddr()
}

// quicMark is in front of the name of a quicServer.
const quicMark = "<named>"

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
	_, got, _ = bytes.Cut(got, []byte(quicMark))
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

// threeQUICServers has a listener without names, and three members, whose IDs are learned.
const threeQUICServers = `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}", "udp://{2}"], quic: {}}
`

// An ID that a client uses leads to its server, whoever sends it from wherever, and each gets its own answers only; also the next one,
// and after crashes and upgrades. Who has seen an ID cannot have it lead elsewhere.
func TestQUICLearned(t *testing.T) {
	t.Parallel()
	k := runKept(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	seen := map[string]bool{}
	for i := range 6 {
		seen[q.at(q.open(), quicShort(fmt.Sprintf("nobody%02d", i)))] = true
	}
	if len(seen) != 3 {
		t.Errorf("IDs that nobody knows lead to %v", seen)
	}

	victim := q.open()
	server := q.at(victim, quicInitial("made-up1", "server01"))
	for _, packet := range []string{quicInitial("made-up1", "server01"), quicHandshake("server01"), quicShort("server01")} {
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
	briefs := q.at(brief, quicInitial("made-up2", "abcd"))
	q.at(brief, quicHandshake("abcd"))
	q.mustStay(quicShort("abcd"), briefs)
	q.mustStay(quicShort("rotated1"), server)

	// Somebody has a connection of his own, at another server, and uses the ID there. What his connection has used in its handshake is taken
	// for its own; another ID leads from his port where it leads from any other one. His connection stays where it is.
	for {
		thief := q.open()
		at := q.at(thief, quicInitial("made-up3", "thieves1"))
		if at == server {
			continue
		}
		for _, packet := range []string{quicHandshake("server01"), quicHandshake("thieves1"), quicShort("thieves1")} {
			if got := q.at(thief, packet); got != at {
				t.Fatalf("a flow has left its server: %s, was %s", got, at)
			}
		}
		q.opened++ // a flow of its own at the same port
		for range 3 {
			for packet, want := range map[string]string{quicShort("server01"): at, quicShort("rotated1"): server, quicShort("thieves1"): at} {
				if got := q.at(thief, packet); got != want {
					t.Fatalf("%q went to %s, want %s", packet, got, want)
				}
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
	d := runFile(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    routes: [{name: inside, from: 127.0.0.1, to: servers}]
    to: "udp://{1}"
groups:
  servers: {members: [{to: "udp://{0}", quic-server-id: "aabbccddeeff0011"}], quic: {ids: cloud}}
`, quicServer(t, "inside"), quicServer(t, "outside"))
	q := &quicClients{t: t, to: d.addr()}
	c := q.open()
	for _, packet := range []string{quicInitial("made-up1", "server01"), quicHandshake("server01")} {
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
		seen[strings.Join([]string{detail.QUICVersion, detail.QUICID, detail.QUICCame}, " ")]++
	}
	if want := fmt.Sprintf("map[  unknown:2  %x server-id:1  %x learned:1 1 %x :1]", routable[:9], "server01", "server01"); fmt.Sprint(seen) != want {
		t.Errorf("%v, want %s", seen, want)
	}
}

// Somebody who has seen an ID cannot have it lead elsewhere by longer ones either: the byte that follows an ID in a packet is any of
// 256. And nobody has clients recognised by IDs that everything begins with.
func TestQUICLearnedLonger(t *testing.T) {
	t.Parallel()
	d := runFile(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}"], quic: {}}
`, quicServer(t, "one"), quicServer(t, "two"))
	q := &quicClients{t: t, to: d.addr()}
	victim := q.open()
	server := q.at(victim, quicInitial("made-up1", "server01"))
	q.at(victim, quicHandshake("server01"))
	learned := func() int64 {
		t.Helper()
		status, err := d.admin.Status(d.ctx())
		if err != nil || status.QUIC == nil {
			t.Fatalf("%+v, %v", status, err)
		}
		return status.QUIC.Learned
	}
	for _, longer := range []string{"server010", "server0101", "server01012"} { // as quicShort goes on
		thief := q.open()
		for q.at(thief, quicInitial("made-up2", longer)) == server {
			thief = q.open()
		}
		q.at(thief, quicHandshake(longer))
	}
	q.mustStay(quicShort("server01"), server)
	before := learned()
	for _, short := range []string{"n", "no", "nob"} {
		other := q.open()
		q.at(other, quicInitial("made-up3", short))
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

// Whoever has a connection cannot have an ID learned that he has chosen himself, not even one that its server takes over: only other
// ports of his own address are recognised by it. So the first datagrams of another protocol, which are always the same and look like
// packets of QUIC, go where they would go otherwise.
func TestQUICClaimed(t *testing.T) {
	t.Parallel()
	k := runKept(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {balance: round-robin, members: ["udp://{0}", "udp://{1}"], quic: {}}
`, quicServer(t, "one"), quicServer(t, "two"))
	q := &quicClients{t: t, to: k.at("quic")}
	const invite = "INVITE sip:somebody@example.com SIP/2.0\r\n"
	for _, begins := range [][]string{
		{quicInitial("made-up1", "server01")}, {quicInitial("NVITE si", "NVITE si")},
		{quicLong(0x80, "made-up1", "NVITE si"), quicInitial("NVITE si", "NVITE si")}, // the first one is not to the server's liking
	} {
		c := q.open()
		at := ""
		for _, initial := range begins {
			at = q.at(c, initial)
		}
		k.allKept()
		k.crash() // it is remembered whose ID may be whose
		for _, packet := range []string{quicHandshake("NVITE si"), quicHandshake("server01"), quicShort("server01"), quicShort("NVITE si"), invite} {
			if got := q.at(c, packet); got != at {
				t.Fatalf("%q went to %s, was %s", packet, got, at)
			}
		}
	}
	seen := map[string]bool{}
	for range 4 {
		seen[q.at(q.from("127.0.0.2"), invite)] = true
	}
	if len(seen) != 2 {
		t.Errorf("%q went to %v", invite, seen)
	}
	status, err := k.admin.Status(k.ctx())
	if err != nil || status.QUIC.Learned != 0 {
		t.Fatalf("%+v, %v", status.QUIC, err)
	}
	for i, port := range []net.Conn{q.open(), q.open()} { // as after the client has taken another ID, and its router has given it another port
		q.at(port, quicShort("NVITE si"))
		if status, err := k.admin.Status(k.ctx()); err != nil || status.QUIC.Learned != int64(i+1) {
			t.Fatalf("%+v, %v", status.QUIC, err)
		}
	}
}

// The first ID of a connection is learned also if its worker was replaced before its client used it, and a client is recognised whose
// packets do not have the bit that says that they are of QUIC.
func TestQUICLearnedLate(t *testing.T) {
	t.Parallel()
	k := runKept(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	for i, replace := range []func(){k.crash, k.upgrade} {
		c, id := q.open(), fmt.Sprintf("server0%d", i)
		server := q.at(c, quicInitial("made-up1", id))
		k.settled(q.opened)
		replace()
		if got := q.at(c, quicHandshake(id)); got != server {
			t.Fatal(got)
		}
		q.mustStay(quicShort(id), server)
		q.mustStay(quicGreased(id), server)
	}
}

// What is seen of a flow outlives its worker: by which ID its client was led, and the version of a connection that begins.
func TestQUICSeenLater(t *testing.T) {
	t.Parallel()
	k := runKept(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {members: [{to: "udp://{0}", quic-server-id: "aabbccddeeff0011"}], quic: {ids: cloud}}
`, quicServer(t, "one"))
	q := &quicClients{t: t, to: k.at("quic")}
	q.at(q.open(), quicShort("\x1f\xaa\xbb\xcc\xdd\xee\xff\x00\x11nonce"))
	q.at(q.open(), quicInitial("made-up1", "server01"))
	q.at(q.open(), quicHandshake("stranger"))
	for _, replace := range []func(){func() {}, k.crash, k.upgrade} {
		k.settled(q.opened)
		replace()
		all, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, f := range all.Flows {
			detail, err := k.admin.Flow(k.ctx(), f.ID)
			if err != nil {
				t.Fatal(err)
			}
			seen[strings.Join([]string{detail.QUICVersion, detail.QUICID, detail.QUICCame}, " ")]++
		}
		if want := fmt.Sprintf("map[ 1faabbccddeeff0011 server-id:1 1 %x :1 1 %x unknown:1]", "made-up1", "stranger"); fmt.Sprint(seen) != want {
			t.Errorf("%v, want %s", seen, want)
		}
	}
}
