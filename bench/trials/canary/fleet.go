//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/internal/testport"
)

// fleet are relays that have their configuration from etcd.
type fleet struct {
	s      *settings
	dir    string
	etcd   *registry.Etcd
	url    string
	relays []*relay
	text   string // that is published
}

// relay is a daemon.
type relay struct {
	name   string
	ports  map[string]string // by the names of variables
	free   []func()
	daemon *trial.Daemon
}

func (r *relay) at(port string) string { return "127.0.0.1:" + r.ports[port] }

// listeners are the variables with the ports of the relays' listeners.
var listeners = []string{"WEB", "SNI", "TLS", "DNS"}

func newFleet(s *settings, dir string, m *members) (*fleet, error) {
	f := &fleet{s: s, dir: dir, text: base(m)}
	var err error
	if f.etcd, err = registry.NewEtcd(filepath.Join(dir, "etcd")); err != nil {
		return nil, err
	}
	f.url = "etcd" + strings.TrimPrefix(f.etcd.URL(), "http") + "/penstock/canary"
	if text, code := f.publish(f.text); code != 0 {
		f.close()
		return nil, fmt.Errorf("publish: exit code %d: %s", code, text)
	}
	for i := range s.relays {
		r := &relay{name: fmt.Sprint("relay-", i), ports: map[string]string{}}
		f.relays = append(f.relays, r)
		state := filepath.Join(dir, r.name)
		if err := os.Mkdir(state, 0o700); err != nil {
			f.close()
			return nil, err
		}
		r.daemon = trial.DaemonAt(s.Penstock, state, "run", "-c", f.url, "--node", r.name, "--state", filepath.Join(state, "state"))
		for _, l := range listeners {
			port, free, err := testport.Reserve()
			if err != nil {
				f.close()
				return nil, err
			}
			r.ports[l], r.free = port, append(r.free, free)
			r.daemon.Env = append(r.daemon.Env, l+"="+port)
		}
		if err := r.daemon.Begin(); err != nil {
			f.close()
			return nil, err
		}
	}
	err = proc.Until("the relays to be ready", time.Minute, 200*time.Millisecond, func() error {
		out, _ := exec.Command(s.Penstock, "fleet", "status", "--json", "--fleet", f.url).Output()
		if strings.Count(string(out), `"state": "ready"`) != s.relays {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) close() {
	for _, r := range f.relays {
		if r.daemon != nil {
			r.daemon.Kill()
		}
		for _, free := range r.free {
			free()
		}
	}
	f.etcd.Close()
}

// command runs penstock, and returns what it printed, and its exit code.
func (f *fleet) command(args ...string) (string, int) {
	cmd := exec.Command(f.s.Penstock, args...)
	cmd.Env = append(os.Environ(), "PENSTOCK_BY=trial")
	for i, l := range listeners { // to check the text with
		cmd.Env = append(cmd.Env, fmt.Sprint(l, "=", i+1))
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (f *fleet) publish(text string, flags ...string) (string, int) {
	file := filepath.Join(f.dir, "version.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err.Error(), -1
	}
	return f.command(append(append([]string{"publish", "-c", file}, flags...), f.url)...)
}

// try publishes a version with a canary, and returns why it ended as it did, and the exit code.
func (f *fleet) try(v *version) (why string, code int) {
	done := make(chan struct{})
	var meanwhile sync.WaitGroup
	if v.crashes {
		meanwhile.Go(func() { f.crash(done) })
	}
	out, code := f.publish(v.text, "--canary", f.s.share, "--wait", f.s.wait.String())
	close(done)
	meanwhile.Wait()
	if code == 0 {
		f.text = v.text
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	why = lines[len(lines)-1]
	if code == 0 { // the last line says that all run it
		for _, l := range lines {
			if strings.Contains(l, " run it; ") {
				why = l
			}
		}
	}
	return why, code
}

// rollback goes back from a version that should not have been promoted.
func (f *fleet) rollback() { f.command("rollback", "--wait", "30s", f.url) }

// crash kills relays that try a version, and starts them again, until done is closed.
func (f *fleet) crash(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
		for _, r := range f.relays {
			out, _ := exec.Command(f.s.Penstock, "fleet", "status", "--fleet", f.url, r.name).Output()
			if !strings.Contains(string(out), "tries the canary") {
				continue
			}
			r.daemon.Kill()
			r.daemon.Begin()
		}
	}
}
