package main

import (
	"bufio"
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Members of datagrams are told the client's address and the one that it has written to, in front of each datagram or of the first one,
// with the TLVs of the configuration. A datagram that is too long then is counted. An independent parser reads the headers.
func TestProxyProtocolDatagrams(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		t.Run(ip, func(t *testing.T) {
			member, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", "0"))
			if err != nil {
				t.Fatal(err)
			}
			defer member.Close()
			d := runFile(t, `
listeners:
  each: {listen: "udp://{1}", to: each}
  first: {listen: "udp://{1}", to: first}
groups:
  each: {members: ["udp://{0}"], proxy-protocol: {version: 2, tlvs: {0xE0: one}}}
  first: {members: ["udp://{0}"], proxy-protocol: {version: 2, datagrams: first}}
`, member.LocalAddr(), net.JoinHostPort(ip, "0"))
			for _, listener := range []string{"each", "first"} {
				c := testnet.Dial(t, d.at(listener))
				for i, text := range []string{"one", "", strings.Repeat("x", 1400), "last"} {
					if _, err := c.Write([]byte(text)); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, 1<<16)
					member.SetReadDeadline(time.Now().Add(patience))
					n, from, err := member.ReadFrom(b)
					if err != nil {
						t.Fatal(err)
					}
					payload := b[:n]
					if listener == "each" || i == 0 {
						payload = mustBeFrom(t, payload, c, listener == "each")
					}
					if string(payload) != text {
						t.Fatalf("%s: the member has got %q, want %q", listener, payload, text)
					}
					member.WriteTo(payload, from)
					c.SetReadDeadline(time.Now().Add(patience))
					if n, err = c.Read(b); err != nil || string(b[:n]) != text {
						t.Fatalf("%s: answered %q, %v; want %q", listener, b[:n], err, text)
					}
				}
			}
			c := testnet.Dial(t, d.at("each"))
			c.Write(make([]byte, 65490))
			testwait.Until(t, "it is dropped and counted", func() bool {
				return d.metric("penstock_datagrams_dropped_total", `reason="too-big-with-preface"`) == 1
			})
		})
	}
}

// mustBeFrom reads a header, which must name the client and where it has sent to, and returns what follows.
func mustBeFrom(t *testing.T, b []byte, client net.Conn, tlvs bool) []byte {
	t.Helper()
	rest := bytes.NewReader(b)
	buffered := bufio.NewReaderSize(rest, len(b))
	h, err := proxyproto.Read(buffered)
	if err != nil {
		t.Fatalf("%v: %x", err, b)
	}
	if h.Version != 2 || !h.TransportProtocol.IsDatagram() || h.SourceAddr.String() != client.LocalAddr().String() || h.DestinationAddr.String() != client.RemoteAddr().String() {
		t.Fatalf("the header says that %v has written to %v; want %v to %v: %+v", h.SourceAddr, h.DestinationAddr, client.LocalAddr(), client.RemoteAddr(), h)
	}
	if all, err := h.TLVs(); err != nil || len(all) > 0 != tlvs || tlvs && string(all[0].Value) != "one" {
		t.Fatalf("TLVs %v, %v", all, err)
	}
	return b[len(b)-buffered.Buffered()-rest.Len():]
}
