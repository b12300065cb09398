package relay

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/origin"
	"github.com/penstock/penstock/relay/stats"
)

// testOrigin reads the headers of AppendProxyHeader in version 2, and ones that replies have, too: SPP's magic number and then the
// same. Senders are proxies if their port is not even, or if all are.
func testOrigin(first bool) *origin.Config {
	return &origin.Config{First: first, Trusts: func(netip.Addr) bool { return true }, Read: readTestHeader, Begin: func(b []byte) any { return string(b) }}
}

func readTestHeader(b []byte) (h origin.Header, ok bool) {
	if len(b) > 2 && b[0] == 0x56 && b[1] == 0xEC {
		h, ok = readTestHeader(b[2:])
		h.Len, h.Replies = h.Len+2, true
		return h, ok
	}
	if len(b) < 16 || string(b[:12]) != proxySignature {
		return h, false
	}
	n, ip := 16+int(binary.BigEndian.Uint16(b[14:])), 4
	if b[13]&0xF0 == proxyIPv6 {
		ip = 16
	}
	switch {
	case len(b) < n:
		return h, false
	case b[12] == proxyLocal:
		return origin.Header{Len: n}, true
	case n < 16+2*ip+4, b[13] != proxyIPv4|proxyDatagram && b[13] != proxyIPv6|proxyDatagram:
		return h, false
	}
	at := func(i int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(b[16+i*ip:][:ip])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b[16+2*ip+2*i:]))
	}
	return origin.Header{Len: n, Client: at(0), To: at(1)}, true
}

// headerOf is the header of a client, by number; 0 is the proxy itself.
func headerOf(client int) []byte {
	if client == 0 {
		return AppendProxyHeader(nil, 2, Addr{}, Addr{})
	}
	from := Addr{Network: UDP, AddrPort: clientNumber(client)}
	to := Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("192.0.2.1:53")}
	return AppendProxyHeader(nil, 2, from, to)
}

func clientNumber(n int) netip.AddrPort {
	ip := fmt.Sprintf("198.51.100.%d", n)
	if n%2 == 0 {
		ip = fmt.Sprintf("2001:db8::%x", n)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(4000+n))
}

// namedRecords collects who the clients of ended flows were, and what they had sent.
func namedRecords(r *rig) map[string]int64 {
	all := make(map[string]int64)
	for _, rec := range r.all {
		all[rec.Client.String()] += rec.Up.Datagrams
	}
	return all
}

// Each datagram of a proxy names its client: clients that share the proxy's socket have flows of their own, whose bytes reach an upstream
// by sockets of their own, and the answers to all of them reach the proxy.
func TestNamedEach(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			server := packetSocket(t, network)
			to := gramAddr(server.LocalAddr())
			seen := make(map[string]string) // flow's client by its header
			var mu sync.Mutex
			l := r.listenAt(gramPlace(t, network), ListenConfig{
				Datagram: DatagramConfig{Origin: testOrigin(false)},
				Hooks: Hooks{Admit: func(f *Flow) Cause {
					mu.Lock()
					defer mu.Unlock()
					seen[f.Value().(string)] = f.Client().String()
					return CauseNone
				}},
			}, &to)
			proxy := packetSocket(t, network)
			const clients, rounds = 6, 5
			ports := make(map[string]int) // of the flows' sockets, by client
			b := make([]byte, 1<<16)
			for round := range rounds {
				for c := range clients {
					text := fmt.Sprintf("client %d says %d", c, round)
					tellGram(t, proxy, l.Addr(), string(headerOf(c))+text)
					from := hearGram(t, server, text)
					if was, ok := ports[from.String()]; ok && was != c {
						t.Fatalf("what client %d says comes from the socket of client %d", c, was)
					}
					ports[from.String()] = c
					server.WriteTo([]byte("to "+text), from)
					hearGram(t, proxy, "to "+text)
				}
			}
			if len(ports) != clients {
				t.Fatalf("%d flows for %d clients", len(ports), clients)
			}
			mu.Lock()
			for c := range clients {
				want := Addr{Network: UDP, AddrPort: clientNumber(c)}.String()
				if c == 0 {
					want = gramAddr(proxy.LocalAddr()).String()
				}
				if got := seen[string(headerOf(c))]; got != want {
					t.Errorf("client %d is taken for %q, want %q", c, got, want)
				}
			}
			mu.Unlock()
			// What has no header, or half of one, reaches nobody.
			for _, bad := range []string{"", "no header", string(headerOf(1)[:10]), string(headerOf(1)[:20]), strings.Repeat("\r\n", 20)} {
				tellGram(t, proxy, l.Addr(), bad)
			}
			testwait.Until(t, "they are dropped and counted", func() bool {
				d := r.dgramStats()
				return d.Dropped.Get(stats.DropProxyHeader) == 5
			})
			// What has only a header is an empty datagram of the client.
			tellGram(t, proxy, l.Addr(), string(headerOf(3)))
			server.SetReadDeadline(time.Now().Add(patience))
			if n, from, err := server.ReadFrom(b); n != 0 || err != nil || ports[from.String()] != 3 {
				t.Fatalf("%d bytes from %v, %v", n, from, err)
			}
		})
	}
}

