package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/quic"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// namedServer is a server of QUIC that says its name at the head of each stream, and then returns what it gets.
func namedServer(t *testing.T, ctx context.Context, name string, config *quic.Config) net.Addr {
	e := quicEndpoint(t, config)
	go func() {
		for {
			c, err := e.Accept(ctx)
			if err != nil {
				return
			}
			go func() {
				for {
					s, err := c.AcceptStream(ctx)
					if err != nil {
						return
					}
					go func() {
						fmt.Fprintln(s, name)
						s.Flush()
						io.Copy(s, s)
						s.Close()
					}()
				}
			}()
		}
	}()
	return net.UDPAddrFromAddrPort(e.LocalAddr())
}

// A connection of QUIC is routed by the names in its ClientHello, as one of TLS over TCP is, and outlives the worker. Its
// ClientHello has keys of a post-quantum exchange, so that it takes two datagrams.
func TestQUICByName(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	const idle = 3 * patience // while a worker is replaced, a connection may have nothing to send
	serverTLS, clientTLS := certificate(t, "one.test", "a.wild.test", "other.test")
	serverTLS.NextProtos = append(serverTLS.NextProtos, "special")
	config := &quic.Config{TLSConfig: serverTLS, HandshakeTimeout: patience, MaxIdleTimeout: idle}
	k := runKept(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    sniff: {timeout: 1m}
    routes:
      - {name: one, sni: one.test, to: "udp://{0}"}
      - {name: wild, sni: "*.wild.test", to: "udp://{1}"}
      - {name: special, alpn: special, to: "udp://{2}"}
    to: "udp://{3}"
`, namedServer(t, ctx, "one", config), namedServer(t, ctx, "wild", config), namedServer(t, ctx, "special", config), namedServer(t, ctx, "default", config))
	type client struct {
		sni, alpn, want string
		conn            *quic.Conn
	}
	// Each asks for a stream, gets the server's name, and 100 kB back.
	ask := func(c *client) {
		t.Helper()
		s, err := c.conn.NewStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.SetReadContext(ctx)
		s.SetWriteContext(ctx)
		text := strings.Repeat(c.sni+" "+c.alpn+"\n", 5000)
		go func() {
			io.WriteString(s, text)
			s.CloseWrite()
		}()
		got, err := io.ReadAll(s)
		if err != nil || string(got) != c.want+"\n"+text {
			t.Errorf("%s, %s: %d bytes %.40q, %v; want those of %s", c.sni, c.alpn, len(got), got, err, c.want)
		}
	}
	clients := []*client{
		{"one.test", "penstock-test", "one", nil}, {"a.wild.test", "penstock-test", "wild", nil}, {"other.test", "special", "special", nil},
		{"other.test", "penstock-test", "default", nil}, {"test", "penstock-test", "default", nil},
	}
	dial := func(c *client) {
		t.Helper()
		tls := clientTLS.Clone()
		tls.ServerName, tls.NextProtos = c.sni, []string{c.alpn}
		conn, err := quicEndpoint(t, nil).Dial(ctx, "udp4", k.at("quic").String(), &quic.Config{TLSConfig: tls, HandshakeTimeout: patience, MaxIdleTimeout: idle})
		if err != nil {
			t.Fatalf("%s: %v", c.sni, err)
		}
		c.conn = conn
		ask(c)
	}
	for _, c := range clients {
		dial(c)
	}
	k.settled(int64(len(clients)))
	for i, replace := range []func(){k.crash, k.upgrade, k.crash} {
		replace()
		for _, c := range clients {
			ask(c)
		}
		another := *clients[i]
		dial(&another)
		k.settled(int64(len(clients) + i + 1))
	}
	flows := func() map[string]int {
		all, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
		if err != nil {
			t.Fatal(err)
		}
		routes := make(map[string]int)
		for _, f := range all.Flows {
			routes[f.SNI+" "+f.Route]++
		}
		return routes
	}
	routes := flows()
	if want := "map[a.wild.test wild:2 one.test one:2 other.test default:1 other.test special:2 test default:1]"; fmt.Sprint(routes) != want {
		t.Errorf("flows: %v, want %s", routes, want)
	}

	// What is no QUIC has no name.
	c, err := net.Dial("udp", k.at("quic").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "it goes to the default", func() bool { return flows()[" default"] == 1 })
}

// What comes in a client's name between the datagrams of its ClientHello, and is of no connection that could be read, changes
// nothing for the client.
func TestQUICStray(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hello := quicHello(t, ctx)
	d := runFile(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    sniff: {timeout: 1h}
    routes:
      - {name: named, sni: test, to: "udp://{0}"}
    to: "udp://{1}"
`, datagramEcho(t, "udp4", "127.0.0.1:0", "named "), datagramEcho(t, "udp4", "127.0.0.1:0", "default "))
	for what, stray := range map[string]string{"no QUIC": "\x00", "a short header": "\x40hello, server", "another version": "\xc0\x0a\x0a\x0a\x0a\x01\x01\x01\x01"} {
		c := datagramClient(t, d.daemon)
		for _, b := range []string{hello[0], stray} {
			if _, err := c.Write([]byte(b)); err != nil {
				t.Fatal(err)
			}
		}
		if got := ask(t, c, []byte(hello[1])); string(got) != "named "+hello[0] {
			t.Errorf("%s: %.40q came back first", what, got)
		}
	}
}

