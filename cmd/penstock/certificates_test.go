package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testwait"
)

// Certificates and keys that only root may read are read, and again when they are replaced, by a worker that is somebody else and in a sandbox:
// also new ones in a folder, and after a crash. What cannot be used leaves what was there.
func TestCertificatesOfRoot(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	pki := filepath.Join(dir, "pki")
	if err := os.MkdirAll(pki+"/more", 0o700); err != nil {
		t.Fatal(err)
	}
	// put replaces files, one after the other, as programs do that renew certificates.
	put := func(c *testcerts.Cert, folder, name string) {
		t.Helper()
		cert, key := c.Write(t, dir, "next")
		if err := errors.Join(os.Rename(key, filepath.Join(pki, folder, name+".key")), os.Rename(cert, filepath.Join(pki, folder, name+".pem"))); err != nil {
			t.Fatal(err)
		}
	}
	ca := testcerts.Authority(t, "ca")
	a, b := ca.Issue(t, "a.example"), ca.Issue(t, "b.example")
	put(a, "", "a")
	put(b, "more", "b")
	text := "keeper: {keep-after: 0, max-restart-delay: 100ms}\nlisteners:\n  web: {listen: 'tcp://127.0.0.1:0', to: 'echo:', tls: {certificates: [{certificate: '{dir}/pki/a.pem', key: '{dir}/pki/a.key'}, {folder: '{dir}/pki/more'}]}}\n"
	if os.Getuid() == 0 {
		text += "sandbox: {user: '65534:65534'}\n"
	}
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, text)
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	listener := func() (l api.Listener) {
		if list, err := k.admin.Listeners(k.ctx()); err == nil && len(list.Listeners) == 1 {
			l = list.Listeners[0]
		}
		return l
	}
	// shows waits until the listener has these certificates.
	shows := func(certs ...*testcerts.Cert) {
		t.Helper()
		testwait.Until(t, "the certificates are used", func() bool {
			return slices.EqualFunc(listener().Certificates, certs, func(have api.Certificate, c *testcerts.Cert) bool {
				return have.Serial == c.SerialNumber.Text(16) && have.Expires.Equal(c.NotAfter) && slices.Equal(have.Names, c.DNSNames)
			})
		})
	}
	shows(a, b)
	a = ca.Issue(t, "a.example")
	put(a, "", "a")
	shows(a, b)
	c := ca.Issue(t, "c.example")
	put(c, "more", "c")
	shows(a, b, c)

	bad := filepath.Join(dir, "bad")
	if err := errors.Join(os.WriteFile(bad, []byte("-----BEGIN CERTIFICATE-----\nx"), 0o600), os.Rename(bad, pki+"/a.pem")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the log tells it", func() bool { // a look between two renames tells of that one before
		return slices.ContainsFunc(k.wait("a changed file cannot be used; what was read before stays", 1), func(line map[string]any) bool {
			return line["listener"] == "web" && line["file"] == pki+"/a.pem" && line["line"] == 1.0 && line["error"] == "the PEM block that begins here is damaged"
		})
	})
	if l := listener(); !slices.Equal(l.FailingFiles, []string{pki + "/a.pem"}) || l.CertificateFailures < 1 {
		t.Errorf("%q, %d", l.FailingFiles, l.CertificateFailures)
	}
	shows(a, b, c)
	if code, out := k.command("reload"); code == 0 || !strings.Contains(out, pki+"/a.pem:1: the PEM block that begins here is damaged") {
		t.Errorf("exit code %d: %s", code, out)
	}
	a = ca.Issue(t, "a.example")
	put(a, "", "a")
	shows(a, b, c)
	testwait.Until(t, "nothing fails", func() bool { return len(listener().FailingFiles) == 0 })
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	k.end(syscall.SIGKILL)
	k.started(1)
	shows(a, b, c)
	// A file that is not there, in a folder that this worker may not enter: the next one says so, and this one goes on.
	k.write(t, strings.Replace(text, "certificates: [", "certificates: [{certificate: '{dir}/pki/none.pem'}, ", 1))
	if code, out := k.command("reload"); code != 1 || !strings.Contains(out, "penstock.yaml:") || !strings.Contains(out, pki+"/none.pem: no such file") {
		t.Errorf("exit code %d: %s", code, out)
	}
	// Another worker takes over for files that this one cannot have the keeper open.
	d := ca.Issue(t, "d.example")
	put(d, "", "d")
	k.write(t, strings.Replace(text, "certificates: [", "certificates: [{certificate: '{dir}/pki/d.pem', key: '{dir}/pki/d.key'}, ", 1))
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	shows(d, a, b, c)
	for _, want := range []*testcerts.Cert{a, c, d} {
		conn := tls.Client(k.to("web"), &tls.Config{ServerName: want.DNSNames[0], RootCAs: ca.Pool()})
		mustEcho(t, conn, 1000, 1000)
		if got := conn.ConnectionState().PeerCertificates[0]; got.SerialNumber.Cmp(want.SerialNumber) != 0 {
			t.Errorf("%s: shown %s", want.DNSNames[0], got.DNSNames)
		}
	}
}

