package haproxy

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/testconvert"
)

// How a check connects: with TLS or without, to which port, with which names; and what of several
// servers becomes of one that is checked in another way.
func TestProbes(t *testing.T) {
	for _, c := range []struct{ lines, check, notes string }{
		{" server s 192.0.2.1:1 check\n", "check: {tcp: {every: 2s, timeout: 2s}}", ""},
		{" server s 192.0.2.1:1 ssl verify none check\n", "check: {tcp: {every: 2s, timeout: 2s}}", ""},
		{" server s 192.0.2.1:1 ssl verify none check port 2\n", "check: {tcp: {every: 2s, timeout: 2s, port: 2, tls: false}}", ""},
		{" option tcp-check\n tcp-check connect\n server s 192.0.2.1:1 ssl verify none check\n", "check: {tcp: {every: 2s, timeout: 2s, tls: false}}", ""},
		{" option tcp-check\n tcp-check connect default port 3\n server s 192.0.2.1:1 ssl verify none check\n", "check: {tcp: {every: 2s, timeout: 2s, port: 3}}", ""},
		{" option tcp-check\n tcp-check connect ssl sni a.example alpn h2\n server s 192.0.2.1:1 check ca-file /ca.pem\n", "tls: {ca: /ca.pem, server-name: a.example, alpn: [h2]}", ""},
		{" option tcp-check\n tcp-check connect addr 192.0.2.9\n server s 192.0.2.1:1 check\n", "", "the check of s is left out: connect addr 192.0.2.9 has no counterpart"},
		{" option tcp-check\n tcp-check connect addr 192.0.2.9\n server s 192.0.2.1:1 check\n server r 192.0.2.2:1 check\n", "", "listen l left out: connect addr 192.0.2.9 has no counterpart"},
		{" server s 192.0.2.1:1 check check-via-socks4\n", "", "the check of s is left out: check-via-socks4 has no counterpart"},
		{" server s 192.0.2.1:1 check addr 192.0.2.9\n", "check-address: 192.0.2.9}", ""},
		{" server s 192.0.2.1:1 check addr a.example\n", "", "the check of s is left out: addr a.example has no counterpart, as it is not an address"},
		{" server s 192.0.2.1:1 check inter 1s downinter 5s\n", "every: 1s, every-down: 5s", ""},
		{" server s 192.0.2.1:1 check inter 1s downinter 1s\n", "check: {tcp: {every: 1s, timeout: 1s}}", ""},
		{" server s 192.0.2.1:1 check check-send-proxy\n", "", "the check of s is left out: a check begins with a PROXY header if flows do"},
		{" server s 192.0.2.1:1 check check-ssl verify none\n server r 192.0.2.2:1 check check-ssl ca-file /ca.pem\n", "verify: false", "server r left out: its check connects in another way than that of s"},
		{" server s 192.0.2.1:1 check port 2\n server r 192.0.2.2:1 check port 3\n server q 192.0.2.3:1\n", "name: r, check-port: 3}\n      - {to: tcp://192.0.2.3:1, name: q}", ""},
		{" server s 192.0.2.1:1 check\n server r 192.0.2.2:1 check port 3\n", "name: r, check-port: 3}", ""},
		{" server s 192.0.2.1:1 check port 3\n server r 192.0.2.2:1 check\n", "name: r, check-port: 1}", ""},
		{" server s 192.0.2.1:1 check port 2\n server-template r 2 a.example:1 check port 3\n", "port: 2", "server r left out: its check goes to the port 3, and not to 2 as that of s"},
		{" option mysql-check user me post-41\n server s 192.0.2.1:1 check\n", "check: {mysql: {every: 2s, timeout: 2s, user: me}}", ""},
		{" option pgsql-check\n server s 192.0.2.1:1 check\n", "check: {postgres: {every: 2s, timeout: 2s}}", ""},
		{" option tcp-check\n tcp-check expect string 220\n server s 192.0.2.1:1 check\n", "check: {send-expect: {every: 2s, timeout: 2s, expect: \"220\"}}", ""},
		{" server s unix@/s check addr 192.0.2.9\n", "", "the check of s is left out: addr 192.0.2.9 has no counterpart at a Unix socket or a server-template"},
		{" server-template s 2 a.example:1 check addr 192.0.2.9\n", "", "listen l left out: addr 192.0.2.9 has no counterpart at a Unix socket or a server-template"},
		{" server s 192.0.2.1:1 check addr 192.0.2.9 port 5 check-via-socks4\n", "", "the check of s is left out: check-via-socks4 has no counterpart"},
		// Nobody could say whose certificate a member without a host must have.
		{" server s unix@/s check check-ssl ca-file /ca.pem\n", "", "the check of s is left out: TLS: unix:///s has no host to compare its certificate with"},
		{" server s unix@/s check check-ssl verify none\n", "verify: false", ""},
		{" server-template s 2 _http._tcp.a.example check check-ssl ca-file /ca.pem\n", "", "listen l left out: TLS: _http._tcp.a.example has no host"},
	} {
		text := "listen l\n mode tcp\n bind 127.0.0.1:9\n option redispatch\n" + c.lines + "listen m\n bind 127.0.0.1:8\n server s 192.0.2.9:1\n"
		r, err := testconvert.Text(Reader, "f", text)
		if err != nil {
			t.Errorf("%s: %v", c.lines, err)
			continue
		}
		testconvert.NoWarnings(t, r)
		notes := ""
		for _, n := range r.Notes {
			notes += n.Text + "\n"
		}
		if got := string(r.YAML); !strings.Contains(got, c.check) || c.check == "" && strings.Contains(got, "check:") {
			t.Errorf("%s: %s", c.lines, got)
		}
		if !strings.Contains(notes, c.notes) || c.notes == "" && strings.Contains(notes, "left out") {
			t.Errorf("%s: %s", c.lines, notes)
		}
	}
}

