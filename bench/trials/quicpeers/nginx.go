//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// nginx is nginx with its stream module, and two workers. It does not read QUIC, and so each name has a port of its own. A client's address
// chooses its server, so that another port of the same address comes to the same server.
type nginx struct {
	proc.Process
	all []listener
}

func startNginx(s *setup, dir string, all []listener) (relay, error) {
	module, err := peer.StreamModule()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%sdaemon off;\nuser root;\nworker_processes 2;\npid %s/nginx.pid;\nerror_log stderr;\nevents {}\nstream {\n\tproxy_timeout 2m;\n", module, dir)
	n := &nginx{}
	for _, l := range all {
		for _, g := range l.groups {
			own := listener{port: l.port}
			if len(n.all) > 0 && n.all[len(n.all)-1].port == l.port { // the first name has it
				if own.port, err = freeUDP(); err != nil {
					return nil, err
				}
			}
			n.all = append(n.all, own)
			s.ports[l.name+" "+g.sni] = own.port
			fmt.Fprintf(&b, "\tupstream %s {\n\t\thash $remote_addr consistent;\n", g.name)
			for _, m := range g.members {
				fmt.Fprintf(&b, "\t\tserver 127.0.0.1:%s;\n", m.port)
			}
			fmt.Fprintf(&b, "\t}\n\tserver {\n\t\tlisten 127.0.0.1:%s udp reuseport;\n\t\tproxy_pass %s;\n\t}\n", own.port, g.name)
		}
	}
	b.WriteString("}\n")
	file := filepath.Join(dir, "nginx.conf")
	n.Process = proc.Process{Argv: []string{"nginx", "-e", "stderr", "-c", file}, Dir: dir}
	if err := errors.Join(os.WriteFile(file, []byte(b.String()), 0o644), n.Begin()); err != nil {
		return nil, err
	}
	return n, n.listen()
}

// listen waits until it has all ports, and workers.
func (n *nginx) listen() error {
	return proc.Until("nginx listens", trial.Patience, 20*time.Millisecond, func() error {
		err := n.Failed()
		for _, l := range n.all {
			err = errors.Join(err, listens(l.port))
		}
		if err == nil && len(n.Workers()) < 2 {
			err = errors.New("it has fewer than two workers")
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, n.Printed())
		}
		return err
	})
}

func (n *nginx) tail() string { return trial.Tail(n.Printed(), 5) }

func (n *nginx) cannot(name string) string {
	switch name {
	case "names", "several", "several+rebind":
		return "it reads names in TLS over TCP only (ssl_preread), so that each name needs a port of its own"
	case "other":
		return "it does not tell what is QUIC"
	}
	return ""
}

func (n *nginx) kept() error { return nil }

// kill kills both workers, which their master starts again.
func (n *nginx) kill() error {
	before := proc.Children(n.First())
	n.Signal(syscall.SIGKILL)
	if err := proc.Wait("another worker", trial.Patience, func() bool { return proc.HasNew(n.First(), before) }); err != nil {
		return err
	}
	return n.listen()
}

// upgrade reads the configuration again, which replaces the workers.
func (n *nginx) upgrade() error {
	return errors.Join(proc.Renew(n.First(), syscall.SIGHUP, true, trial.Patience), n.listen())
}
