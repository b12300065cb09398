//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/internal/testport"
)

const patience = 30 * time.Second

// A relay is one that runs, with a listener for TLS and another one.
type relay struct {
	name      string
	pid       int
	secure    string // address
	plain     string
	guarded   string // of clients with certificates only; "" but for penstock
	admin     string // path
	upstream  net.Listener
	client    *http.Client
	stop      func() (printed string)
	cert, key string
}

// config returns the command line of a relay and its configuration.
func (s *stress) config(r *relay, dir string) (argv []string, file, text string, err error) {
	up := r.upstream.Addr()
	switch r.name {
	case "penstock":
		file = filepath.Join(dir, "penstock.yaml")
		r.admin = filepath.Join(dir, "admin")
		text = fmt.Sprintf(`groups:
  upstream:
    members: ["tcp://%s"]
listeners:
  secure:
    listen: "tcp://%s"
    tls: {certificates: [{certificate: %s, key: %s}], unknown-names: refuse}
    to: upstream
  plain: {listen: "tcp://%s", to: upstream}
  guarded:
    listen: "tcp://%s"
    tls: {certificates: [{certificate: %s, key: %s}], clients: {ca: %s, verify: required}}
    to: upstream
admin: {listen: "unix://%s"}
`, up, r.secure, r.cert, r.key, r.plain, r.guarded, r.cert, r.key, s.authority.CA, r.admin)
		return []string{s.penstock, "run", "-c", file}, file, text, nil
	case "nginx":
		module, err := peer.StreamModule()
		if err != nil {
			return nil, "", "", err
		}
		file = filepath.Join(dir, "nginx.conf")
		text = fmt.Sprintf(`%sdaemon off;
user root;
worker_processes auto;
worker_rlimit_nofile %d;
pid %s;
error_log stderr crit;
events { worker_connections %d; multi_accept on; }
stream {
    proxy_timeout 120s;
    server { listen %s ssl reuseport backlog=4096; ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.2 TLSv1.3; ssl_handshake_timeout 10s; proxy_pass %s; }
    server { listen %s reuseport backlog=4096; proxy_pass %s; }
}
`, module, s.files, filepath.Join(dir, "nginx.pid"), s.files-100, r.secure, r.cert, r.key, up, r.plain, up)
		return []string{"nginx", "-e", "stderr", "-c", file}, file, text, nil
	case "haproxy":
		file = filepath.Join(dir, "haproxy.cfg")
		text = fmt.Sprintf(`global
    maxconn %d
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
listen secure
    bind %s ssl crt %s ssl-min-ver TLSv1.2 ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384
    timeout client-fin 10s
    server upstream %s
listen plain
    bind %s
    server upstream %s
`, (s.files-300)/2, r.secure, s.server.Both, up, r.plain, up)
		return []string{"haproxy", "-db", "-f", file}, file, text, nil
	}
	return nil, "", "", fmt.Errorf("relay %q: allowed: penstock, nginx, haproxy", r.name)
}

// start starts a relay in front of an echo.
func (s *stress) start(name, cert, key string) (r *relay, err error) {
	r = &relay{name: name, cert: cert, key: key}
	if r.upstream, err = echo(); err != nil {
		return nil, err
	}
	var releases []func()
	for _, addr := range []*string{&r.secure, &r.plain, &r.guarded} {
		port, release, err := testport.Reserve()
		if err != nil {
			return nil, err
		}
		*addr = "127.0.0.1:" + port
		releases = append(releases, release)
	}
	dir, err := os.MkdirTemp(s.dir, "relay-")
	if err != nil {
		return nil, err
	}
	argv, file, text, err := s.config(r, dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	r.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.admin)
	}}}
	cmd := exec.Command(argv[0], argv[1:]...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	begun, over, ended := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go proc.OnHost(func() error { // it dies with the thread that started it, which therefore stays
		defer close(ended)
		if s.cpus != "" {
			if err := proc.Pin(s.cpus); err != nil {
				begun <- err
				return nil
			}
		}
		err := cmd.Start()
		begun <- err
		if err != nil {
			return nil
		}
		<-over
		tree := proc.Tree(cmd.Process.Pid)
		cmd.Process.Signal(syscall.SIGTERM)
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(2 * time.Second):
			for _, pid := range tree {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			<-done
		}
		return nil
	})
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	r.pid = cmd.Process.Pid
	r.stop = sync.OnceValue(func() string {
		close(over)
		<-ended
		r.upstream.Close()
		r.client.CloseIdleConnections()
		for _, release := range releases {
			release()
		}
		return printed.String()
	})
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := tls.Dial("tcp", r.secure, s.trusting())
		if err == nil {
			c.Close()
			return r, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s does not answer: %w\n%s", name, err, r.stop())
		}
	}
}

// echo is an upstream.
func echo() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, struct{ io.Reader }{c})
			}()
		}
	}()
	return l, nil
}

// trusting is the configuration of a client that verifies the relay's certificate.
func (s *stress) trusting() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.Cert)
	return &tls.Config{ServerName: certs.Name, RootCAs: roots, CurvePreferences: []tls.CurveID{tls.X25519}}
}

// use is what a relay uses.
type use struct {
	goroutines, files int
	kb                int64
	cpu               time.Duration
}

// use returns what the relay uses now.
func (r *relay) use() (u use, err error) {
	tree := proc.Tree(r.pid)
	for _, pid := range tree {
		u.files += proc.Files(pid)
	}
	if u.kb, err = proc.RSS(tree); err != nil {
		return u, err
	}
	if u.cpu, err = proc.CPU(tree); err != nil || r.name != "penstock" {
		return u, err
	}
	u.goroutines, err = r.metric("go_goroutines")
	return u, err
}

// metric returns one of penstock's, summed over its labels.
func (r *relay) metric(name string) (sum int, err error) {
	resp, err := r.client.Get("http://localhost/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, name)
		if f := strings.Fields(rest); ok && len(f) > 0 && (rest[0] == ' ' || rest[0] == '{') {
			n, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				return 0, err
			}
			sum += int(n)
		}
	}
	return sum, nil
}

// hangUp makes penstock reload its configuration.
func (r *relay) hangUp() { syscall.Kill(r.pid, syscall.SIGHUP) }
