package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// Flows whose TLS ends or begins here go on when another worker takes over, and are that worker's: by an upgrade, by a reload that needs
// another worker, and after a crash of the worker that has them. The one that has handed over ends with the last of them.
func TestTLSFlowsLinger(t *testing.T) {
	t.Parallel()
	authority := testcerts.Authority(t, "authority")
	dir := shortDir(t)
	cert, key := authority.Issue(t, "web.test").Write(t, dir, "web")
	ca, _ := authority.Write(t, dir, "ca")
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	k := runKeeper(t, "max-restart-delay: 100ms, linger: 1h", `
drain: 0
listeners:
  plain: {listen: "tcp://127.0.0.1:0", to: "echo:"}
  tls: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
  member: {listen: "tcp://127.0.0.1:0", to: member}
groups:
  member: {tls: {ca: "{2}", server-name: member.test}, members: "{3}"}
`, cert, key, ca, secureSpeaker(t, authority.Issue(t, "member.test")))

	m := k.to("member")
	if name(t, m) != "member" {
		t.Error("no member")
	}
	all := &flowsOf{t: t, list: []net.Conn{testnet.Dial(t, k.at("plain")), tls.Client(k.to("tls"), &tls.Config{ServerName: "web.test", RootCAs: pool}), m}}
	all.answer("begin")
	says := func(want string, args ...string) {
		t.Helper()
		if code, out := k.command(args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, without %q: %s", code, want, out)
		}
	}
	continues := func(n int64, reason string) {
		t.Helper()
		w := k.started(n)
		if w.Reason != reason || w.Restored != 3 || len(w.Lost) != 0 {
			t.Errorf("%+v", w)
		}
		all.answer("after " + reason)
	}

	status := func() *api.Status {
		t.Helper()
		s, err := k.admin.Status(k.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	worker := func() int { return status().Keeper.Worker }
	k.holds(1)
	says("2 flows whose TLS ends or begins here will end after 1h0m0s, when the present worker does", "upgrade", "--binary", binary)
	continues(1, "upgrade")
	if err := sendSignal(worker(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	continues(2, "crash")
	text, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.file, append(text, "engine: {gso: false}\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	says("open flows continue\n", "reload")
	continues(3, "restart")

	flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
	if err != nil || len(flows.Flows) != 3 {
		t.Fatalf("%+v: %v", flows, err)
	}
	lingering := status().Keeper.Lingering
	if len(lingering) != 1 {
		t.Fatalf("%+v", lingering)
	}
	// What an operator sends to all processes of the service is for others.
	for _, s := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGHUP} {
		if err := sendSignal(lingering[0].PID, s); err != nil {
			t.Fatal(err)
		}
	}
	all.answer("after signals")
	for _, c := range all.list {
		c.Close()
	}
	testwait.Until(t, "no flow is open", func() bool {
		s, err := k.admin.Status(k.ctx())
		return err == nil && s.Totals.Flows == 0 && s.Resources.TLSFlows == 0 && len(s.Keeper.Lingering) == 0
	})
	if why := k.wait("a worker that lingered with TLS connections ends", 1)[0]["why"]; why != "their flows have ended" {
		t.Errorf("a worker that lingered ends because %v", why)
	}
}

// A worker that lingers and dies, that gives way to others, or whose time is over takes its flows along, and nobody takes that for an end
// of the stream. All others go on.
func TestLingeringWorkerEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"dies", "gives way", "time"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			authority := testcerts.Authority(t, "authority")
			cert, key := authority.Issue(t, "web.test").Write(t, shortDir(t), "web")
			pool := x509.NewCertPool()
			pool.AddCert(authority.Certificate)
			linger := "1h"
			if how == "time" {
				linger = "2s"
			}
			k := runKeeper(t, "max-lingering: 2, linger: "+linger, `
listeners:
  plain: {listen: "tcp://127.0.0.1:0", to: "echo:"}
  tls: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
`, cert, key)
			plain := &flowsOf{t: t, list: []net.Conn{testnet.Dial(t, k.at("plain"))}}
			plain.answer("begin")
			secure := func() *flowsOf {
				f := &flowsOf{t: t, list: []net.Conn{tls.Client(k.to("tls"), &tls.Config{ServerName: "web.test", RootCAs: pool})}}
				f.answer("begin")
				return f
			}
			lingering := func() []api.LingeringWorker {
				t.Helper()
				s, err := k.admin.Status(k.ctx())
				if err != nil {
					t.Fatal(err)
				}
				return s.Keeper.Lingering
			}
			starts := int64(0)
			upgrade := func() {
				t.Helper()
				if code, out := k.command("upgrade", "--binary", binary); code != 0 {
					t.Fatal(out)
				}
				starts++
				k.started(starts)
			}
			first := secure()
			upgrade()
			var others []*flowsOf
			switch how {
			case "dies":
				if err := sendSignal(lingering()[0].PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			case "gives way":
				for range 2 {
					others = append(others, secure())
					upgrade()
				}
			}
			if _, err := io.ReadAll(first.list[0]); err == nil {
				t.Error("a flow that was cut looks complete")
			}
			for _, f := range append(others, plain) {
				f.answer("after")
			}
			testwait.Until(t, "the others linger", func() bool { return len(lingering()) == len(others) })
			if flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{}); err != nil || len(flows.Flows) != len(others)+1 {
				t.Errorf("%+v: %v", flows, err)
			}
		})
	}
}