// Replies have the header in front if it says so, each one, and as runs.
func TestNamedReplies(t *testing.T) {
	r := newDatagramRig(t, Config{})
	server := packetSocket(t, "udp4")
	to := gramAddr(server.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Origin: testOrigin(false)}}, &to)
	proxy := packetSocket(t, "udp4")
	for c := 1; c < 4; c++ {
		front := "\x56\xEC" + string(headerOf(c))
		tellGram(t, proxy, l.Addr(), front+"hello")
		from := hearGram(t, server, "hello")
		for range 3 {
			server.WriteTo([]byte("first"), from)
			server.WriteTo([]byte("other"), from)
			server.WriteTo(nil, from)
		}
		for range 3 {
			hearGram(t, proxy, front+"first")
			hearGram(t, proxy, front+"other")
			hearGram(t, proxy, front)
		}
	}
	echo := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Origin: testOrigin(false)}}, &Addr{Network: Echo})
	front := "\x56\xEC" + string(headerOf(5))
	askGram(t, proxy, echo.Addr(), front+"echoed")
}

// Where only the first datagram of a flow has a header, the next ones of the same socket are the same client's. Another name is never
// believed, be it from another client of the proxy or made by this one: the flow ends, and what follows without a header reaches nobody.
func TestNamedFirst(t *testing.T) {
	r := newDatagramRig(t, Config{})
	server := packetSocket(t, "udp4")
	to := gramAddr(server.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Origin: testOrigin(true)}}, &to)
	var proxies []net.PacketConn
	for c := 1; c < 4; c++ {
		p := packetSocket(t, "udp4")
		proxies = append(proxies, p)
		tellGram(t, p, l.Addr(), "too early")
		tellGram(t, p, l.Addr(), string(headerOf(c))+"hello")
		from := hearGram(t, server, "hello")
		tellGram(t, p, l.Addr(), "again")
		if again := hearGram(t, server, "again"); again.String() != from.String() {
			t.Errorf("client %d has two flows, %v and %v", c, from, again)
		}
		tellGram(t, p, l.Addr(), string(headerOf(c))+"the same")
		hearGram(t, server, "the same")
		server.WriteTo([]byte("answer"), from)
		hearGram(t, p, "answer")
	}
	forger := proxies[0]
	tellGram(t, forger, l.Addr(), string(headerOf(3))+"I am 3")
	tellGram(t, forger, l.Addr(), "who am I?")
	testwait.Until(t, "both are dropped", func() bool {
		d := r.dgramStats()
		return d.Dropped.Get(stats.DropProxyHeader) == 3+2
	})
	tellGram(t, forger, l.Addr(), string(headerOf(5))+"I am new")
	hearGram(t, server, "I am new")
	r.e.Close()
	if got := namedRecords(r); got["udp://198.51.100.1:4001"] != 3 || got["udp://198.51.100.5:4005"] != 1 || got["udp://[2001:db8::2]:4002"] != 3 {
		t.Errorf("datagrams by client: %v", got)
	}
}