// A backend that refuses clients itself is not led to: they would come in.
func TestRulesOfBackends(t *testing.T) {
	for rule, leads := range map[string]bool{
		"tcp-request content reject if { src 10.0.0.0/8 }":     false,
		"tcp-request content reject unless { src 10.0.0.0/8 }": false,
		"tcp-request content accept if { src 10.0.0.0/8 }":     true,
	} {
		text := "frontend f\n bind 127.0.0.1:9\n default_backend b\nbackend b\n " + rule + "\n server s 192.0.2.1:1\nlisten m\n bind 127.0.0.1:8\n server s 192.0.2.9:1\n"
		r, err := testconvert.Text(Reader, "f", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(r.YAML), "192.0.2.1"); got != leads {
			t.Errorf("%s: the backend gets clients: %v\n%v", rule, got, r.Notes)
		}
	}
}

// How long answers may take.
func TestAnswerTime(t *testing.T) {
	for _, c := range []struct{ lines, want, comment string }{
		{" server s 192.0.2.1:1 check\n", "every: 2s, timeout: 2s", ""},
		{" timeout connect 1s\n server s 192.0.2.1:1 check\n", "every: 2s, timeout: 2s", ""},
		{" timeout check 1s\n server s 192.0.2.1:1 check\n", "every: 2s, timeout: 1s", ""},
		{" timeout check 5s\n server s 192.0.2.1:1 check inter 3s\n", "timeout: 3s", "HAProxy waits 5s for an answer"},
		{" timeout check 5s\n server s 192.0.2.1:1 agent-check agent-port 9\n", "timeout: 2s", "HAProxy waits 5s for an answer"},
	} {
		r, err := testconvert.Text(Reader, "f", "listen l\n mode tcp\n bind 127.0.0.1:9\n"+c.lines)
		if err != nil {
			t.Fatal(err)
		}
		testconvert.NoWarnings(t, r)
		if got := string(r.YAML); !strings.Contains(got, c.want) || strings.Contains(got, "for an answer") != (c.comment != "") || !strings.Contains(got, c.comment) {
			t.Errorf("%s:\n%s", c.lines, got)
		}
	}
}