// The flows of a worker that lingers are the new worker's: they count into its limits, are shown and killed, end with what the new
// configuration removes, have one line in its access log, and end with the service. One of the clients is OpenSSL's.
func TestLingeringFlowsObey(t *testing.T) {
	t.Parallel()
	need(t, "openssl")
	authority := testcerts.Authority(t, "authority")
	dir := shortDir(t)
	cert, key := authority.Issue(t, "web.test").Write(t, dir, "web")
	ca, _ := authority.Write(t, dir, "ca")
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	k := runKeeper(t, "linger: 1h", `
access-log: {to: "{dir}/access.log", format: json}
listeners:
  limited: {listen: "tcp://127.0.0.1:0", limits: {flows: 1}, tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
  removed: {listen: "tcp://127.0.0.1:0", removed: {live-flows: close}, tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
  openssl: {listen: "tcp://127.0.0.1:0", tls: {certificates: [{certificate: "{0}", key: "{1}"}]}, to: "echo:"}
`, cert, key)
	secure := func(listener string) *tls.Conn {
		return tls.Client(k.to(listener), &tls.Config{ServerName: "web.test", RootCAs: pool})
	}
	limited, removed := secure("limited"), secure("removed")
	s := exec.Command("openssl", "s_client", "-quiet", "-no_ign_eof", "-verify_quiet", "-verify_return_error", "-CAfile", ca, "-servername", "web.test", "-connect", k.at("openssl").String())
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Process.Kill(); s.Wait() })
	asks := func(text string) {
		t.Helper()
		if _, err := io.WriteString(in, text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(out, got); err != nil || string(got) != text {
			t.Fatalf("openssl has received %q instead of %q: %v", got, text, err)
		}
	}
	all := &flowsOf{t: t, list: []net.Conn{limited, removed}}
	all.answer("begin")
	asks(strings.Repeat("before the upgrade ", 5000))
	if code, out := k.command("upgrade", "--binary", binary); code != 0 {
		t.Fatal(out)
	}
	k.started(1)
	k.executed() // or SIGTERM may end it before it can pass that on
	all.answer("after the upgrade")
	asks(strings.Repeat("after the upgrade ", 5000))

	k.mustTurnAway("limited", "one too many")
	flows, err := k.admin.Flows(k.ctx(), api.Filter{}, api.Page{})
	if err != nil || len(flows.Flows) != 3 {
		t.Fatalf("%+v: %v", flows, err)
	}
	for _, f := range flows.Flows {
		d, err := k.admin.Flow(k.ctx(), f.ID)
		if err != nil || d.ClientTLS == nil || d.ClientTLS.Version != "1.3" || d.ClientTLS.Cipher == "" {
			t.Errorf("%+v: %v", d, err)
		}
		if f.Listener == "limited" {
			if err := k.admin.Kill(k.ctx(), f.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut := func(c *tls.Conn) {
		t.Helper()
		if _, err := io.ReadAll(c); err == nil {
			t.Error("a flow that was cut looks complete")
		}
	}
	cut(limited)
	next := &flowsOf{t: t, list: []net.Conn{secure("limited")}}
	next.answer("there is room again")

	text, err := os.ReadFile(k.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "  removed:") })
	if err := os.WriteFile(k.file, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	k.reload()
	cut(removed)

	status, err := k.admin.Status(k.ctx())
	if err != nil || len(status.Keeper.Lingering) != 1 {
		t.Fatalf("%+v: %v", status.Keeper, err)
	}
	if err := sendSignal(status.Keeper.Lingering[0].PID, syscall.SIGTERM); err != nil { // as systemd does
		t.Fatal(err)
	}
	k.signal(syscall.SIGTERM)
	k.wait("draining", 1)
	asks("while the service drains")
	next.list[0].Close()
	in.Close()
	k.mustExit(0)
	causes := make(map[string]string)
	for _, r := range k.records(5) {
		name := r["listener"].(string)
		if r["cause"] == "refused" {
			continue
		}
		if causes[name] += r["cause"].(string) + " "; r["tls"] != "1.3" || r["tls_cipher"] == nil {
			t.Errorf("%v", r)
		}
		if name == "openssl" && (r["bytes_up"] != r["bytes_down"] || r["bytes_up"].(float64) < 180_000) {
			t.Errorf("%v", r)
		}
	}
	if causes["limited"] != "killed end " || causes["removed"] != "removed " || causes["openssl"] != "end " {
		t.Errorf("%v", causes)
	}
}
