package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A relay in front of another one names its clients to it, in front of each datagram or of the first one of each flow; the second relay
// admits and records these clients, and names them to the member.
func TestProxyProtocolDatagramsIn(t *testing.T) {
	for _, which := range []string{"each", "first"} {
		t.Run(which, func(t *testing.T) {
			member, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer member.Close()
			back := runFile(t, `
listeners:
  dns: {listen: "udp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.1, datagrams: {1}}, deny: 127.8.0.3, to: members}
groups:
  members: {members: ["udp://{0}"], proxy-protocol: v2}
`, member.LocalAddr(), which)
			front := runFile(t, `
listeners:
  dns: {listen: "udp://127.0.0.1:0", to: back}
groups:
  back: {members: ["udp://{0}"], proxy-protocol: {version: 2, datagrams: {1}}}
`, back.at("dns"), which)
			b := make([]byte, 1<<16)
			for _, ip := range []string{"127.8.0.1", "127.8.0.2"} {
				d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(ip)}}
				c, err := d.Dial("udp", front.at("dns").String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, text := range []string{"one", "", strings.Repeat("x", 1400), "last"} {
					c.Write([]byte(text))
					member.SetReadDeadline(time.Now().Add(patience))
					n, from, err := member.ReadFrom(b)
					if err != nil {
						t.Fatal(err)
					}
					if payload := mustBeFrom(t, b[:n], c, false); string(payload) != text {
						t.Fatalf("the member has got %q, want %q", payload, text)
					}
					member.WriteTo([]byte(ip+text), from)
					c.SetReadDeadline(time.Now().Add(patience))
					if n, err = c.Read(b); err != nil || string(b[:n]) != ip+text {
						t.Fatalf("answered %q, %v; want %q", b[:n], err, text)
					}
				}
			}
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP("127.8.0.3")}}
			c, err := d.Dial("udp", front.at("dns").String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte("denied"))
			testwait.Until(t, "the denied client's record is there", func() bool {
				log, _ := os.ReadFile(filepath.Join(back.dir, "access.log"))
				return strings.Contains(string(log), `"denied"`) && strings.Contains(string(log), "127.8.0.3")
			})
			// A proxy that names nobody, and does not say so, is not heard.
			bare := testnet.Dial(t, back.at("dns"))
			bare.Write([]byte("no header"))
			testwait.Until(t, "it is dropped and counted", func() bool {
				return back.metric("penstock_datagrams_dropped_total", `reason="proxy-header"`) == 1
			})
		})
	}
}

// No header is read from a sender that is not a proxy: what looks like one is payload.
func TestProxyProtocolDatagramsForged(t *testing.T) {
	d := runFile(t, `
listeners:
  echo: {listen: "udp://127.0.0.1:0", proxy-protocol: {from: 192.0.2.1}, deny: 192.0.2.7, to: "echo:"}
`)
	c := testnet.Dial(t, d.at("echo"))
	c.SetDeadline(time.Now().Add(patience))
	b := make([]byte, 1<<16)
	for _, text := range []string{string(header(t, 2, "192.0.2.7:1")) + "x", spp("192.0.2.7:1", "192.0.2.1:2") + "y"} {
		c.Write([]byte(text))
		if n, err := c.Read(b); err != nil || string(b[:n]) != text {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
}

// spp is a header of Cloudflare's Simple Proxy Protocol.
func spp(client, proxy string) string {
	b := []byte{0x56, 0xEC}
	for _, at := range []string{client, proxy} {
		ip := netip.MustParseAddrPort(at).Addr().As16()
		b = append(b, ip[:]...)
	}
	for _, at := range []string{client, proxy} {
		port := netip.MustParseAddrPort(at).Port()
		b = append(b, byte(port>>8), byte(port))
	}
	return string(b)
}

// Clients behind Cloudflare's Spectrum have SPP in front of each datagram, and get it back in front of each answer, also from the worker after
// the one that they began with.
func TestSimpleProxyProtocol(t *testing.T) {
	k := runKept(t, `
listeners:
  echo: {listen: "udp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: members}
groups:
  members: {members: ["udp://{0}"], proxy-protocol: v2}
`, echoOfClients(t))
	proxy, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	at, b := k.at("echo"), make([]byte, 1<<16)
	ask := func(round int) {
		for i := range 5 {
			client := fmt.Sprintf("198.51.100.%d:%d", i, 1000+i)
			if i%2 == 1 {
				client = fmt.Sprintf("[2001:db8::%d]:%d", i, 1000+i)
			}
			head := spp(client, "203.0.113.1:53")
			text := fmt.Sprintf("round %d", round)
			proxy.WriteTo([]byte(head+text), at)
			proxy.SetReadDeadline(time.Now().Add(patience))
			n, _, err := proxy.ReadFrom(b)
			if want := head + client + " says " + text; err != nil || string(b[:n]) != want {
				t.Fatalf("%q, %v; want %q", b[:n], err, want)
			}
		}
	}
	ask(0)
	k.upgrade()
	ask(1)
	k.upgrade()
	ask(2)
}

// echoOfClients answers each datagram with the client that its header names and what it says.
func echoOfClients(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			const v4, v6 = 28, 52
			head := v4
			if b[13]>>4 == 2 {
				head = v6
			}
			var h proxyproto.Header
			if err := parseV2(b[:head], &h); err != nil {
				t.Error(err)
				return
			}
			c.WriteTo([]byte(fmt.Sprintf("%s says %s", h.SourceAddr, b[head:n])), from)
		}
	}()
	return c.LocalAddr().String()
}

