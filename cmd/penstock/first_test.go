package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
)

// Clients of many protocols at one port are told by their first bytes, however these arrive, and all bytes reach the server that they are for.
func TestFirstBytes(t *testing.T) {
	t.Parallel()
	pool := x509.NewCertPool()
	named, other := serveTLS(t, pool, "one.test"), speak(t, "tls")
	ssh, web, host, bytes, silent, rest := speak(t, "ssh"), speak(t, "web"), speak(t, "host"), speak(t, "bytes"), speak(t, "silent"), speak(t, "rest")
	const routes = `
    routes:
      - {name: ssh, protocol: ssh, to: "{0}"}
      - {name: named, sni: one.test, to: "{1}"}
      - {name: tls, protocol: tls, to: "{2}"}
      - {name: host, host: "*.host.test", to: "{3}"}
      - {name: web, protocol: http, to: "{4}"}
      - {name: bytes, prefix: ["hex:00ff", "HELO "], to: "{5}"}
`
	d := runFile(t, `
defaults: {sniff: {timeout: 1m}}
listeners:
  port:
    listen: tcp://127.0.0.1:0`+routes+`
    to: "{6}"
  front:
    listen: tcp://127.0.0.1:0
    proxy-protocol: {from: 127.0.0.1/32}`+routes+`
    to: "{6}"
  waits:
    listen: tcp://127.0.0.1:0
    routes:
      - {name: ssh, protocol: ssh, to: "{0}"}
      - {name: silent, silence: 1m, to: "{7}"}
    to: "{6}"
  quiet:
    listen: tcp://127.0.0.1:0
    routes:
      - {name: ssh, protocol: ssh, to: "{0}"}
      - {name: silent, silence: 50ms, to: "{7}"}
    to: "{6}"
  late:
    listen: tcp://127.0.0.1:0
    proxy-protocol: {from: 127.0.0.1/32}
    sniff: {timeout: 60ms}
    routes:
      - {name: silent, silence: 50ms, to: "{7}"}
      - {name: ssh, protocol: ssh, to: "{0}"}
    to: "{6}"
`, ssh.url(), url(named), other.url(), host.url(), web.url(), bytes.url(), rest.url(), silent.url())

	const anyProtocol = "any"
	const proxied = "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
	n := 0
	spoken := map[string]int{} // by labels
	reach := func(listener, before, says string, dribbled int, want, protocol string) {
		t.Helper()
		at := d.at(listener)
		if listener == "late" { // what it says is there before the time of the listener begins
			d.signal(syscall.SIGSTOP)
		}
		c := testnet.Dial(t, at)
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(&dribble{c, dribbled}, before+says)
		d.signal(syscall.SIGCONT)
		r := bufio.NewReader(c)
		if name, err := r.ReadString('\n'); name != want+"\n" {
			t.Fatalf("%s: %q leads to %q, want %q: %v", listener, says, name, want, err)
		}
		got := make([]byte, len(says))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != says {
			t.Fatalf("%s: %q came as %q: %v", listener, says, got, err)
		}
		c.Close()
		n++
		record := d.records(n)[n-1]
		spoke, _ := record["protocol"].(string)
		if spoke != protocol && protocol != anyProtocol {
			t.Errorf("%s: the protocol of %q is %q in %v, want %q", listener, says, spoke, record, protocol)
		}
		spoken[fmt.Sprintf("listener=%q,protocol=%q", listener, cmp.Or(spoke, "unknown"))]++
	}
	for _, c := range []struct{ says, want, protocol string }{
		{"SSH-2.0-OpenSSH_9.2\r\n", "ssh", "ssh"},
		{"SSH-", "ssh", "ssh"},
		{"GET / HTTP/1.1\r\nHost: a.host.test\r\n\r\n", "host", "http"},
		{"GET / HTTP/1.1\r\nHost: host.test\r\n\r\n", "web", "http"},
		{"PROPFIND / HTTP/1.1\r\nA: b\r\nHost: A.HOST.TEST:80\r\n", "host", "http"},
		{"\x00\xff\x00", "bytes", ""},
		{"HELO a\r\n", "bytes", ""},
		{"HEL0 a\r\n", "rest", ""},
		{"\x16\x03\x01\x00\x04\x02", "rest", ""},
		{"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00", "tls", "tls"},
		{"AMQP\x00\x00\x09\x01", "rest", anyProtocol}, // its route is certain before its protocol is
	} {
		for _, dribbled := range []int{0, 1000} {
			reach("port", "", c.says, dribbled, c.want, c.protocol)
			reach("front", proxied, c.says, dribbled, c.want, c.protocol)
		}
	}
	reach("waits", "", "SSH-2.0-x\r\n", 0, "ssh", "ssh")
	reach("quiet", "", "", 0, "silent", "")
	reach("late", proxied, "", 0, "silent", "")
	reach("late", proxied, "MAIL", 0, "rest", "")

	// TLS by name, beside all of that.
	c := tls.Client(d.to("port"), &tls.Config{ServerName: "one.test", RootCAs: pool})
	defer c.Close()
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	spoken[`listener="port",protocol="tls"`]++
	for labels, want := range spoken {
		if got := d.metric("penstock_listener_protocols_total", labels); int(got) != want {
			t.Errorf("penstock_listener_protocols_total{%s} is %v, want %d", labels, got, want)
		}
	}
}

