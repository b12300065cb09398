//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// template is what Patroni's documentation and its packages have for HAProxy, with the pages of statistics left out.
func template(listen string, c *cluster) string {
	var b strings.Builder
	fmt.Fprintf(&b, `global
    maxconn 100

defaults
    log global
    mode tcp
    retries 2
    timeout client 30m
    timeout connect 4s
    timeout server 30m
    timeout check 5s

listen primary
    bind %s
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
`, listen)
	for _, m := range c.members {
		fmt.Fprintf(&b, "    server %s 127.0.0.1:%s maxconn 100 check port %s\n", m.name, m.postgres, m.rest)
	}
	return b.String()
}

// relays are HAProxy with the template, and Penstock with what convert makes of it.
type relays struct {
	haproxy  *proc.Process
	penstock *trial.Daemon
	addr     map[string]string
}

// startRelays starts both. The caller must call end, also after an error.
func startRelays(s *settings, c *cluster) (*relays, error) {
	r := &relays{addr: map[string]string{}}
	var files = map[string]string{}
	for _, name := range names {
		port, err := c.port()
		if err != nil {
			return r, err
		}
		r.addr[name] = "127.0.0.1:" + port
		dir := filepath.Join(s.Dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return r, err
		}
		files[name] = filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(files[name], []byte(template(r.addr[name], c)), 0o644); err != nil {
			return r, err
		}
	}
	r.haproxy = &proc.Process{Dir: filepath.Join(s.Dir, "haproxy"), Argv: []string{"haproxy", "-db", "-f", files["haproxy"]}}
	if err := r.haproxy.Begin(); err != nil {
		return r, err
	}
	var said bytes.Buffer
	convert := exec.Command(s.Penstock, "convert", files["penstock"])
	convert.Stderr = &said
	config, err := convert.Output()
	if err != nil {
		return r, fmt.Errorf("penstock convert: %w: %s", err, said.Bytes())
	}
	dir := filepath.Join(s.Dir, "penstock")
	if r.penstock, err = trial.NewDaemon(s.Penstock, dir, fmt.Sprintf("%sadmin: {listen: \"unix://%s/admin\"}\n", config, dir)); err != nil {
		return r, err
	}
	if err := r.penstock.Begin(); err != nil {
		return r, err
	}
	if err := r.penstock.Ready(trial.Patience); err != nil {
		return r, err
	}
	return r, proc.Until("HAProxy", trial.Patience, 10*time.Millisecond, func() error {
		nc, err := net.Dial("tcp", r.addr["haproxy"])
		if err == nil {
			nc.Close()
		}
		return err
	})
}

// failed returns an error if one of them has ended.
func (r *relays) failed() error {
	if err := r.haproxy.Failed(); err != nil {
		return fmt.Errorf("%w: %s", err, r.haproxy.Printed())
	}
	return r.penstock.Failed()
}

func (r *relays) end() {
	if r.haproxy != nil {
		r.haproxy.Kill()
	}
	if r.penstock != nil {
		r.penstock.Kill()
	}
}
