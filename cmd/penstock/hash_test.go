package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// headerWith returns a PROXY header of version 2 with TLVs, in the bytes of another implementation.
func headerWith(t *testing.T, tlvs ...proxyproto.TLV) []byte {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.IP{192, 0, 2, 1}, Port: 1}, &net.TCPAddr{IP: net.IP{192, 0, 2, 2}, Port: 2})
	if err := h.SetTLVs(tlvs); err != nil {
		t.Fatal(err)
	}
	b, err := h.Format()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Clients with the same server name, or the same TLV, are at the same member, whatever their
// addresses; names and values spread; a client without one goes by its address.
func TestHashKeys(t *testing.T) {
	t.Parallel()
	var urls []any
	for i := range 5 {
		urls = append(urls, speak(t, fmt.Sprint("s", i)).url())
	}
	c := runFile(t, `
listeners:
  names: {listen: "tcp://127.0.0.1:0", sniff: {timeout: 1m}, to: names}
  values: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: values}
groups:
  names: {balance: maglev, hash: sni, members: ["{0}", "{1}", "{2}", "{3}", "{4}"]}
  values: {balance: maglev, hash: "tlv:0xEA", members: ["{0}", "{1}", "{2}", "{3}", "{4}"]}
`, urls...)
	byName := func(sni string) string {
		conn := c.to("names")
		defer conn.Close()
		if sni != "" {
			// The speaker speaks no TLS: the handshake fails, but what arrives is recorded.
			heard := &recorded{Conn: conn}
			tls.Client(heard, &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake()
			at, _, _ := strings.Cut(heard.text.String(), "\n")
			return at
		}
		io.WriteString(conn, "no TLS")
		return name(t, conn)
	}
	byValue := func(tlvs ...proxyproto.TLV) string {
		conn := c.to("values")
		defer conn.Close()
		conn.Write(headerWith(t, tlvs...))
		return name(t, conn)
	}
	seen := map[string]bool{}
	for i := range 20 {
		sni := fmt.Sprintf("n%d.example.org", i)
		at := byName(sni)
		seen[at] = true
		if again := byName(sni); again != at || at == "" {
			t.Errorf("%s is at %q, then at %q", sni, at, again)
		}
	}
	if len(seen) < 3 {
		t.Errorf("20 names are at %v", seen)
	}
	if at := byName(""); at != byName("") {
		t.Error("clients without a name are not hashed by their address")
	}
	clear(seen)
	for i := range 20 {
		tlv := proxyproto.TLV{Type: 0xEA, Value: fmt.Appendf(nil, "vpce-%d", i)}
		at := byValue(tlv)
		seen[at] = true
		if again := byValue(proxyproto.TLV{Type: 0xE0, Value: []byte{byte(i)}}, tlv); again != at {
			t.Errorf("%s is at %s, then at %s", tlv.Value, at, again)
		}
	}
	if len(seen) < 3 {
		t.Errorf("20 values are at %v", seen)
	}
	if at := byValue(); at != byValue() {
		t.Error("clients without a TLV are not hashed by their address")
	}
}

// recorded is a connection that keeps what is read from it.
type recorded struct {
	net.Conn
	text strings.Builder
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.text.Write(b[:n])
	return n, err
}

// TLVs are passed on as the group says, and no others; what the configuration sets takes precedence.
func TestForwardTLVs(t *testing.T) {
	t.Parallel()
	all, some, none := readProxy(t), readProxy(t), readProxy(t)
	c := runFile(t, `
listeners:
  all: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: all}
  some: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: some}
  none: {listen: "tcp://127.0.0.1:0", proxy-protocol: {from: 127.0.0.0/8}, to: none}
groups:
  all: {members: ["{0}"], proxy-protocol: {version: 2, forward: all, tlvs: {0xE1: own}}}
  some: {members: ["{1}"], proxy-protocol: {version: 2, forward: [0x02, 0xEA, 0x05]}}
  none: {members: ["{2}"], proxy-protocol: {version: 2}}
`, url(all.Addr()), url(some.Addr()), url(none.Addr()))
	sent := []proxyproto.TLV{
		{Type: proxyproto.PP2_TYPE_AUTHORITY, Value: []byte("www.example.org")},
		{Type: proxyproto.PP2_TYPE_ALPN, Value: []byte("h2")},
		{Type: proxyproto.PP2_TYPE_NOOP, Value: make([]byte, 10)},
		{Type: 0xEA, Value: []byte("\x01vpce-1")},
		{Type: 0xE1, Value: []byte("theirs")},
		{Type: 0xEA, Value: []byte("\x01vpce-2")},
		{Type: proxyproto.PP2_TYPE_UNIQUE_ID, Value: []byte("id")},
	}
	large := proxyproto.TLV{Type: 0xE2, Value: make([]byte, 3900)}
	for _, test := range []struct {
		listener string
		at       *reader
		sent     []proxyproto.TLV
		want     string
	}{
		{"all", all, sent, `01="h2" 02="www.example.org" 05="id" E1="own" EA="\x01vpce-1" EA="\x01vpce-2"`},
		{"all", all, []proxyproto.TLV{large}, fmt.Sprintf("E1=%q E2=%q", "own", large.Value)},
		{"some", some, sent, `02="www.example.org" 05="id" EA="\x01vpce-1" EA="\x01vpce-2"`},
		{"none", none, sent, ""},
	} {
		conn := c.to(test.listener)
		conn.Write(append(headerWith(t, test.sent...), "hello"...))
		h := test.at.next(t)
		tlvs, err := h.TLVs()
		if err != nil {
			t.Fatal(err)
		}
		if got := tlvText(tlvs); got != test.want {
			t.Errorf("%s: got %s, want %s", test.listener, got, test.want)
		}
		b := make([]byte, 5)
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
			t.Errorf("%s: %q, %v", test.listener, b, err)
		}
		conn.Close()
	}
}

// tlvText writes TLVs in the order of their types.
func tlvText(tlvs []proxyproto.TLV) string {
	var parts []string
	for kind := range 256 {
		for _, v := range tlvs {
			if int(v.Type) == kind {
				parts = append(parts, fmt.Sprintf("%02X=%q", kind, v.Value))
			}
		}
	}
	return strings.Join(parts, " ")
}
