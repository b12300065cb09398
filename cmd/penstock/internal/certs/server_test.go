package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// named gives a certificate names.
func named(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = names }
}

// A client gets the certificate of its server name: the exact one, then that of a wildcard for one label, then the first.
func TestChoice(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	first := sign(t, root, ecKey(), "first", named("first.example", "Upper.example"))
	wild := sign(t, root, ecKey(), "wild", named("*.example.org", "a.*.example", "*"))
	exact := sign(t, root, ecKey(), "exact", named("www.example.org", "first.example"))
	c := config(first.save(t, filepath.Join(dir, "1.pem")), wild.save(t, filepath.Join(dir, "2.pem")), exact.save(t, filepath.Join(dir, "3.pem")))
	s := open(t, c, nil)
	client := func(name string) *tls.Config { return &tls.Config{ServerName: name, InsecureSkipVerify: true} }
	for name, want := range map[string]*made{
		"first.example": first, "upper.example": first, "UPPER.example": first, "www.example.org": exact, "WWW.EXAMPLE.ORG": exact, "a.example.org": wild,
		"a.b.example.org": first, "example.org": first, "other.example": first, "a.x.example": first, "": first, "localhost": first,
	} {
		if got := handshake(t, s, client(name)).serial(t); got != want.SerialNumber.Int64() {
			t.Errorf("%q: certificate %d, want %v", name, got, want.SerialNumber)
		}
	}
	refusing := *c
	refusing.RefuseUnknown = true
	s = open(t, &refusing, nil)
	if r := handshake(t, s, client("other.example")); !alertOf(r.clientErr, "unrecognized name") || r.serverErr == nil {
		t.Errorf("unknown name: client: %v; server: %v", r.clientErr, r.serverErr)
	}
	old := client("other.example")
	old.MaxVersion = tls.VersionTLS12
	if r := handshake(t, s, old); !alertOf(r.clientErr, "unrecognized name") {
		t.Errorf("unknown name in TLS 1.2: %v", r.clientErr)
	}
	for name, want := range map[string]string{"other.example": `no certificate has the server name "other.example", and unknown-names is refuse`, "a.example.org": "EOF", "": "EOF"} {
		if err := s.Refused(name, io.EOF); !strings.Contains(err.Error(), want) || !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", name, err)
		}
	}
	handshake(t, s, client("")).ok(t)
	handshake(t, s, client("a.example.org")).ok(t)
	if got := s.Certificates(); len(got) != 3 || got[0].File != c.Certificates[0].Chain || len(got[0].Names) != 2 || got[0].Key != "ECDSA" || !got[0].NotAfter.Equal(first.NotAfter) {
		t.Errorf("%+v", got)
	}
}

// Certificates for one name with keys of two kinds are both offered: each client gets one that it can use.
func TestTwoKinds(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	slow, fast := sign(t, root, rsaKey(), "a.example", nil), sign(t, root, ecKey(), "a.example", nil)
	s := open(t, config(slow.save(t, filepath.Join(dir, "rsa.pem")), fast.save(t, filepath.Join(dir, "ec.pem"))), nil)
	for _, name := range []string{"a.example", "", "other.example"} {
		only := func(suite uint16) *tls.Config {
			return &tls.Config{ServerName: name, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}
		}
		if got := handshake(t, s, only(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)).serial(t); got != slow.SerialNumber.Int64() {
			t.Errorf("%q: a client that knows RSA only got %d", name, got)
		}
		if got := handshake(t, s, only(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)).serial(t); got != fast.SerialNumber.Int64() {
			t.Errorf("%q: a client that knows ECDSA only got %d", name, got)
		}
		if got := handshake(t, s, &tls.Config{ServerName: name, InsecureSkipVerify: true}).serial(t); got != fast.SerialNumber.Int64() {
			t.Errorf("%q: a client that knows both got %d", name, got)
		}
	}
}

