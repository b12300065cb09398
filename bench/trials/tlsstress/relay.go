//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
	"github.com/penstock/penstock/internal/testport"
)

const patience = trial.Patience

// A relay runs and has two listeners, one of them for TLS. nginx and HAProxy have no admin listener.
type relay struct {
	*trial.Daemon
	name      string
	secure    string // address
	plain     string
	guarded   string // of clients with certificates only; "" but for penstock
	upstream  net.Listener
	stop      func() (printed string)
	cert, key string
	wrong     atomic.Int64 // messages at the upstream
}

// config returns the command line of a relay and its configuration.
func (s *stress) config(r *relay, dir string) (argv []string, file, text string, err error) {
	up := r.upstream.Addr()
	switch r.name {
	case "penstock":
		file = filepath.Join(dir, "penstock.yaml")
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
`, up, r.secure, r.cert, r.key, r.plain, r.guarded, r.cert, r.key, s.authority.CA, filepath.Join(dir, "admin"))
		return []string{s.Penstock, "run", "-c", file}, file, text, nil
	case "nginx":
		module, _ := peer.StreamModule() // it is not missing
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
`, module, s.Files, filepath.Join(dir, "nginx.pid"), s.Files-100, r.secure, r.cert, r.key, up, r.plain, up)
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
`, (s.Files-300)/2, r.secure, s.server.Both, up, r.plain, up)
		return []string{"haproxy", "-db", "-f", file}, file, text, nil
	}
	return nil, "", "", fmt.Errorf("relay %q: allowed: penstock, nginx, haproxy", r.name)
}

// start starts a relay in front of an echo.
func (s *stress) start(name, cert, key string) (r *relay, err error) {
	r = &relay{name: name, cert: cert, key: key}
	if r.upstream, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go world.ServeAnswers(r.upstream, &r.wrong)
	var releases []func()
	for _, addr := range []*string{&r.secure, &r.plain, &r.guarded} {
		port, release, err := testport.Reserve()
		if err != nil {
			return nil, err
		}
		*addr = "127.0.0.1:" + port
		releases = append(releases, release)
	}
	dir, err := os.MkdirTemp(s.Dir, "relay-")
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
	r.Daemon = trial.DaemonAt(argv[0], dir, argv[1:]...)
	r.Start = func(cmd *exec.Cmd) error {
		return proc.Place{Host: true, CPUs: s.cpus}.Run(func(*proc.Hosts) error { return cmd.Start() }) // what a thread starts runs on the CPUs of the thread
	}
	if err := r.Begin(); err != nil {
		return nil, err
	}
	r.stop = sync.OnceValue(func() string {
		r.Stop(2 * time.Second)
		r.upstream.Close()
		for _, release := range releases {
			release()
		}
		return r.Printed()
	})
	err = proc.Until(name+" to answer", patience, 10*time.Millisecond, func() error {
		c, err := tls.Dial("tcp", r.secure, s.trusting())
		if err == nil {
			c.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, r.stop())
	}
	return r, nil
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
	tree := r.Tree()
	u.files = proc.Files(tree...)
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
func (r *relay) metric(name string) (int, error) {
	m, err := r.Metrics()
	return int(m.Total(name)), err
}

// intact returns an error if the upstream got what no client has sent.
func (r *relay) intact() error {
	if n := r.wrong.Load(); n > 0 {
		return fmt.Errorf("%d messages were wrong at the upstream", n)
	}
	return nil
}

// hangUp makes penstock reload its configuration.
func (r *relay) hangUp() { syscall.Kill(r.First(), syscall.SIGHUP) }
