package main

import (
	"bufio"
	native "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// beside runs an original, with the command that start returns for its file, and Penstock with what it is converted to. The
// listeners of the original are at {0}, {1} and so on; beside returns where they are in both.
func beside(t *testing.T, name string, listeners int, original string, start func(file string) []string) (theirs, ours []string) {
	t.Helper()
	theirs, ours, _ = runBeside(t, name, listeners, original, start)
	return theirs, ours
}

// runBeside is beside, and returns Penstock besides.
func runBeside(t *testing.T, name string, listeners int, original string, start func(file string) []string) (theirs, ours []string, c *configured) {
	t.Helper()
	for range listeners {
		theirs, ours = append(theirs, "127.0.0.1:"+testnet.Port(t)), append(ours, "127.0.0.1:"+testnet.Port(t))
	}
	dir := t.TempDir()
	write := func(name string, at []string) string {
		text := original
		for i, a := range at {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), a)
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	serve(t, start(write("theirs-"+name, theirs))...)
	converted, err := exec.Command(binary, "convert", write(name, ours)).Output()
	var partly *exec.ExitError
	if err != nil && (!errors.As(err, &partly) || partly.ExitCode() != 3) {
		t.Fatalf("%v\n%s", err, converted)
	}
	if partly != nil {
		t.Logf("%s", partly.Stderr)
	}
	c = runFile(t, string(converted))
	testwait.Until(t, "the original listens", func() bool { return !slices.ContainsFunc(theirs, func(at string) bool { return !listens(t, at) }) })
	return theirs, ours, c
}

const haproxyDefaults = "defaults\n mode tcp\n option redispatch\n timeout connect 20s\n timeout client 60s\n timeout server 60s\n"

func startHAProxy(file string) []string { return []string{"haproxy", "-db", "-f", file} }

// keeps returns how many of 15 clients that stay an address keeps.
func keeps(t *testing.T, at string) (n int) {
	t.Helper()
	for range 15 {
		if name, _ := reached(t, at); name != "" {
			n++
		}
	}
	return n
}

// listens reports whether a socket listens at an IPv4 address, without connecting to it: that would count.
func listens(t *testing.T, at string) bool {
	t.Helper()
	a := netip.MustParseAddrPort(at)
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), fmt.Sprintf(": %08X:%04X 00000000:0000 0A ", native.NativeEndian.Uint32(a.Addr().AsSlice()), a.Port()))
}

// reached returns the name of the speaker that a client reaches through an address, with its
// connection; "": the client is turned away.
func reached(t *testing.T, at string) (string, net.Conn) {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, patience)
	if err != nil {
		return "", nil // refused faster than connected, or nobody listens yet
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	name, err := readName(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err != nil {
		return "", c
	}
	return name, c
}

// Clients of one address, one after another, that stay: as many of them as HAProxy keeps.
func TestConvertedLimitsBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	s := speak(t, "web")
	rules := []string{
		"tcp-request connection track-sc0 src\n tcp-request connection reject if { sc0_conn_cur ge 10 }",
		"tcp-request connection track-sc0 src\n tcp-request connection reject if { sc0_conn_cur gt 10 }",
		"tcp-request connection reject if { src_conn_cur ge 10 }\n tcp-request connection track-sc1 src",
		"tcp-request session track-sc0 src\n tcp-request session reject if { sc_conn_cur(0) gt 3 }",
		"acl many sc0_conn_rate gt 7\n tcp-request connection track-sc0 src\n tcp-request connection reject if many",
		"tcp-request connection reject if { src_conn_rate ge 7 }\n tcp-request connection track-sc0 src",
		"tcp-request content track-sc0 src\n tcp-request content reject if { sc0_conn_cur gt 4 }",
		"tcp-request session track-sc2 src table other\n tcp-request content reject if { sc2_conn_rate gt 6 } || { sc2_conn_cur ge 12 }",
	}
	text := haproxyDefaults + "backend web\n server s " + s.Addr().String() + "\nbackend other\n stick-table type ipv6 size 1k expire 1h store conn_cur,conn_rate(1h)\n"
	for i, r := range rules {
		text += fmt.Sprintf("frontend f%d\n bind {%d}\n stick-table type ip size 1k expire 1h store conn_cur,conn_rate(1h)\n %s\n default_backend web\n", i, i, r)
	}
	theirs, ours := beside(t, "haproxy.cfg", len(rules), text, startHAProxy)
	for i, r := range rules {
		if a, b := keeps(t, theirs[i]), keeps(t, ours[i]); a != b || a == 15 || a == 0 {
			t.Errorf("%q: HAProxy keeps %d of 15, Penstock %d", r, a, b)
		}
	}
}