// A member is told who a client is by its certificate, and so is the access log.
func TestClientIdentity(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	ca := testcerts.Authority(t, "ca")
	cert, key := ca.Issue(t, "a.example").Write(t, dir, "a")
	authority, _ := ca.Write(t, dir, "ca")
	ops := ca.Issue(t, "ops.example", testcerts.For("spiffe://example.org/ops"))
	r := readProxy(t)
	k := runFile(t, `
listeners:
  web:
    listen: tcp://127.0.0.1:0
    tls: {certificates: [{certificate: "{0}", key: "{1}"}], clients: {ca: "{2}", verify: optional}, alpn: [two, one]}
    to: g
groups:
  g: {members: "{3}", proxy-protocol: {version: 2, tls: true, certificate: true, names: true}}
`, cert, key, authority, url(r.Addr()))
	for i, own := range [][]tls.Certificate{{ops.TLS()}, nil} {
		c := tls.Client(k.to("web"), &tls.Config{ServerName: "a.example", RootCAs: ca.Pool(), Certificates: own, NextProtos: []string{"one", "two"}})
		mustEcho(t, c, 1000, 1000)
		var tlvs []proxyproto.TLV
		select {
		case h := <-r.headers:
			var err error
			if tlvs, err = h.TLVs(); err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("no PROXY header")
		}
		ssl, ok := tlvparse.FindSSL(tlvs)
		cn, _ := ssl.ClientCN()
		version, _ := ssl.SSLVersion()
		var names []string
		for _, v := range tlvs {
			if v.Type == proxyproto.PP2_TYPE_ALPN || v.Type == proxyproto.PP2_TYPE_AUTHORITY {
				names = append(names, string(v.Value))
			}
		}
		if want := map[bool]string{true: "ops.example"}[own != nil]; !ok || ssl.Verified() != (own != nil) || cn != want || version != "TLSv1.3" || !slices.Equal(names, []string{"two", "a.example"}) {
			t.Errorf("certificate %t: %+v, common name %q, version %s, names %q", own != nil, ssl, cn, version, names)
		}
		subject, serial, uris := any(nil), any(nil), any(nil)
		if own != nil {
			subject, serial, uris = "CN=ops.example", ops.SerialNumber.Text(16), "spiffe://example.org/ops,ops.example"
		}
		mustBe(t, k.records(i + 1)[i], "client_subject", subject, "client_serial", serial, "client_names", uris, "tls", "1.3", "tls_protocol", "two", "sni", "a.example", "tls_resumed", false)
	}
}

// A client by its certificate has limits of its own: what it renews its certificate with is the same client, and who has none
// is not limited.
func TestLimitOfClient(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	ca := testcerts.Authority(t, "ca")
	cert, key := ca.Issue(t, "a.example").Write(t, dir, "a")
	authority, _ := ca.Write(t, dir, "ca")
	k := runFile(t, `
log: {flows: all}
listeners:
  web:
    listen: tcp://127.0.0.1:0
    limits: {client: {flows: 1}}
    tls: {certificates: [{certificate: "{0}", key: "{1}"}], clients: {ca: "{2}", verify: optional}}
    to: "echo:"
`, cert, key, authority)
	dial := func(own ...tls.Certificate) *tls.Conn {
		return tls.Client(k.to("web"), &tls.Config{ServerName: "a.example", RootCAs: ca.Pool(), Certificates: own})
	}
	ops, renewed, other := ca.Issue(t, "ops.example").TLS(), ca.Issue(t, "ops.example").TLS(), ca.Issue(t, "dev.example").TLS()
	first := dial(ops)
	mustPing(t, first)
	refused := func() {
		t.Helper()
		c := dial(renewed)
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a second flow of the client: %v", err)
		}
		c.Close()
	}
	refused()
	for _, c := range []*tls.Conn{dial(other), dial(), dial()} {
		mustPing(t, c)
		defer c.Close()
	}
	mustBe(t, k.records(1)[0], "cause", "refused", "reason", "client-flows", "client_subject", "CN=ops.example")
	first.Close()
	k.records(2)
	mustPing(t, dial(renewed))
	refused()
}

// A client of a listener where TLS ends that breaks off within its ClientHello reaches nobody in the clear.
func TestHalfHelloGoesNowhere(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	cert, key := testcerts.Authority(t, "ca").Issue(t, "a.example").Write(t, dir, "a")
	k := runFile(t, `
log: {flows: all}
listeners:
  web:
    listen: tcp://127.0.0.1:0
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    to: "echo:"
`, cert, key)
	c := k.to("web")
	c.SetDeadline(time.Now().Add(patience))
	c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00"))
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v", b, err)
	}
	mustBe(t, k.records(1)[0], "cause", "refused")
}
