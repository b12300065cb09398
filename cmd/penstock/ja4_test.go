package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"regexp"
	"testing"

	"golang.org/x/net/quic"

	"github.com/penstock/penstock/clienthello"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/ja4"
)

// Clients of listeners that record fingerprints have the one of the ClientHello that their member gets, in the details of the flow
// and in the access log, also across a crash; those of a listener that does not have none.
func TestJA4(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	serverTLS, clientTLS := certificate(t, "one.test")
	member, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	got := make(chan string, 3) // the fingerprints of what the member gets
	go func() {
		for {
			c, err := member.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				p, _, err := clienthello.Peek(c)
				if err != nil {
					t.Error(err)
				}
				first := p.TakeRead()
				got <- ja4.TLS(first)
				s := tls.Server(&readAgain{c, first}, serverTLS)
				io.Copy(s, s)
			}()
		}
	}()
	k := runKept(t, `listeners:
  records: {listen: "tcp://127.0.0.1:0", sniff: {ja4: true}, routes: [{sni: one.test, to: "tcp://{0}"}], to: "discard:"}
  silent: {listen: "tcp://127.0.0.1:0", routes: [{sni: one.test, to: "tcp://{0}"}], to: "discard:"}
  quic: {listen: "udp://127.0.0.1:0", sniff: {ja4: true}, routes: [{sni: one.test, to: "udp://{1}"}], to: "discard:"}
`, member.Addr(), namedServer(t, ctx, "one", &quic.Config{TLSConfig: serverTLS, HandshakeTimeout: patience, MaxIdleTimeout: 3 * patience}))
	clientTLS.ServerName = "one.test"
	want := map[string]string{}
	var clients []*tls.Conn
	for _, name := range []string{"records", "silent"} {
		c := tls.Client(k.to(name), clientTLS)
		defer c.Close()
		if _, err := c.Write([]byte("text")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		if want[name] = <-got; name == "silent" {
			want[name] = ""
		}
	}
	conn, err := quicEndpoint(t, nil).Dial(ctx, "udp4", k.at("quic").String(), &quic.Config{TLSConfig: clientTLS, HandshakeTimeout: patience, MaxIdleTimeout: 3 * patience})
	if err != nil {
		t.Fatal(err)
	}
	details := func(listener string) string {
		all, err := k.admin.Flows(k.ctx(), api.Filter{Listener: listener}, api.Page{})
		if err != nil || len(all.Flows) != 1 {
			t.Fatalf("%s: %+v, %v", listener, all, err)
		}
		f, err := k.admin.Flow(k.ctx(), all.Flows[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return f.JA4
	}
	want["quic"] = details("quic")
	if !regexp.MustCompile(`^q13d\d{4}pt_[0-9a-f]{12}_[0-9a-f]{12}$`).MatchString(want["quic"]) {
		t.Errorf("QUIC: %q", want["quic"])
	}
	if len(want["records"]) != len("t13d1516h2_8daaf6152771_e5627efa2ab1") {
		t.Errorf("TLS: %q", want["records"])
	}
	k.settled(3)
	for _, when := range []string{"", "after a crash"} {
		if when != "" {
			k.crash()
		}
		for name, fingerprint := range want {
			if got := details(name); got != fingerprint {
				t.Errorf("%s, %s: %q, want %q", name, when, got, fingerprint)
			}
		}
	}
	for _, c := range clients {
		c.Close()
	}
	conn.Abort(nil)
	if _, err := k.admin.KillAll(k.ctx(), api.Filter{Listener: "quic"}); err != nil {
		t.Fatal(err)
	}
	for _, r := range k.records(3) {
		got, _ := r["ja4"].(string)
		if name := r["listener"].(string); got != want[name] {
			t.Errorf("access log, %s: %q, want %q", name, got, want[name])
		}
	}
}

// readAgain is a connection of which something was read.
type readAgain struct {
	net.Conn
	first []byte
}

func (c *readAgain) Read(b []byte) (int, error) {
	if n := copy(b, c.first); n > 0 {
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