func TestConvertedLimitsBesideNginx(t *testing.T) {
	need(t, "nginx")
	t.Parallel()
	s := speak(t, "web")
	dir := t.TempDir()
	theirs, ours := beside(t, "nginx.conf", 2, streamModule()+"daemon off;\nmaster_process off;\npid "+dir+"/pid;\nevents {}\nstream {\n"+
		"  limit_conn_zone $binary_remote_addr zone=client:1m;\n  limit_conn_zone $server_port zone=port:1m;\n"+
		"  server { listen {0}; limit_conn client 4; proxy_pass "+s.Addr().String()+"; }\n"+
		"  server { listen {1}; limit_conn port 6; proxy_pass "+s.Addr().String()+"; }\n}\n",
		func(file string) []string {
			return []string{"nginx", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", file}
		})
	for i, want := range []int{4, 6} {
		if a, b := keeps(t, theirs[i]), keeps(t, ours[i]); a != want || b != want {
			t.Errorf("of 15 clients nginx keeps %d, Penstock %d; want %d", a, b, want)
		}
	}
}

// statusServer answers every request at an address with a status and a text, with TLS if it has to.
func statusServer(t *testing.T, at string, secure bool, status int, text string) (port string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	}))
	s.Listener.Close()
	s.Listener = listenAt(t, at)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func listenAt(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stepServer serves the commands that checks of Redis and of mail send, on all addresses of this host.
func stepServer(t *testing.T, greeting, replication string) (port string) {
	t.Helper()
	l := listenAt(t, ":0")
	acceptAll(t, l, func(c net.Conn) {
		defer c.Close()
		io.WriteString(c, greeting)
		for from := bufio.NewScanner(c); from.Scan(); {
			word, _, _ := strings.Cut(from.Text(), " ")
			io.WriteString(c, map[string]string{"PING": "+PONG\r\n", "info": "$9\r\n" + replication + "\r\n", "EHLO": "250-me\r\n250 HELP\r\n"}[word])
			if word == "QUIT" {
				io.WriteString(c, map[bool]string{true: "+OK\r\n", false: "221 bye\r\n"}[greeting == ""])
				return
			}
		}
	})
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// Two servers, of which the check lets one through: clients get to the same one, with HAProxy and here.
func TestConvertedChecksBesideHAProxy(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("compares what configurations mean; checks run under the race detector in other tests")
	}
	need(t, "haproxy")
	t.Parallel()
	// Both checks at one port, each at its own host.
	primary, replica := speak(t, "primary"), speakAt(t, listenAt(t, "127.0.0.2:0"), "replica")
	same := testnet.Port(t)
	statusServer(t, "127.0.0.1:"+same, false, 200, "primary")
	statusServer(t, "127.0.0.2:"+same, false, 503, "replica")
	secure := testnet.Port(t)
	statusServer(t, "127.0.0.1:"+secure, true, 200, "primary")
	statusServer(t, "127.0.0.2:"+secure, true, 500, "replica")
	other := statusServer(t, "127.0.0.1:0", false, 503, "replica")
	third := speak(t, "third")
	a, b, c := "server a "+primary.Addr().String(), "server b "+replica.Addr().String(), "server c "+third.Addr().String()
	every := " check inter 200ms "
	groups := []struct {
		check []string
		want  string
	}{
		{[]string{"option httpchk GET /primary", "http-check expect status 200", a + every + "port " + same, b + every + "port " + same}, "primary"},
		{[]string{"option httpchk OPTIONS /primary", "http-check expect ! rstatus ^5", a + every + "port " + same, b + every + "port " + same}, "primary"},
		{[]string{"option httpchk GET /", "http-check expect string replica", a + every + "port " + same, b + every + "port " + same}, "replica"}, // whatever the status
		{[]string{"option httpchk GET /", "http-check expect rstring ^rep.*$", a + every + "port " + same, b + every + "port " + same}, "replica"},
		{[]string{"option httpchk", "http-check connect ssl", "http-check send meth GET uri /healthz", a + every + "verify none port " + secure, b + every + "verify none port " + secure}, "primary"},
		{[]string{"option httpchk", "http-check connect ssl port " + secure, a + every + "verify none", b + every + "verify none"}, "primary"},
		{[]string{"option httpchk", a + every + "check-ssl verify none port " + secure, b + every + "check-ssl verify none port " + secure}, "primary"},
		{[]string{"option tcp-check", "tcp-check connect ssl", "tcp-check send GET\\ /\\ HTTP/1.0\\r\\n\\r\\n", "tcp-check expect string primary", a + every + "verify none port " + secure, b + every + "verify none port " + secure}, "primary"},
		// Checks at different ports, and at another address: each server is checked at its own.
		{[]string{"option httpchk GET /primary", a + every + "port " + other, b + every + "port " + same, c + every + "port " + same}, "third"},
		{[]string{"option httpchk GET /primary", a + every + "addr 127.0.0.2 port " + same, b + every + "addr 127.0.0.1 port " + same}, "replica"},
		// Several steps: the answers are those of Redis, and the greeting is that of a mail server.
		{[]string{"option tcp-check", "tcp-check send PING\\r\\n", "tcp-check expect string +PONG", "tcp-check send info\\ replication\\r\\n", "tcp-check expect string role:master",
			"tcp-check send QUIT\\r\\n", "tcp-check expect string +OK", a + every + "port " + stepServer(t, "", "role:slave"), b + every + "port " + stepServer(t, "", "role:master")}, "replica"},
		{[]string{"option smtpchk EHLO me.example", a + every + "port " + stepServer(t, "421 busy\r\n", ""), b + every + "port " + stepServer(t, "220 mail\r\n", "")}, "replica"},
	}
	text := haproxyDefaults
	for i, g := range groups {
		text += fmt.Sprintf("listen l%d\n bind {%d}\n %s\n", i, i, strings.Join(g.check, "\n "))
	}
	theirs, ours := beside(t, "haproxy.cfg", len(groups), text, startHAProxy)
	for i, g := range groups {
		for k, at := range []string{theirs[i], ours[i]} {
			testwait.Until(t, fmt.Sprintf("%s leads 10 clients in a row to %s: %q", []string{"HAProxy", "Penstock"}[k], g.want, g.check), func() bool {
				for range 10 {
					name, c := reached(t, at)
					if c != nil {
						c.Close()
					}
					if name != g.want {
						return false
					}
				}
				return true
			})
		}
	}
}