func newReader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), len(b)+16) }

func parseV2(b []byte, h *proxyproto.Header) error {
	got, err := proxyproto.Read(newReader(b))
	if err == nil {
		*h = *got
	}
	return err
}

// A dnsdist in front, which many clients share one socket of, names them to the relay behind it. Its checks have headers that name nobody.
func TestProxyProtocolBehindDnsdist(t *testing.T) {
	need(t, "dnsdist")
	member := dnsThatTells(t)
	d := runFile(t, `
listeners:
  dns: {listen: "udp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: members}
groups:
  members: {members: ["udp://{0}"], proxy-protocol: v2}
`, member)
	dir, port := shortDir(t), testnet.Port(t)
	serve(t, "dnsdist", "--supervised", "--disable-syslog", "-C", writeConf(t, dir, "conf", `setLocal("127.0.0.1:`+port+`")
addLocal("[::1]:`+port+`")
setACL({"127.0.0.0/8", "::1/128"})
setSecurityPollSuffix("")
setUDPTimeout(60)
newServer({address="`+d.at("dns").String()+`", useProxyProtocol=true, checkTimeout=60000})
`))
	for _, c := range []struct{ at, client, told string }{
		{"127.0.0.1", "127.9.0.1", "127.9.0.1"}, {"127.0.0.1", "127.9.0.2", "127.9.0.2"}, {"::1", "::1", "127.9.0.6"}, {"127.0.0.1", "127.9.0.3", "127.9.0.3"},
	} {
		addr := netAddr(t, "udp://"+net.JoinHostPort(c.at, port))
		testwait.Until(t, "dnsdist answers", func() bool { return askedOnce(addr, c.client) })
		mustBeTold(t, addr, c.client, c.told, 100)
	}
}

// askedOnce reports whether a question is answered soon.
func askedOnce(at net.Addr, client string) bool {
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(client)}}
	c, err := d.Dial("udp", at.String())
	if err != nil {
		return false
	}
	defer c.Close()
	c.Write([]byte("\x00\x00\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06client\x04test\x00\x00\x01\x00\x01"))
	c.SetReadDeadline(time.Now().Add(time.Second / 4))
	_, err = c.Read(make([]byte, 1500))
	return err == nil
}

// dnsThatTells is a DNS server that answers with the address of the client that a header names; ::1 is told 127.9.0.6.
func dnsThatTells(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			rest := newReader(b[:n])
			h, err := proxyproto.Read(rest)
			if err != nil {
				continue
			}
			var question bytes.Buffer
			rest.WriteTo(&question)
			q := question.Bytes()
			ip := h.SourceAddr.(*net.UDPAddr).IP.To4()
			if ip == nil {
				ip = net.IP{127, 9, 0, 6}
			}
			if len(q) < 12 {
				continue
			}
			answer := append(bytes.Clone(q[:2]), "\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00"...)
			answer = append(answer, q[12:]...)
			answer = append(answer, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04"...)
			c.WriteTo(append(answer, ip...), from)
		}
	}()
	return c.LocalAddr().String()
}
