package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// HAProxy and nginx accept the originals that the tests of package convert convert.
func TestConvertedOriginals(t *testing.T) {
	testnet.OneGoroutine(t)
	haproxy, nginx := filepath.Join("internal", "convert", "haproxy", "testdata"), filepath.Join("internal", "convert", "nginx", "testdata")
	check := func(folder, pattern string, command func(file string) *exec.Cmd) {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(files) < 3 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.Contains(file, "-words.") {
				continue // every word that is known, together as nobody would write them
			}
			if out, err := command(filepath.Base(file)).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", file, err, out)
			}
		}
	}
	t.Run("haproxy", func(t *testing.T) {
		need(t, "haproxy")
		check(haproxy, "*.cfg", func(file string) *exec.Cmd {
			cmd := exec.Command("haproxy", "-c", "-f", file)
			cmd.Dir = haproxy
			return cmd
		})
	})
	t.Run("nginx", func(t *testing.T) {
		need(t, "nginx")
		dir := t.TempDir()
		inc, err := os.ReadFile(filepath.Join(nginx, "stream-common.inc"))
		if err != nil {
			t.Fatal(err)
		}
		check(nginx, "*.conf", func(file string) *exec.Cmd {
			text, err := os.ReadFile(filepath.Join(nginx, file))
			if err != nil {
				t.Fatal(err)
			}
			paths := strings.NewReplacer("/var/log/nginx", dir, "/run/nginx.pid", dir+"/pid")
			conf := streamModule() + paths.Replace(string(text))
			if !strings.Contains(conf, "pid ") {
				conf = "pid pid;\n" + conf
			}
			for name, text := range map[string]string{file: conf, "stream-common.inc": string(inc)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			return exec.Command("nginx", "-t", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", filepath.Join(dir, file))
		})
	})
}

// streamModule loads nginx's module of streams, where it is not built in.
func streamModule() string {
	if _, err := os.Stat("/usr/lib/nginx/modules/ngx_stream_module.so"); err == nil {
		return "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n"
	}
	return ""
}

// A trial is a client that asks for a name, from an address, and the upstream expected for it.
type trial struct {
	from, sni, alpn, want string
}

// visit returns the name of the upstream that the client of a trial reaches; "" if it is refused.
func visit(t *testing.T, at string, v trial) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(v.from)}, Timeout: patience}
	c, err := dialer.Dial("tcp", at)
	if errors.Is(err, syscall.ECONNRESET) {
		return "" // refused faster than connected
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if v.sni != "" {
		_, err = c.Write(hello(v.sni, v.alpn))
	} else {
		_, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
	}
	if err != nil {
		return ""
	}
	name, err := readName(c)
	if err != nil {
		return ""
	}
	return name
}

// capture keeps what is written and has nothing to read.
type capture struct {
	net.Conn
	bytes.Buffer
}

func (c *capture) Write(b []byte) (int, error)      { return c.Buffer.Write(b) }
func (c *capture) Read([]byte) (int, error)         { return 0, os.ErrDeadlineExceeded }
func (c *capture) SetDeadline(time.Time) error      { return nil }
func (c *capture) SetReadDeadline(time.Time) error  { return nil }
func (c *capture) SetWriteDeadline(time.Time) error { return nil }

// hello returns a ClientHello.
func hello(sni, alpn string) []byte {
	config := &tls.Config{ServerName: sni, InsecureSkipVerify: true}
	if alpn != "" {
		config.NextProtos = []string{alpn}
	}
	var c capture
	tls.Client(&c, config).Handshake()
	return c.Bytes()
}

// convertAndRun runs the daemon with what penstock convert makes of an original,
// with another port in place of the original's.
func convertAndRun(t *testing.T, file, port string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, "convert", file)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	ours := testnet.Port(t)
	text := strings.Replace(stdout.String(), "tcp://127.0.0.1:"+port, "tcp://127.0.0.1:"+ours, 1)
	if text == stdout.String() {
		t.Fatalf("no listener at %s:\n%s", port, text)
	}
	runFile(t, text)
	return "127.0.0.1:" + ours
}

func sameRouting(t *testing.T, theirs, ours string, trials []trial) {
	t.Helper()
	testwait.Until(t, "both listen", func() bool {
		for _, at := range []string{theirs, ours} {
			c, err := net.Dial("tcp", at)
			if err != nil {
				return false
			}
			c.Close()
		}
		return true
	})
	for _, v := range trials {
		if a, b := visit(t, theirs, v), visit(t, ours, v); a != v.want || b != v.want {
			t.Errorf("%+v: the original leads to %q, the converted file to %q", v, a, b)
		}
	}
}

