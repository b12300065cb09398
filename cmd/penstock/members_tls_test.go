package main

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A relay that has become another user checks members with a certificate and key that only root can read, and so it does after a reload that
// names files in another folder of root: another worker takes over.
func TestMembersOverTLS(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := shortDir(t)
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ca, next := testcerts.Authority(t, "Test CA"), testcerts.Authority(t, "Next CA")
	ca.Write(t, dir+"/a", "ca")
	next.Write(t, dir+"/b", "ca")
	ca.Issue(t, "relay.example").Write(t, dir+"/a", "own")
	server := testcerts.Authority(t, "Third CA").Issue(t, "127.0.0.1").TLS()
	trusted := ca.Issue(t, "127.0.0.1").TLS()
	later := next.Issue(t, "127.0.0.1").TLS()
	use := make(chan *tls.Certificate, 1)
	use <- &trusted
	l := testnet.Listen(t, "tcp4")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				c := <-use
				use <- c
				s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*c}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
				if s.Handshake() == nil {
					io.Copy(io.Discard, s)
				}
			}()
		}
	}()
	change := func(c *tls.Certificate) { <-use; use <- c }
	text := "listeners: {tcp: {listen: 'tcp://127.0.0.1:0', to: web}}\nsandbox: {user: '65534:65534'}\nkeeper: {healthy-after: 0}\n" +
		"groups:\n  web:\n    members: ['tcp://" + l.Addr().(*net.TCPAddr).String() + "']\n" +
		"    check: {tcp: {every: 100ms, rise: 1, fall: 1, timeout: 10s, tls: {ca: {dir}/a/ca.pem, certificate: {dir}/a/own.pem, key: {dir}/a/own.key}}}\n"
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, text)
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	member := func(state, why string) {
		t.Helper()
		got := ""
		testwait.Until(t, "the member is "+state+" because of "+why, func() bool {
			g, err := k.admin.Group(k.ctx(), "web")
			if err != nil || len(g.Members) != 1 {
				return false
			}
			m := &g.Members[0]
			got = m.State + " " + m.Why
			return m.State == state && strings.Contains(m.Why, why) && m.Check != nil && !m.Check.CertificateExpires.IsZero()
		})
		if t.Failed() {
			t.Log(got)
		}
	}
	member("up", "check passed")
	change(&server)
	member("down", "signed by Third CA, which is not an authority in ca")
	change(&later)
	k.write(t, strings.Replace(text, "/a/ca.pem", "/b/ca.pem", 1))
	if code, out := k.command("reload"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	member("up", "check passed")
}