func TestSettings(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	c := config(sign(t, root, ecKey(), "a.example", nil).save(t, filepath.Join(dir, "a.pem")))
	c.MinVersion, c.ALPN = tls.VersionTLS13, []string{"h2", "http/1.1"}
	s := open(t, c, nil)
	client := &tls.Config{ServerName: "a.example", RootCAs: root.pool(), NextProtos: []string{"http/1.1", "h2"}}
	if r := handshake(t, s, client).ok(t); r.server.NegotiatedProtocol != "h2" || r.client.Version != tls.VersionTLS13 {
		t.Errorf("%q, %x", r.server.NegotiatedProtocol, r.client.Version)
	}
	old := client.Clone()
	old.MaxVersion = tls.VersionTLS12
	if r := handshake(t, s, old); !alertOf(r.clientErr, "protocol version") {
		t.Errorf("TLS 1.2 where 1.3 is the lowest: %v", r.clientErr)
	}
	other := client.Clone()
	other.NextProtos = []string{"smtp"}
	if r := handshake(t, s, other); !alertOf(r.clientErr, "no application protocol") {
		t.Errorf("no protocol in common: %v", r.clientErr)
	}
	cbc := client.Clone()
	cbc.MaxVersion, cbc.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}
	c.MinVersion = tls.VersionTLS12
	if r := handshake(t, open(t, c, nil), cbc); !alertOf(r.clientErr, "handshake failure") || len(cipherSuites) != 6 {
		t.Errorf("a cipher suite in CBC mode: %v; %d are offered", r.clientErr, len(cipherSuites))
	}
	if s.Timeout() != patience || !s.Config("a.example").DynamicRecordSizingDisabled {
		t.Error("timeout, or the size of records")
	}
	if _, problems := Open(&spec.ServerTLS{}, Options{}, nil); len(problems) != 1 {
		t.Error(problems)
	}
}

// resumes reports whether a second handshake resumes the first, which is with another server or the same.
func resumes(t *testing.T, first, second *Server, version uint16, root *made, firstName, secondName string) bool {
	t.Helper()
	c := &tls.Config{ServerName: firstName, RootCAs: root.pool(), MaxVersion: version, MinVersion: version, ClientSessionCache: &oneTicket{}}
	handshake(t, first, c).ok(t)
	again := c.Clone()
	again.ServerName = secondName
	r := handshake(t, second, again).ok(t)
	if r.client.DidResume != r.server.DidResume {
		t.Error("both ends do not agree")
	}
	return r.client.DidResume
}

// oneTicket has one ticket, for whatever name.
type oneTicket struct {
	mu     sync.Mutex
	ticket *tls.ClientSessionState
}

func (o *oneTicket) Get(string) (*tls.ClientSessionState, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ticket, o.ticket != nil
}

func (o *oneTicket) Put(_ string, s *tls.ClientSessionState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ticket = s
}

func TestTickets(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	files := sign(t, root, ecKey(), "a.example", named("a.example", "b.example")).save(t, filepath.Join(dir, "a.pem"))
	shared := write(t, filepath.Join(dir, "keys"), ticketKeys("one", "two"))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		check := func(what string, want bool, first, second *Server) {
			t.Helper()
			if got := resumes(t, first, second, version, root, "a.example", "a.example"); got != want {
				t.Errorf("%s, version %x: resumed %t", what, version, got)
			}
		}
		on := config(files)
		s := open(t, on, nil)
		check("the same server", true, s, s)
		check("after a reload", true, s, open(t, on, s))
		check("back", true, open(t, on, s), s)
		check("another server", false, s, open(t, on, nil))
		if resumes(t, s, s, version, root, "a.example", "b.example") {
			t.Errorf("resumed with another name, version %x", version)
		}
		off := *on
		off.Tickets.Off = true
		check("without tickets", false, open(t, &off, s), open(t, &off, s))
		fleet := *on
		fleet.Tickets.Keys = shared
		check("keys of a file", true, open(t, &fleet, nil), open(t, &fleet, s))
		check("from own keys to those of a file", false, s, open(t, &fleet, s))
	}
	// The keys of a fleet are changed in two steps: each relay knows the next one before the first encrypts with it.
	fleet := config(files)
	fleet.Tickets.Keys = shared
	first, second := open(t, fleet, nil), open(t, fleet, nil)
	resume := func(want bool) {
		t.Helper()
		if got := resumes(t, first, second, tls.VersionTLS13, root, "a.example", "a.example"); got != want {
			t.Errorf("resumed %t", got)
		}
	}
	write(t, shared, ticketKeys("two", "one"))
	if c := quiet(t, first); len(c.Loaded) != 1 || c.Loaded[0] != shared {
		t.Errorf("%+v", c)
	}
	resume(true)
	write(t, shared, ticketKeys("three"))
	quiet(t, first)
	resume(false)
	quiet(t, second)
	resume(true)
	write(t, shared, []byte("no key"))
	quiet(t, second)
	if c := second.Refresh(); texts(c.Problems, dir) != "keys:1: this is not base64; allowed: a key on each line, as openssl rand -base64 48 writes it" {
		t.Error(texts(c.Problems, dir))
	}
	resume(true)
}

