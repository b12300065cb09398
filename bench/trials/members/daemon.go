//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/internal/testport"
)

// patience is how long anything may take.
const patience = 60 * time.Second

// daemon is a penstock whose group is in etcd.
type daemon struct {
	*trial.Daemon
	addr string // of its listener
	free func() // ends the reservation of its port
}

func startDaemon(s *settings, dir string, etcd *registry.Etcd) (*daemon, error) {
	port, free, err := testport.Reserve()
	if err != nil {
		return nil, err
	}
	d := &daemon{addr: "127.0.0.1:" + port, free: free}
	config := fmt.Sprintf("engine: {loops: %d}\nadmin: {listen: \"unix://%s/admin\"}\nlog: {level: warn, flows: none}\nregistries: {it: %s}\ngroups:\n  g: {balance: %q, discover: [%s]}\nlisteners:\n  l: {listen: \"tcp://%s\", to: g}\n",
		s.loops, dir, etcd.Registry(), s.balance, etcd.Discover(service, "tcp"), d.addr)
	if d.Daemon, err = trial.NewDaemon(s.Penstock, dir, config); err == nil {
		err = d.Begin()
	}
	if err != nil {
		free()
		return nil, err
	}
	return d, nil
}

func (d *daemon) end() {
	d.Kill()
	d.free()
}

// status is what the daemon says of itself. Unlike lists of members it costs the same with many of them.
type status struct {
	Loops  []struct{ Busy float64 }
	Groups []struct{ Members int }
}

func (d *daemon) status() (s status, err error) {
	b, err := d.Get("/v1/status")
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
		if b, err = d.Get("/v1/groups"); err == nil {
			var in struct {
				Groups []struct{ Members []struct{} }
			}
			if err = json.Unmarshal(b, &in); err == nil && len(in.Groups) == 1 {
				if have = len(in.Groups[0].Members); have == n {
					return nil
				}
			}
		}
		if err := d.Failed(); err != nil {
			return err
		}
	}
	return fmt.Errorf("the daemon has %d members instead of %d: %w\n%s", have, n, err, d.LogTail(10))
}