// Where TLS ends at the listener, what passes is found by its first bytes, and nothing else goes in the clear.
func TestFirstBytesBesideTLS(t *testing.T) {
	t.Parallel()
	cert, key := testcerts.Authority(t, "authority").Issue(t, "one.test").Write(t, shortDir(t), "one")
	ssh, inside := speak(t, "ssh"), speak(t, "inside")
	d := runFile(t, `
listeners:
  port:
    listen: tcp://127.0.0.1:0
    tls: {certificates: [{certificate: "{0}", key: "{1}"}]}
    routes: [{name: ssh, protocol: ssh, tls: pass, to: "{2}"}]
    to: "{3}"
`, cert, key, ssh.url(), inside.url())
	c := d.to("port")
	defer c.Close()
	io.WriteString(c, "SSH-2.0-x\r\n")
	if got := nameFrom(t, c); got != "ssh" {
		t.Errorf("SSH leads to %q", got)
	}
	secured := tls.Client(d.to("port"), &tls.Config{ServerName: "one.test", InsecureSkipVerify: true})
	defer secured.Close()
	if got := nameFrom(t, secured); got != "inside" {
		t.Errorf("TLS leads to %q", got)
	}
	clear := d.to("port")
	defer clear.Close()
	io.WriteString(clear, "AMQP\x00\x00\x09\x01")
	if b, _ := io.ReadAll(clear); strings.Contains(string(b), "inside") || strings.Contains(string(b), "ssh") {
		t.Errorf("what is in the clear gets %q", b)
	}
}

// A client is counted once by the list that chose its route, however often its route was asked for before it was certain.
func TestFirstBytesOfListedClients(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := os.WriteFile(dir+"/list", []byte("127.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := testcerts.Authority(t, "authority").Issue(t, "one.test").Write(t, dir, "one")
	ssh, inside := speak(t, "ssh"), speak(t, "inside")
	d := runFile(t, `
lists: {own: {file: "{0}"}, inside: {file: "{0}"}}
listeners:
  port:
    listen: tcp://127.0.0.1:0
    routes: [{name: ssh, protocol: ssh, from: ["list:own"], to: "{1}"}]
    to: "{2}"
  ends:
    listen: tcp://127.0.0.1:0
    tls: {certificates: [{certificate: "{3}", key: "{4}"}]}
    routes:
      - {name: ssh, protocol: ssh, tls: pass, to: "{1}"}
      - {name: inside, from: ["list:inside"], to: "{2}"}
`, dir+"/list", ssh.url(), inside.url(), cert, key)
	c := d.to("port")
	defer c.Close()
	io.WriteString(&dribble{c, 1000}, "SSH-2.0-x\r\n")
	if got := nameFrom(t, c); got != "ssh" {
		t.Errorf("SSH leads to %q", got)
	}
	secured := tls.Client(&dribble{d.to("ends"), 20}, &tls.Config{ServerName: "one.test", InsecureSkipVerify: true})
	defer secured.Close()
	if got := nameFrom(t, secured); got != "inside" {
		t.Errorf("TLS leads to %q", got)
	}
	all, err := d.admin.Lists(d.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Lists {
		if l.Hits != 1 {
			t.Errorf("the list %s has %d hits by one client", l.Name, l.Hits)
		}
	}
}

// nameFrom returns the name of a speaker.
func nameFrom(t *testing.T, c net.Conn) string {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	name, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(name, "\n")
}

// Real clients at one port: each is led to a server that records what it has sent.
func TestFirstBytesOfPrograms(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"ssh":  {"ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=20", "-p", "{port}", "u@127.0.0.1"},
		"http": {"curl", "-s", "-m", "20", "http://127.0.0.1:{port}/"}, "tls": {"curl", "-sk", "-m", "20", "https://127.0.0.1:{port}/"},
		"http2": {"curl", "-s", "-m", "20", "--http2-prior-knowledge", "http://127.0.0.1:{port}/"}, "socks5": {"curl", "-s", "-m", "20", "--socks5", "127.0.0.1:{port}", "http://a.test/"},
		"postgres": {"psql", "host=127.0.0.1 port={port} user=u dbname=d connect_timeout=20"},
		"rdp":      {"xvfb-run", "-a", "xfreerdp", "/v:127.0.0.1:{port}", "/u:u", "/p:p", "/cert:ignore"},
	}
	for protocol, args := range programs {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(args[0])
			if err == nil && protocol == "rdp" {
				_, err = exec.LookPath(args[2])
			}
			if err != nil {
				t.Skip(err)
			}
			came := make(chan string, 10)
			l := testnet.Listen(t, "tcp4")
			acceptAll(t, l, func(c net.Conn) {
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				came <- string(b[:n])
			})
			d := runFile(t, `
listeners:
  port:
    listen: tcp://127.0.0.1:0
    routes: [{name: found, protocol: {1}, to: "{0}"}]
    to: "discard:"
`, url(l.Addr()), protocol)
			port := portOf(d.at("port"))
			list := make([]string, len(args)-1)
			for i, a := range args[1:] {
				list[i] = strings.ReplaceAll(a, "{port}", port)
			}
			cmd := exec.Command(path, list...)
			cmd.Env = append(cmd.Environ(), "PGPASSWORD=p", "PGSSLMODE=prefer")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Signal(syscall.SIGTERM)
			select {
			case b := <-came:
				t.Logf("%s began with %q", args[0], b[:min(len(b), 64)])
			case <-time.After(patience):
				t.Error("nothing came")
			}
		})
	}
}
