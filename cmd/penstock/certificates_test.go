package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
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
	eventually(t, "the API answers", k.answers)
	listener := func() (l api.Listener) {
		if list, err := k.admin.Listeners(k.ctx()); err == nil && len(list.Listeners) == 1 {
			l = list.Listeners[0]
		}
		return l
	}
	// shows waits until the listener has these certificates.
	shows := func(certs ...*testcerts.Cert) {
		t.Helper()
		eventually(t, "the certificates are used", func() bool {
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
	line := k.line("a changed file cannot be used; what was read before stays")
	if line["listener"] != "web" || line["file"] != pki+"/a.pem" || line["line"] != 1.0 || line["error"] != "the PEM block that begins here is damaged" {
		t.Errorf("%v", line)
	}
	if l := listener(); !slices.Equal(l.FailingFiles, []string{pki + "/a.pem"}) || l.CertificateFailures != 1 {
		t.Errorf("%q, %d", l.FailingFiles, l.CertificateFailures)
	}
	shows(a, b, c)
	if code, out := k.command("reload"); code == 0 || !strings.Contains(out, pki+"/a.pem:1: the PEM block that begins here is damaged") {
		t.Errorf("exit code %d: %s", code, out)
	}
	a = ca.Issue(t, "a.example")
	put(a, "", "a")
	shows(a, b, c)
	eventually(t, "nothing fails", func() bool { return len(listener().FailingFiles) == 0 })
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	k.end(syscall.SIGKILL)
	k.started(1)
	shows(a, b, c)
	// Another worker takes over for files that this one cannot have the keeper open.
	d := ca.Issue(t, "d.example")
	put(d, "", "d")
	k.write(t, strings.Replace(text, "certificates: [", "certificates: [{certificate: '{dir}/pki/d.pem', key: '{dir}/pki/d.key'}, ", 1))
	if code, out := k.command("reload"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	shows(d, a, b, c)
}
