package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/relay"
)

// A member is a server that handles each connection by itself.
func member(t *testing.T, handle func(net.Conn)) relay.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			handle(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return relay.Addr{Network: relay.TCP, AddrPort: l.Addr().(*net.TCPAddr).AddrPort()}
}

// speaking returns a member that speaks TLS and says hello.
func speaking(t *testing.T, c *tls.Config) relay.Addr {
	return member(t, func(conn net.Conn) {
		s := tls.Server(conn, c)
		if s.Handshake() == nil {
			io.WriteString(s, "hello")
			s.CloseWrite()
			io.Copy(io.Discard, s)
		}
	})
}

// shake shakes hands with a member, and reads what it says.
func shake(t *testing.T, k *Client, clientName, host string, to relay.Addr) (*tls.ConnectionState, error) {
	t.Helper()
	return shakeFor(t, k, clientName, "", host, to)
}

// shakeFor is shake for a client that has agreed on a protocol.
func shakeFor(t *testing.T, k *Client, clientName, clientProtocol, host string, to relay.Addr) (*tls.ConnectionState, error) {
	t.Helper()
	c, err := k.Config(clientName, clientProtocol, host, &to)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", to.AddrPort.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	s := tls.Client(conn, c)
	if err = s.Handshake(); err == nil {
		var b []byte
		if b, err = io.ReadAll(s); err == nil && string(b) != "hello" {
			t.Fatalf("the member says %q", b)
		}
	}
	state := s.ConnectionState()
	return &state, err
}

// client returns the Client of one configuration of TLS.
func client(t *testing.T, c spec.ClientTLS) *Client {
	t.Helper()
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	return NewClients(Options{}, nil).Of(&c)
}