// HAProxy and Penstock lead the same clients to the same servers.
func TestConvertHAProxyRouting(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	one, wild, office, web := speak(t, "one"), speak(t, "wild"), speak(t, "office"), speak(t, "web")
	port, file := testnet.Port(t), filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
defaults
  mode tcp
  option redispatch
  timeout connect 20s
  timeout client 20s
  timeout server 20s
frontend tls
  bind 127.0.0.1:%s
  tcp-request connection reject if { src 127.0.0.9 127.0.1.0/24 }
  tcp-request inspect-delay 20s
  tcp-request content accept if { req.ssl_hello_type 1 }
  tcp-request content accept if { req.len gt 0 }
  acl local src 127.0.0.2
  use_backend office if local { req.ssl_sni -i office.test }
  use_backend one if { req.ssl_sni -i one.test uno.test }
  use_backend wild if { req.ssl_sni -m end .wild.test }
  default_backend web
backend one
  server s %s
backend wild
  server s %s
backend office
  server s %s
backend web
  server down 127.0.0.1:1 disabled
  server s %s
`, port, one.Addr(), wild.Addr(), office.Addr(), web.Addr()), 0o644); err != nil {
		t.Fatal(err)
	}
	serve(t, "haproxy", "-db", "-f", file)
	sameRouting(t, "127.0.0.1:"+port, convertAndRun(t, file, port), []trial{
		{"127.0.0.1", "one.test", "", "one"},
		{"127.0.0.1", "uno.test", "", "one"},
		{"127.0.0.1", "deep.er.wild.test", "", "wild"},
		{"127.0.0.1", "wild.test", "", "web"},
		{"127.0.0.1", "other.test", "", "web"},
		{"127.0.0.1", "", "", "web"},
		{"127.0.0.1", "office.test", "", "web"},
		{"127.0.0.2", "office.test", "", "office"},
		{"127.0.0.9", "one.test", "", ""},
		{"127.0.1.77", "", "", ""},
	})
}

// nginx and Penstock lead the same clients to the same servers.
func TestConvertNginxRouting(t *testing.T) {
	need(t, "nginx")
	t.Parallel()
	one, wild, acme, web := speak(t, "one"), speak(t, "wild"), speak(t, "acme"), speak(t, "web")
	port, dir := testnet.Port(t), t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, `%sdaemon off;
master_process off;
pid nginx.pid;
events {}
stream {
  map $ssl_preread_server_name $by_name {
    hostnames;
    *.wild.test wild;
    not.wild.test one;
    .one.test one;
    default web;
  }
  map $ssl_preread_alpn_protocols $to { ~\bacme-tls/1\b acme; default $by_name; }
  upstream one { server %s; }
  upstream wild { server %s; }
  upstream acme { server %s; }
  upstream web { server 127.0.0.1:1 down; server %s; }
  server {
    listen 127.0.0.1:%s;
    ssl_preread on;
    deny 127.0.0.9;
    allow 127.0.0.0/24;
    deny all;
    proxy_pass $to;
  }
}
`, streamModule(), one.Addr(), wild.Addr(), acme.Addr(), web.Addr(), port), 0o644); err != nil {
		t.Fatal(err)
	}
	serve(t, "nginx", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", file)
	sameRouting(t, "127.0.0.1:"+port, convertAndRun(t, file, port), []trial{
		{"127.0.0.1", "one.test", "", "one"},
		{"127.0.0.1", "a.one.test", "h2", "one"},
		{"127.0.0.1", "deep.er.wild.test", "", "wild"},
		{"127.0.0.1", "not.wild.test", "", "one"},
		{"127.0.0.1", "one.test", "acme-tls/1", "acme"},
		{"127.0.0.1", "wild.test", "", "web"},
		{"127.0.0.1", "", "", "web"},
		{"127.0.0.9", "one.test", "", ""},
		{"127.0.1.1", "one.test", "", ""},
	})
}

// The exit code says whether everything has a counterpart.
func TestConvertExitCodes(t *testing.T) {
	testnet.OneGoroutine(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const listen = "listen l\n bind :1\n server s 192.0.2.1:1\n"
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{file("good.cfg", listen)}, 0, "tcp://192.0.2.1:1"},
		{[]string{file("partly.cfg", listen+" stick on src\n")}, 3, "partly.cfg:4: stick: no counterpart"},
		{[]string{file("http.cfg", "defaults\n mode http\n"+listen)}, 2, "http.cfg:3: listen l left out: mode http is layer 7"},
		{[]string{file("not.cfg", "hello\n")}, 2, `not.cfg:1: "hello" before the first section`},
		{[]string{file("not.conf", "hello")}, 2, "does not end with a semicolon"},
		{[]string{filepath.Join(dir, "missing.cfg")}, 1, "no such file"},
		{[]string{dir}, 1, "a folder"},
		{[]string{"--from", "nginx", file("good2.cfg", "stream { server { listen 1; proxy_pass 192.0.2.1:1; } }")}, 0, "tcp://192.0.2.1:1"},
		{nil, 2, "FILE"},
	} {
		if out, code := command(t, append([]string{"convert"}, c.args...)...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%v: %d, %s", c.args, code, out)
		}
	}
}
