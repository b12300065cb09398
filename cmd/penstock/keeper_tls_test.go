package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Flows whose TLS ends or begins here end with their worker, if that does not linger. Whoever upgrades is told how many before, and afterwards.
func TestTLSFlowsEndWithWorker(t *testing.T) {
	t.Parallel()
	authority := testcerts.Authority(t, "authority")
	dir := shortDir(t)
	cert, key := authority.Issue(t, "web.test").Write(t, dir, "web")
	ca, _ := authority.Write(t, dir, "ca")
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	k := runKeeper(t, "max-restart-delay: 100ms, linger: 0", `
listeners:
  plain: {listen: "tcp://127.0.0.1:0", to: "echo:"}
  tls: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
  member: {listen: "tcp://127.0.0.1:0", to: member}
groups:
  member: {tls: {ca: "{2}", server-name: member.test}, members: "{3}"}
`, cert, key, ca, secureSpeaker(t, authority.Issue(t, "member.test")))

	plain := &flowsOf{t: t, list: []net.Conn{testnet.Dial(t, k.at("plain"))}}
	plain.answer("begin")
	flows := func() *flowsOf {
		t.Helper()
		m := k.to("member")
		if name(t, m) != "member" {
			t.Error("no member")
		}
		f := &flowsOf{t: t, list: []net.Conn{tls.Client(k.to("tls"), &tls.Config{ServerName: "web.test", RootCAs: pool}), m}}
		f.answer("begin")
		return f
	}
	ended := func(f *flowsOf) {
		t.Helper()
		for _, f := range f.list {
			if _, err := io.ReadAll(f); err == nil {
				t.Error("a flow that was cut looks complete")
			}
		}
	}
	lost := func(n int64, reason string) {
		t.Helper()
		w := k.started(n)
		if w.Reason != reason || w.Restored != 1 || len(w.Lost) != 1 || w.Lost[0] != (api.LostFlows{Reason: "tls", Count: 2}) {
			t.Errorf("%+v", w)
		}
		plain.answer("after the worker")
	}
	says := func(want string, args ...string) {
		t.Helper()
		if code, out := k.command(args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, without %q: %s", code, want, out)
		}
	}

	f := flows()
	k.holds(1)
	says("holds 1 flow; 2 with TLS end with the worker", "status")
	says("could take over, and would end 2 flows whose TLS ends or begins here; nothing was changed", "upgrade", "--dry-run", "--binary", binary)
	says("handing over; 2 flows whose TLS ends or begins here will end", "upgrade", "--binary", binary)
	lost(1, "upgrade")
	ended(f)

	f = flows()
	text, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.file, append(text, "engine: {gso: false}\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	says("open flows continue, except for 2 whose TLS ends or begins here", "reload")
	lost(2, "restart")
	ended(f)

	f = flows()
	k.holds(1)
	k.end(syscall.SIGKILL)
	lost(3, "crash")
	ended(f)

	f = flows()
	for _, c := range append(f.list, plain.list...) {
		c.Close()
	}
	testwait.Until(t, "no flow is open", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == 0 && s.Resources.TLSFlows == 0
	})
}