// A first datagram that no server would take ends its flow at once, however long a client may be sniffed; what the client sends next
// begins another one.
func TestQUICInvalid(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hello := quicHello(t, ctx)
	d := runFile(t, `listeners:
  quic:
    listen: "udp://127.0.0.1:0"
    sniff: {timeout: 1h}
    routes:
      - {name: named, sni: test, to: "udp://{0}"}
    to: "udp://{1}"
log: {flows: all}
`, datagramEcho(t, "udp4", "127.0.0.1:0", "named "), datagramEcho(t, "udp4", "127.0.0.1:0", "default "))
	c := datagramClient(t, d.daemon)
	forged := "\xc0\x00\x00\x00\x01\x08abcdefgh\x00\x00\x20" + strings.Repeat("\x00", 1200)
	if _, err := c.Write([]byte(forged)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, d.line("flow"), "cause", "refused", "reason", "quic-invalid", "path_up", "none")
	if _, err := c.Write([]byte(hello[0])); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, []byte(hello[1])); string(got) != "named "+hello[0] {
		t.Errorf("%.40q came back first", got)
	}
}

// quicHello returns the two datagrams in which a client says its ClientHello, for the server "test".
func quicHello(t *testing.T, ctx context.Context) (hello [2]string) {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, clientTLS := certificate(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := quicEndpoint(t, nil)
	go client.Dial(ctx, "udp4", server.LocalAddr().String(), &quic.Config{TLSConfig: clientTLS})
	b := make([]byte, 1<<16)
	for i := range hello {
		n, _, err := server.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		hello[i] = string(b[:n])
	}
	return hello
}

// A connection of QUIC goes to the host that it names, once its name is looked up: until then its datagrams wait. localhost is a name that
// every host knows.
func TestQUICToNamedHost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	serverTLS, clientTLS := certificate(t, "localhost", "other.test")
	at := namedServer(t, ctx, "named", &quic.Config{TLSConfig: serverTLS, HandshakeTimeout: patience})
	d := runFile(t, `
listeners: {quic: {listen: "udp://127.0.0.1:0", sniff: {timeout: 1m}, to: named}}
groups:
  named: {destination: {port: {0}, allow: [localhost], networks: [127.0.0.0/8, "::1/128"]}, retries: 3}
`, at.(*net.UDPAddr).Port)
	clientTLS.ServerName = "localhost"
	conn, err := quicEndpoint(t, nil).Dial(ctx, "udp4", d.at("quic").String(), &quic.Config{TLSConfig: clientTLS, HandshakeTimeout: patience})
	if err != nil {
		flows, _ := d.admin.Flows(d.ctx(), api.Filter{Listener: "quic"}, api.Page{})
		log, _ := os.ReadFile(d.dir + "/access.log")
		t.Fatal(err, flows, string(log))
	}
	s, err := conn.NewStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.SetReadContext(ctx)
	s.SetWriteContext(ctx)
	io.WriteString(s, "hello")
	s.CloseWrite()
	if got, err := io.ReadAll(s); string(got) != "named\nhello" {
		t.Errorf("%q, %v", got, err)
	}
	flows, err := d.admin.Flows(d.ctx(), api.Filter{Listener: "quic"}, api.Page{})
	if err != nil || len(flows.Flows) != 1 || flows.Flows[0].Member != fmt.Sprintf("udp://localhost:%d", at.(*net.UDPAddr).Port) || flows.Flows[0].SNI != "localhost" {
		t.Fatalf("%+v, %v", flows, err)
	}
	if f, err := d.admin.Flow(d.ctx(), flows.Flows[0].ID); err != nil || f.QUICVersion != "1" || len(f.QUICID) < 16 || f.QUICCame != "" {
		t.Errorf("%+v, %v", f, err)
	}

	// Another name is refused.
	clientTLS = clientTLS.Clone()
	clientTLS.ServerName = "other.test"
	short, stop := context.WithCancel(ctx)
	refused := make(chan error)
	go func() {
		_, err := quicEndpoint(t, nil).Dial(short, "udp4", d.at("quic").String(), &quic.Config{TLSConfig: clientTLS})
		refused <- err
	}()
	testwait.Until(t, "the refusal", func() bool {
		return d.metric("penstock_refusals_total", `listener="quic",reason="name-denied"`) > 0
	})
	stop()
	if err := <-refused; err == nil {
		t.Error("a name that is not allowed reaches a server")
	}
}