func replace(t *testing.T, path string, text ...[]byte) string {
	t.Helper()
	var all []byte
	for _, b := range text {
		all = append(all, b...)
	}
	if err := os.WriteFile(path+".new", all, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClientVerifies(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.Authority(t, "Test CA")
	file := replace(t, filepath.Join(dir, "ca.pem"), ca.PEM())
	between := ca.IssueAuthority(t, "Between")
	to := speaking(t, &tls.Config{Certificates: []tls.Certificate{between.Issue(t, "web.example", testcerts.For("127.0.0.1", "b.example", "c.example")).TLS()}})
	old := speaking(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example", testcerts.Valid(-48*time.Hour, -time.Hour)).TLS()}})
	early := speaking(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example", testcerts.Valid(time.Hour, 48*time.Hour)).TLS()}})
	nameless := speaking(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web", func(c *x509.Certificate) { c.DNSNames = nil }).TLS()}})
	for _, c := range []struct {
		name             string
		tls              spec.ClientTLS
		clientName, host string
		to               relay.Addr
		want             string // part of the error; empty: none
	}{
		{"by the member's host", spec.ClientTLS{CA: file}, "", "web.example", to, ""},
		{"by its address", spec.ClientTLS{CA: file}, "", "127.0.0.1", to, ""},
		{"by the client's name", spec.ClientTLS{CA: file}, "b.example", "10.0.0.1", to, ""},
		{"by the configured name", spec.ClientTLS{CA: file, ServerName: "c.example"}, "x.example", "y.example", to, ""},
		{"another name", spec.ClientTLS{CA: file}, "", "other.example", to, "TLS: the certificate is for web.example, b.example, c.example, 1 others, not for other.example (server-name in tls sets another name)"},
		{"no name in it", spec.ClientTLS{CA: file}, "", "web.example", nameless, `TLS: the certificate is for no name ("web" is only its subject), not for web.example`},
		{"no name to compare with", spec.ClientTLS{CA: file}, "", "", to, "there is no name to compare"},
		{"unknown authority", spec.ClientTLS{}, "", "web.example", to, "TLS: the certificate of "},
		{"unknown authority, not verified", spec.ClientTLS{NoVerify: true}, "", "other.example", to, ""},
		{"not verified, no name", spec.ClientTLS{NoVerify: true}, "", "", to, ""},
		{"expired", spec.ClientTLS{CA: file}, "", "web.example", old, "TLS: the certificate of web.example has expired, on 20"},
		{"not valid yet", spec.ClientTLS{CA: file}, "", "web.example", early, "TLS: the certificate of web.example is not valid before 20"},
	} {
		state, err := shake(t, client(t, c.tls), c.clientName, c.host, c.to)
		if err != nil && !errors.Is(err, errNoName) {
			if at := Expires(state, err); at.IsZero() {
				t.Errorf("%s: the end of the certificate is not known", c.name)
			}
			err = Explain(err)
		}
		if text := textOf(err); c.want == "" && err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestClientOffers(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.Authority(t, "Test CA")
	own, key := ca.Issue(t, "relay.example").Write(t, dir, "own")
	other, otherKey := testcerts.Authority(t, "Other CA").Issue(t, "relay.example").Write(t, dir, "other")
	file := replace(t, filepath.Join(dir, "ca.pem"), ca.PEM())
	both := replace(t, filepath.Join(dir, "both.pem"), read(t, own), read(t, key))
	server := func(edit func(*tls.Config)) relay.Addr {
		c := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}}
		edit(c)
		return speaking(t, c)
	}
	asks := server(func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool() })
	asks12 := server(func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, ca.Pool(), tls.VersionTLS12
	})
	chooses := server(func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} })
	old := server(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
	for _, c := range []struct {
		name string
		tls  spec.ClientTLS
		to   relay.Addr
		want string
		alpn string
	}{
		{"certificate", spec.ClientTLS{Cert: own, Key: key}, asks, "", ""},
		{"certificate and key in one file", spec.ClientTLS{Cert: both}, asks, "", ""},
		{"certificate of another authority", spec.ClientTLS{Cert: other, Key: otherKey}, asks, "TLS: the member refuses: unknown certificate authority", ""},
		{"no certificate", spec.ClientTLS{}, asks, "TLS: the member refuses: certificate required", ""},
		{"no certificate, TLS 1.2", spec.ClientTLS{}, asks12, "TLS: the member refuses: handshake failure", ""},
		{"protocols", spec.ClientTLS{ALPN: spec.Offer{List: "http/1.1,h2"}}, chooses, "", "h2"},
		{"other protocols", spec.ClientTLS{ALPN: spec.Offer{List: "smtp"}}, chooses, "TLS: the member refuses: no application protocol", ""},
		{"no protocols", spec.ClientTLS{}, chooses, "", ""},
		{"an old version", spec.ClientTLS{}, old, "", ""},
		{"too old a version", spec.ClientTLS{MinVersion: tls.VersionTLS13}, old, "TLS: the member refuses: protocol version not supported", ""},
	} {
		c.tls.CA = file
		state, err := shake(t, client(t, c.tls), "", "web.example", c.to)
		if text := textOf(Explain(err)); text != c.want {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
		if state != nil && err == nil && state.NegotiatedProtocol != c.alpn {
			t.Errorf("%s: protocol %q, want %q", c.name, state.NegotiatedProtocol, c.alpn)
		}
	}
}

// What a member is offered depends on what the client has agreed on.
func TestClientOffersTheClientsProtocol(t *testing.T) {
	to := speaking(t, &tls.Config{Certificates: []tls.Certificate{testcerts.Authority(t, "Test CA").Issue(t, "web.example").TLS()}, NextProtos: []string{"h2", "x", "http/1.1"}})
	for _, c := range []struct {
		offer        spec.Offer
		client, want string
	}{
		{spec.Offer{}, "", ""},
		{spec.Offer{}, "http/1.1", "http/1.1"},
		{spec.Offer{}, "x", "x"},
		{spec.Offer{None: true}, "h2", ""},
		{spec.Offer{List: "h2,http/1.1"}, "", "h2"},
		{spec.Offer{List: "h2,http/1.1"}, "http/1.1", "http/1.1"},
		{spec.Offer{List: "http/1.1"}, "h2", "http/1.1"},
	} {
		state, err := shakeFor(t, client(t, spec.ClientTLS{NoVerify: true, ALPN: c.offer}), "", c.client, "", to)
		if err != nil || state.NegotiatedProtocol != c.want {
			t.Errorf("%+v: %q, %v", c, state.NegotiatedProtocol, err)
		}
	}
	if offer := (spec.Offer{List: "http/1.1,h2"}).For("http/1"); offer != "http/1.1,h2" {
		t.Errorf("offered for a part of a protocol's name: %s", offer)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Each member knows only its own tickets: sessions are kept by name and member, and by what was offered.
func TestClientResumes(t *testing.T) {
	ca := testcerts.Authority(t, "Test CA")
	file := replace(t, filepath.Join(t.TempDir(), "ca.pem"), ca.PEM())
	c := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}}
	members := []relay.Addr{speaking(t, c), speaking(t, c.Clone())}
	k := client(t, spec.ClientTLS{CA: file})
	for round := range 3 {
		for i, to := range members {
			state, err := shake(t, k, "web.example", "", to)
			if err != nil {
				t.Fatal(err)
			}
			if state.DidResume != (round > 0) {
				t.Errorf("round %d, member %d: resumed %v", round, i, state.DidResume)
			}
		}
	}
	for _, want := range []bool{false, true} {
		if state, err := shakeFor(t, k, "web.example", "h2", "", members[0]); err != nil || state.DidResume != want {
			t.Errorf("with a protocol: resumed %v, %v, want %v", state.DidResume, err, want)
		}
	}
	a, _ := k.Config("web.example", "", "", &members[0])
	b, _ := k.Config("", "", "web.example", &members[0])
	if a != b {
		t.Error("the same name and member have other settings")
	}
	if n := testing.AllocsPerRun(100, func() { k.Config("web.example", "h2", "host", &members[0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Clients choose names: they do not fill the memory, and what is used often stays.
func TestClientBound(t *testing.T) {
	k := client(t, spec.ClientTLS{NoVerify: true})
	to := relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("10.0.0.1:443")}
	first, _ := k.Config("often.example", "", "", &to)
	for i := range 5 * maxConfigs {
		if _, err := k.Config(strconv.Itoa(i)+".example", "", "", &to); err != nil {
			t.Fatal(err)
		}
		if again, _ := k.Config("often.example", "", "", &to); again != first {
			t.Fatalf("the settings that are used often are gone after %d others", i)
		}
	}
	if m := k.now.Load(); len(m.fresh) > maxConfigs || len(m.old) > maxConfigs {
		t.Errorf("%d and %d settings are kept", len(m.fresh), len(m.old))
	}
}

// Files are read again when they change; what is wrong is told once, and not used.
func TestClientsLook(t *testing.T) {
	dir := t.TempDir()
	ca, next := testcerts.Authority(t, "Test CA"), testcerts.Authority(t, "Next CA")
	file := filepath.Join(dir, "ca.pem")
	now := time.Now()
	var told []string
	all := NewClients(Options{Now: func() time.Time { return now }}, func(p Problems) {
		for _, e := range p {
			told = append(told, strings.ReplaceAll(e.String(), dir, "DIR"))
		}
	})
	expect := func(what string, want ...string) {
		t.Helper()
		all.Look()
		all.Look()
		if len(told) != len(want) {
			t.Fatalf("%s: told %q, want %q", what, told, want)
		}
		for i := range want {
			if !strings.Contains(told[i], want[i]) {
				t.Errorf("%s: told %q, want %q", what, told[i], want[i])
			}
		}
		told = nil
	}
	conf := &spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12}
	all.Set([]*spec.ClientTLS{conf})
	k := all.Of(conf)
	before := speaking(t, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}})
	after := speaking(t, &tls.Config{Certificates: []tls.Certificate{next.Issue(t, "web.example").TLS()}})
	trusts := func(to relay.Addr, want bool) {
		t.Helper()
		if _, err := shake(t, k, "", "web.example", to); (err == nil) != want {
			t.Errorf("trusts: %v, want %v", err, want)
		}
	}
	if _, err := k.Config("", "web.example", "", &before); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without the file: %v", err)
	}
	expect("without the file", "DIR/ca.pem: no such file")
	replace(t, file, ca.PEM())
	expect("with the file")
	trusts(before, true)
	trusts(after, false)
	replace(t, file, []byte("-----BEGIN CERTIFICATE-----\nnothing\n"))
	expect("a broken file", "DIR/ca.pem:1: the PEM block that begins here is damaged")
	trusts(before, true)
	replace(t, file, ca.PEM(), next.PEM())
	expect("two authorities")
	trusts(before, true)
	trusts(after, true)
	replace(t, file, next.PEM())
	expect("another authority")
	trusts(before, false)
	trusts(after, true)
	if other := all.Of(&spec.ClientTLS{CA: file, MinVersion: tls.VersionTLS12}); other != k {
		t.Error("the same configuration has another Client")
	}
	now = now.Add(340 * 24 * time.Hour)
	expect("soon over", "DIR/ca.pem:1: warning: the certificate of \"Next CA\" expires in 2")
	now = now.Add(30 * 24 * time.Hour)
	expect("over", "DIR/ca.pem:1: warning: the certificate of \"Next CA\" has expired")
	all.Set(nil)
	replace(t, file, []byte("x"))
	expect("forgotten")
}

func TestCheckClient(t *testing.T) {
	dir := t.TempDir()
	ca := testcerts.Authority(t, "Test CA")
	file := replace(t, filepath.Join(dir, "ca.pem"), ca.PEM())
	own, key := ca.Issue(t, "relay.example").Write(t, dir, "own")
	soon, soonKey := ca.Issue(t, "soon.example", testcerts.Valid(-80*24*time.Hour, 10*24*time.Hour+time.Minute)).Write(t, dir, "soon")
	old, oldKey := ca.Issue(t, "old.example", testcerts.Valid(-48*time.Hour, -time.Hour)).Write(t, dir, "old")
	for _, c := range []struct {
		name string
		tls  spec.ClientTLS
		want string
	}{
		{"good", spec.ClientTLS{CA: file, Cert: own, Key: key}, ""},
		{"no file", spec.ClientTLS{CA: filepath.Join(dir, "none")}, "ca DIR/none: no such file"},
		{"no authority", spec.ClientTLS{CA: key}, "ca DIR/own.key: there is no certificate in it; allowed: PEM blocks that begin with -----BEGIN CERTIFICATE-----"},
		{"a folder", spec.ClientTLS{CA: dir}, "ca DIR: is not a regular file"},
		{"no key", spec.ClientTLS{Cert: own}, "certificate DIR/own.pem: there is no private key in it"},
		{"another key", spec.ClientTLS{Cert: own, Key: soonKey}, "certificate DIR/own.pem:1: the key is not that of the certificate of relay.example"},
		{"expires soon", spec.ClientTLS{Cert: soon, Key: soonKey}, "certificate DIR/soon.pem:1: warning: the certificate of soon.example expires in 10 days"},
		{"expired", spec.ClientTLS{Cert: old, Key: oldKey}, "certificate DIR/old.pem:1: warning: the certificate of old.example has expired"},
	} {
		var got []string
		CheckClient(&c.tls, Options{}, func(field *string, p Problem) {
			name := map[*string]string{&c.tls.CA: "ca", &c.tls.Cert: "certificate", &c.tls.Key: "key"}[field]
			got = append(got, name+" "+strings.ReplaceAll(p.String(), dir, "DIR"))
		})
		if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.HasPrefix(text, c.want) || len(got) > 1 {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

// What is not TLS, or ends early, is said so.
func TestExplain(t *testing.T) {
	k := client(t, spec.ClientTLS{NoVerify: true})
	drain := func(c net.Conn) { io.ReadFull(c, make([]byte, 100)) }
	for _, c := range []struct {
		name   string
		handle func(net.Conn)
		want   string
	}{
		{"another protocol", func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n"); drain(c) }, `TLS: the member does not speak TLS: what it says begins with "SSH-2"`},
		{"HTTP", func(c net.Conn) { drain(c); io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }, `TLS: the member does not speak TLS: what it says begins with "HTTP/"`},
		{"the end", func(c net.Conn) {
			io.ReadAtLeast(c, make([]byte, 4096), 400)
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
		}, "TLS: the member has ended the connection in the handshake"},
		{"a record too long", func(c net.Conn) { drain(c); c.Write([]byte{22, 3, 3, 0xff, 0xff}) }, "TLS: "},
		{"an alert", func(c net.Conn) { drain(c); c.Write([]byte{21, 3, 3, 0, 2, 2, 112}) }, "TLS: the member refuses: unrecognized name"},
		{"garbage in a record", func(c net.Conn) { drain(c); c.Write([]byte{22, 3, 3, 0, 4, 2, 0, 0, 0}) }, "TLS: "},
	} {
		to := member(t, c.handle)
		_, err := shake(t, k, "", "", to)
		if text := textOf(Explain(err)); err == nil || !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
	if Explain(nil) != nil {
		t.Error("no error is one")
	}
}
