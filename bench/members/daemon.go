//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/internal/testport"
)

// patience is how long anything may take.
const patience = 60 * time.Second

// daemon is a penstock whose group is in etcd.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	addr string // of its listener
	free func() // ends the reservation of its port
	log  string
	http http.Client
}

func startDaemon(s *settings, dir string, etcd *registry.Etcd) (*daemon, error) {
	port, release, err := testport.Reserve()
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + port
	started := false
	defer func() {
		if !started {
			release()
		}
	}()
	admin := filepath.Join(dir, "admin")
	config := fmt.Sprintf("engine: {loops: %d}\nadmin: {listen: \"unix://%s\"}\nlog: {level: warn, flows: none}\nregistries: {it: %s}\ngroups:\n  g: {balance: %q, discover: [%s]}\nlisteners:\n  l: {listen: \"tcp://%s\", to: g}\n",
		s.loops, admin, etcd.Registry(), s.balance, etcd.Discover(service, "tcp"), addr)
	file := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	d := &daemon{done: make(chan struct{}), addr: addr, free: release, log: filepath.Join(dir, "daemon.log")}
	d.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", admin)
	}}
	d.http.Timeout = patience
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(s.binary, "run", "-c", file)
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { d.err = d.cmd.Wait(); close(d.done) }()
	started = true
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) kill() {
	d.cmd.Process.Kill()
	<-d.done
	d.free()
	d.http.CloseIdleConnections()
}

// ended returns an error if the daemon has ended.
func (d *daemon) ended() error {
	select {
	case <-d.done:
		return fmt.Errorf("the daemon ended: %v\n%s", d.err, d.logTail())
	default:
		return nil
	}
}

func (d *daemon) logTail() string {
	b, _ := os.ReadFile(d.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

func (d *daemon) get(path string) ([]byte, error) {
	res, err := d.http.Get("http://localhost" + path)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, res.Status)
	}
	return b, err
}

// status is what the daemon says of itself. Unlike lists of members it costs the same with many of them.
type status struct {
	Loops  []struct{ Busy float64 }
	Groups []struct{ Members int }
}

func (d *daemon) status() (s status, err error) {
	b, err := d.get("/v1/status")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("/v1/status: %w", err)
	}
	return s, nil
}

// busy returns the time in seconds that the loops were not waiting.
func (d *daemon) busy() (sum float64, err error) {
	s, err := d.status()
	for _, l := range s.Loops {
		sum += l.Busy
	}
	return sum, err
}

// wait waits until the group has n members.
func (d *daemon) wait(n int) (err error) {
	have := 0
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var b []byte
		if b, err = d.get("/v1/groups"); err == nil {
			var in struct {
				Groups []struct{ Members []struct{} }
			}
			if err = json.Unmarshal(b, &in); err == nil && len(in.Groups) == 1 {
				if have = len(in.Groups[0].Members); have == n {
					return nil
				}
			}
		}
		if err := d.ended(); err != nil {
			return err
		}
	}
	return fmt.Errorf("the daemon has %d members instead of %d: %w\n%s", have, n, err, d.logTail())
}
