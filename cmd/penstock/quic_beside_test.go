package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// A client that does not speak QUIC keeps its server, whatever bytes its datagrams begin with, when somebody begins a connection of QUIC in
// its name; and what is addressed to that connection still reaches it.
func TestQUICForgedBesideOther(t *testing.T) {
	t.Parallel()
	k := runKept(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	c := q.open()
	server := q.at(c, "\x00\x01\x00\x00 STUN")
	own := []string{
		"\x01\x01\x00\x00 STUN", "\x17\xfe\xfd DTLS", "\x16", // the second bit is 0
		"\x80\x60\x00\x01\xff\xff RTP",                // a long header that cannot be one
		"\xc9random, and more than a few bytes of it", // another one
		"\xc0\xab\xcd\xef\x01\x02id\x00 a version that nobody knows",
		"\xc0\x00\x00\x00\x00\x02id\x00 version 0",
		"INVITE sip:bob@example.org SIP/2.0", "\x41", // like short headers
	}
	stays := func(when string) {
		t.Helper()
		for _, packet := range own {
			if got := q.at(c, packet); got != server {
				t.Fatalf("%s, %q went to %s, want %s", when, packet, got, server)
			}
		}
	}
	stays("at first")
	id, other := "", ""
	for i, replace := range []func(){func() {}, k.crash, k.upgrade} {
		k.allKept()
		replace()
		id = fmt.Sprint("server0", i)
		other = q.at(c, quicInitial(fmt.Sprint("forged0", i), id)+strings.Repeat("\x00", 1200))
		stays("after a first packet in its name")
	}
	for _, packet := range []string{quicHandshake(id), quicShort(id)} {
		if got := q.at(c, packet); got != other {
			t.Errorf("%q went to %s, want %s", packet, got, other)
		}
	}
}

// Which of two connections has had its server's answer is known after a crash and an upgrade, too: an ID that nobody knows is tried with that one,
// though the other one, which somebody else has begun in the client's name, is older, and a further one comes at that moment.
func TestQUICVerifiedOutlives(t *testing.T) {
	t.Parallel()
	k := runKept(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	c := q.open()
	forge := func(id string) { q.at(c, quicInitial(id, "of-"+id)+strings.Repeat("\x00", 1200)) }
	forge("forged00")
	server := q.at(c, quicInitial("made-up1", "server01")+strings.Repeat("\x00", 1200))
	q.at(c, quicHandshake("server01"))
	for i, replace := range []func(){func() {}, k.crash, k.upgrade} {
		k.allKept()
		replace()
		for n, packet := range []string{"", quicShort("server01"), quicShort(fmt.Sprintf("nobody%d0", i)), quicShort(fmt.Sprintf("nobody%d1", i)), quicShort("server01")} {
			if n == 0 || n == 3 {
				forge(fmt.Sprintf("forged%d%d", i+1, n))
				continue
			}
			if got := q.at(c, packet); got != server {
				t.Errorf("after %d replacements, %q went to %s, want %s", i, packet, got, server)
			}
		}
	}
}

// An ID leads to the server of its connection, also beside a flow to that server that does not speak QUIC.
func TestQUICLearnedBesideOther(t *testing.T) {
	t.Parallel()
	k := runFile(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	c := q.open()
	server := q.at(c, "\x00 no QUIC")
	q.at(c, quicInitial("made-up1", "server01")+strings.Repeat("\x00", 1200))
	for n, at := 2, ""; at != server; n++ {
		moves, id := q.open(), fmt.Sprintf("server%02d", n)
		at = q.at(moves, quicInitial("made-up2", id))
		q.at(moves, quicHandshake(id))
		for range 2 {
			if got := q.at(c, quicShort(id)); got != at {
				t.Errorf("its datagram went to %s, want %s", got, at)
			}
		}
	}
	if got := q.at(c, "\x00 no QUIC"); got != server {
		t.Errorf("what is no QUIC went to %s, want %s", got, server)
	}
	testwait.Until(t, "each is a flow", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == q.opened+3
	})
}

// A connection whose router gives its client another port, at which another connection is already, goes on with its server, also if its
// handshake is not over.
func TestQUICRebindInHandshake(t *testing.T) {
	t.Parallel()
	k := runFile(t, threeQUICServers, quicServer(t, "one"), quicServer(t, "two"), quicServer(t, "three"))
	q := &quicClients{t: t, to: k.at("quic")}
	was, now := q.open(), q.open()
	servers := map[string]string{}
	for _, id := range []string{"server01", "server02"} {
		servers[id] = q.at(was, quicInitial("made-up"+id[7:], id)+strings.Repeat("\x00", 1200))
		q.at(was, quicHandshake(id))
	}
	for _, packet := range []string{quicHandshake("server01"), quicHandshake("server02"), quicHandshake("server01"), quicShort("server02"), quicShort("server01")} {
		id := "server01"
		if strings.Contains(packet, "server02") {
			id = "server02"
		}
		if got := q.at(now, packet); got != servers[id] {
			t.Errorf("%q went to %s, want %s", packet, got, servers[id])
		}
	}
}

// Connections whose server has taken over the ID that the client has made up, as Envoy does, have had their server's answer if that is long. They
// do not give way when their address is full, as long as a forged one can.
func TestQUICRoomBesideLongAnswers(t *testing.T) {
	t.Parallel()
	const answers = 9
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { server.Close(); <-ended })
	go func() { // answers a first packet with one of its own, and a short header with nine datagrams
		defer close(ended)
		b := make([]byte, 4<<10)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			if b[0]&0x80 != 0 {
				server.WriteTo([]byte(quicLong(0xc0, "", string(b[6:6+b[5]]))), from)
				continue
			}
			for range answers {
				server.WriteTo(b[:n], from)
			}
		}
	}()
	k := runFile(t, `listeners:
  quic: {listen: "udp://127.0.0.1:0", to: servers}
groups:
  servers: {members: ["udp://{0}"], quic: {}}
`, server.LocalAddr())
	c := (&quicClients{t: t, to: k.at("quic")}).open()
	flows := func() (ids []uint64) {
		all, err := k.admin.Flows(k.ctx(), api.Filter{Listener: "quic"}, api.Page{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all.Flows {
			ids = append(ids, f.ID)
		}
		return ids
	}
	begin := func(id string) uint64 {
		t.Helper()
		before := flows()
		fmt.Fprint(c, quicInitial(id, "")+strings.Repeat("\x00", 1200))
		var begun []uint64
		testwait.Until(t, "a flow begins", func() bool {
			begun = slices.DeleteFunc(flows(), func(id uint64) bool { return slices.Contains(before, id) })
			return len(begun) == 1
		})
		return begun[0]
	}
	hear := func(want string) {
		t.Helper()
		b := make([]byte, 4<<10)
		if n, err := c.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("%q, %v, want %q", b[:n], err, want)
		}
	}
	forged := begin("forged00")
	hear(quicLong(0xc0, "", "forged00"))
	var real []uint64
	for i := range 14 {
		id := fmt.Sprintf("made-up%02d", i)
		real = append(real, begin(id))
		hear(quicLong(0xc0, "", id))
		packet := quicShort(id) + strings.Repeat("\x00", 1200)
		fmt.Fprint(c, packet)
		for range answers {
			hear(packet)
		}
	}
	for n, gone := 0, false; !gone; n++ {
		was := flows()
		testwait.Until(t, "a flow gives way", func() bool {
			fmt.Fprint(c, quicInitial(fmt.Sprintf("more%04d", n), "")+strings.Repeat("\x00", 1200))
			n++
			now := flows()
			return slices.ContainsFunc(was, func(id uint64) bool { return !slices.Contains(now, id) })
		})
		now := flows()
		for i, id := range real {
			if !slices.Contains(now, id) {
				t.Fatalf("connection %d has given way, and the forged one is there: %t", i, slices.Contains(now, forged))
			}
		}
		gone = !slices.Contains(now, forged)
	}
}