// How agents are asked, and when they cannot be.
func TestAgents(t *testing.T) {
	for _, c := range []struct{ lines, agent, notes string }{
		{" server s 192.0.2.1:1 agent-check agent-port 9\n", "agent: {port: 9, every: 2s, timeout: 2s}", ""},
		{" default-server agent-check agent-port 9 agent-inter 5s agent-send web\n timeout check 1s\n server s 192.0.2.1:1\n server r 192.0.2.2:1\n", "agent: {port: 9, every: 5s, timeout: 1s, send: web}", ""},
		{" server s 192.0.2.1:1 agent-check agent-port 9 agent-send a agent-addr 192.0.2.9\n server r 192.0.2.2:1 agent-check agent-port 8 agent-send b agent-addr 192.0.2.9\n",
			"{to: tcp://192.0.2.1:1, name: s, agent-address: 192.0.2.9, agent-send: a}\n      - {to: tcp://192.0.2.2:1, name: r, agent-port: 8, agent-address: 192.0.2.9, agent-send: b}", ""},
		{" server s 192.0.2.1:1 agent-check agent-port 9 agent-send \"a\\n\"\n server r 192.0.2.2:1\n", "send: \"a\\n\"", ""},
		{" server s 192.0.2.1:1 agent-check agent-port 9 no-agent-check\n", "", ""},
		{" server s 192.0.2.1:1 agent-port 9\n", "", ""},
		{" server s 192.0.2.1:1 agent-check\n", "", "the agents of listen l are left out: that of s: it has no agent-port"},
		{" server s 192.0.2.1:1 agent-check agent-port 9 agent-addr a.example\n", "", "that of s: agent-addr a.example has no counterpart, as it is not an address"},
		{" server s unix@/s agent-check agent-port 9\n", "", "that of s: a Unix socket needs agent-addr"},
		{" server s unix@/s agent-check agent-port 9 agent-addr ::1\n", "agent-address: \"::1\"}", ""},
		{" server s 192.0.2.1:1 agent-check agent-port 9\n server u unix@/s\n", "", "a Unix socket has none without agent-addr"},
		{" server-template s 2 a.example:1 agent-check agent-port 9\n", "agent: {port: 9,", ""},
		{" server-template s 2 a.example:1 agent-check agent-port 9 agent-addr 192.0.2.9\n", "", "agent-addr of a server-template has no counterpart"},
		{" server s 192.0.2.1:1 agent-check agent-port 9 agent-send a\n server-template r 2 a.example:1 agent-check agent-port 9 agent-send b\n", "", "members of a server-template have no agent-send"},
		{" server s 192.0.2.1:1 agent-check agent-port 9 agent-inter 50ms\n server r 192.0.2.2:1 agent-check agent-port 9\n", "every: 100ms, timeout: 100ms", "server r: agent-inter is the group's"},
		{" server s 192.0.2.1:1 agent-check agent-port x\n", "", "agent-port x: not a port"},
	} {
		text := "listen l\n mode tcp\n bind 127.0.0.1:9\n option redispatch\n" + c.lines + "listen m\n bind 127.0.0.1:8\n server s 192.0.2.9:1\n"
		r, err := testconvert.Text(Reader, "f", text)
		if err != nil {
			t.Errorf("%s: %v", c.lines, err)
			continue
		}
		testconvert.NoWarnings(t, r)
		notes := ""
		for _, n := range r.Notes {
			notes += n.Text + "\n"
		}
		if got := string(r.YAML); !strings.Contains(got, c.agent) || c.agent == "" && strings.Contains(got, "agent") {
			t.Errorf("%s: %s", c.lines, got)
		}
		if !strings.Contains(notes, c.notes) || c.notes == "" && strings.Contains(notes, "left out") {
			t.Errorf("%s: %s", c.lines, notes)
		}
	}
}
