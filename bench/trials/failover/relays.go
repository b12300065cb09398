//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// defaults are those of Patroni's template, with the pages of statistics left out.
const defaults = `global
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
%s`

// relays are HAProxy with the template, and Penstock with what convert makes of it.
type relays struct {
	haproxy  *proc.Process
	penstock *trial.Daemon
	addr     map[string]string
}

// startRelays starts both. The caller must call end, also after an error.
func startRelays(c *cluster) (*relays, error) {
	r := &relays{addr: map[string]string{}}
	for _, name := range names {
		var port string
		if err := trial.Ports(&port); err != nil {
			return r, err
		}
		r.addr[name] = "127.0.0.1:" + port
	}
	r.haproxy = &proc.Process{Dir: filepath.Join(c.Dir, "haproxy")}
	if err := os.Mkdir(r.haproxy.Dir, 0o755); err != nil {
		return r, err
	}
	files := map[string]string{}
	for _, name := range names {
		files[name] = filepath.Join(r.haproxy.Dir, name+".cfg")
		if err := os.WriteFile(files[name], fmt.Appendf(nil, defaults, r.addr[name], c.template(c)), 0o644); err != nil {
			return r, err
		}
	}
	r.haproxy.Argv = []string{"haproxy", "-db", "-f", files["haproxy"]}
	if err := r.haproxy.Begin(); err != nil {
		return r, err
	}
	var said bytes.Buffer
	convert := exec.Command(c.Penstock, "convert", files["penstock"])
	convert.Stderr = &said
	config, err := convert.Output()
	if err != nil {
		return r, fmt.Errorf("penstock convert: %w: %s", err, said.Bytes())
	}
	if r.penstock, err = trial.StartDaemon(c.Penstock, filepath.Join(c.Dir, "relay"), string(config)); err != nil {
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