// What the kernel has joined is taken apart: each datagram of a super-packet is that of the client which its header names, and those of one
// client leave as a run.
func TestNamedSuperPacket(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first=%t", first), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			server := packetSocket(t, "udp4")
			to := gramAddr(server.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Origin: testOrigin(first)}}, &to)
			proxy := packetSocket(t, "udp4")
			var texts, want []string
			const clients = 3
			for i := range 40 {
				c := 1 + 2*(i%clients) // headers of one length
				if first {
					c = 1
				}
				front, text := string(headerOf(c)), fmt.Sprintf("client %d says %02d", c, i)
				if first && i > 0 {
					front, text = "", text+strings.Repeat(".", len(front))
				}
				texts, want = append(texts, front+text), append(want, text)
			}
			sendRun(t, proxy, l.Addr().AddrPort, texts...)
			from := make(map[string]string)
			next := make(map[string]int)
			b := make([]byte, 1<<16)
			for range want {
				server.SetReadDeadline(time.Now().Add(patience))
				n, at, err := server.ReadFrom(b)
				if err != nil {
					t.Fatal(err)
				}
				who, _, _ := strings.Cut(string(b[:n]), " says")
				if was, ok := from[at.String()]; ok && was != who {
					t.Fatalf("%q comes from the socket of %s", b[:n], was)
				}
				from[at.String()] = who
				for ; next[who] < len(want) && !strings.HasPrefix(want[next[who]], who+" "); next[who]++ {
				}
				if string(b[:n]) != want[next[who]] {
					t.Fatalf("%q has arrived, want %q", b[:n], want[next[who]])
				}
				next[who]++
			}
			if d := r.dgramStats(); d.SuperPackets != 1 || d.Received != 40 || d.Runs == 0 || d.Dropped.Total() != 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Clients of a proxy cannot tell a relay to keep more than the flows that it may have, and a proxy's clients have their own networks in
// what is known of floods.
func TestNamedMany(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 50, MaxNewDatagramFlows: -1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Origin: testOrigin(false)}}, &Addr{Network: Discard})
	proxy := packetSocket(t, "udp4")
	const n = 2000
	to := Addr{Network: UDP, AddrPort: netip.MustParseAddrPort("192.0.2.1:53")}
	for i := range n {
		from := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 9)}
		tellGram(t, proxy, l.Addr(), string(AppendProxyHeader(nil, 2, from, to))+"x")
		if i%100 == 99 {
			testwait.Until(t, "they are there", func() bool { return r.dgramStats().Received == int64(i+1) })
		}
	}
	if d := r.dgramStats(); d.Flows > 50 {
		t.Errorf("%d flows, and at most 50 are allowed", d.Flows)
	}
}

// Flows whose clients a proxy has named go on with these clients when the process dies, with the headers of their replies, and with the same
// sockets towards their upstream.
func TestNamedFlowsOutliveProcess(t *testing.T) {
	for _, mode := range []string{"each", "first"} {
		t.Run(mode, func(t *testing.T) {
			k := newKeptTable(t)
			server := packetSocket(t, "udp4")
			o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "udp4")}, Upstream: gramAddr(server.LocalAddr()).String(), Named: mode}
			p := k.start(o)
			o.Listen = p.urls()
			to := p.addrs[0]
			const clients, kills = 6, 3
			shared := packetSocket(t, "udp4")
			proxies, sockets := make([]net.PacketConn, clients), make([]string, clients)
			say := func(c, round int) {
				t.Helper()
				if proxies[c] == nil {
					if proxies[c] = shared; mode == "first" {
						proxies[c] = packetSocket(t, "udp4")
					}
				}
				front, reply := string(headerOf(c)), ""
				if mode == "each" && c%3 == 1 {
					front = "\x56\xEC" + front
					reply = front
				}
				if mode == "first" && round > 0 {
					front = ""
				}
				text := fmt.Sprintf("client %d says %d", c, round)
				tellGram(t, proxies[c], to, front+text)
				from := hearGram(t, server, text)
				if sockets[c] == "" {
					sockets[c] = from.String()
				}
				if from.String() != sockets[c] {
					t.Fatalf("%q comes from %v, want %s", text, from, sockets[c])
				}
				server.WriteTo([]byte("to "+text), from)
				hearGram(t, proxies[c], reply+"to "+text)
			}
			for round := range kills + 1 {
				if round > 0 {
					k.expect(holdFlow, clients)
					p.ask("stats")
					p.kill()
					if p = k.start(o); p.Restored.Flows != clients || p.Restored.TotalLost() != 0 {
						t.Fatalf("restored: %+v", p.Restored)
					}
				}
				for c := range clients {
					say(c, round)
				}
			}
			p.ask("close")
			want := make(map[string]bool)
			for c := range clients {
				name := Addr{Network: UDP, AddrPort: clientNumber(c)}.String()
				if c == 0 {
					name = gramAddr(proxies[0].LocalAddr()).String()
				}
				want[name+"'"] = true
			}
			for range clients {
				rec := <-p.records
				if !want[rec.Value] || rec.Up.Datagrams != kills+1 || rec.Down.Datagrams != kills+1 {
					t.Errorf("record: %+v, want one of %v", rec, want)
				}
				delete(want, rec.Value)
			}
		})
	}
}