// A response is sent while it is valid.
func TestStaple(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	middle := authority(t, root, "middle")
	leaf, other := sign(t, middle, ecKey(), "a.example", nil), sign(t, middle, ecKey(), "b.example", nil)
	now := time.Now()
	response := func(of *made, status int, until time.Duration, by *made) []byte {
		der, err := ocsp.CreateResponse(by.Certificate, by.Certificate, ocsp.Response{Status: status, SerialNumber: of.SerialNumber, ThisUpdate: now.Add(-time.Hour), NextUpdate: now.Add(until), RevokedAt: now}, by.key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	files := leaf.save(t, filepath.Join(dir, "a.pem"))
	files.OCSP = filepath.Join(dir, "a.ocsp")
	good := response(leaf, ocsp.Good, time.Hour, middle)
	client := &tls.Config{ServerName: "a.example", RootCAs: root.pool()}
	for _, c := range []struct {
		name, want string
		der        []byte
	}{
		{"good", "", good},
		{"another certificate", "no response matching the supplied certificate", response(other, ocsp.Good, time.Hour, middle)},
		{"revoked", "the response says that the certificate of a.example was revoked", response(leaf, ocsp.Revoked, time.Hour, middle)},
		{"unknown", "the response does not know the certificate of a.example", response(leaf, ocsp.Unknown, time.Hour, middle)},
		{"expired", "the response expired at ", response(leaf, ocsp.Good, -time.Minute, middle)},
		{"signed by another", "the response cannot be used: ", response(leaf, ocsp.Good, time.Hour, root)},
		{"garbage", "the response cannot be used: ", []byte("garbage")},
	} {
		write(t, files.OCSP, c.der)
		s, problems := Open(config(files), Options{}, nil)
		if s == nil || len(problems) > 1 || (c.want == "") != (len(problems) == 0) || !contains(problems.Warnings(), c.want) {
			t.Errorf("%s: %v", c.name, problems)
		}
		if r := handshake(t, s, client).ok(t); (len(r.client.OCSPResponse) > 0) != (c.want == "") {
			t.Errorf("%s: a response of %d bytes", c.name, len(r.client.OCSPResponse))
		}
	}
	// It expires while the server runs, and is renewed.
	write(t, files.OCSP, good)
	var later atomic.Int64
	o := Options{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }}
	s, problems := Open(config(files), o, nil)
	if s == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	later.Store(int64(2 * time.Hour))
	if c := s.Refresh(); len(c.Problems) != 1 || !strings.Contains(c.Problems[0].Text, "the response expired at ") {
		t.Errorf("%+v", c)
	}
	quiet(t, s)
	client.Time = o.Now
	if r := handshake(t, s, client).ok(t); len(r.client.OCSPResponse) > 0 {
		t.Error("a response that has expired was sent")
	}
	write(t, files.OCSP, response(leaf, ocsp.Good, 3*time.Hour, middle))
	if c := quiet(t, s); len(c.Loaded) != 1 {
		t.Errorf("%+v", c)
	}
	if r := handshake(t, s, client).ok(t); len(r.client.OCSPResponse) == 0 || !s.Certificates()[0].Stapled {
		t.Error("the new response is not sent")
	}
}

func contains(list Problems, text string) bool {
	return text == "" || len(list) == 1 && strings.Contains(list[0].Text, text)
}

// ticketKeys returns a file of keys.
func ticketKeys(seeds ...string) []byte {
	text := "# keys\n\n"
	for _, seed := range seeds {
		text += base64.StdEncoding.EncodeToString([]byte(strings.Repeat(seed, 48)[:48])) + "\n"
	}
	return []byte(text)
}

// seedResponse makes a response that is valid for an hour.
func seedResponse(t testing.TB, of, by *made) []byte {
	t.Helper()
	der, err := ocsp.CreateResponse(by.Certificate, by.Certificate, ocsp.Response{Status: ocsp.Good, SerialNumber: of.SerialNumber, ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}, by.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// What Agree says is what the handshake does, so that the daemon knows it before.
func TestAgree(t *testing.T) {
	dir := t.TempDir()
	root := authority(t, nil, "root")
	c := config(sign(t, root, ecKey(), "a.example", nil).save(t, filepath.Join(dir, "a.pem")))
	some := func(bits int) (list []string) {
		for i, p := range []string{"http/1.1", "h2", "x"} {
			if bits&(1<<i) != 0 {
				list = append(list, p)
			}
		}
		if bits&8 != 0 {
			slices.Reverse(list)
		}
		return list
	}
	for has := range 16 {
		c.ALPN = some(has)
		s := open(t, c, nil)
		for offers := range 8 {
			r := handshake(t, s, &tls.Config{ServerName: "a.example", RootCAs: root.pool(), NextProtos: some(offers)})
			protocol, ok := c.Agree(some(offers))
			if protocol != r.server.NegotiatedProtocol || ok != (r.serverErr == nil) {
				t.Errorf("%q is offered %q: %q, %v; the handshake: %q, %v", c.ALPN, some(offers), protocol, ok, r.server.NegotiatedProtocol, r.serverErr)
			}
		}
	}
}
