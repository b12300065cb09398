//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// causes have flows find a new member, each with what its listener and its group have.
var causes = []struct{ name, listener, group string }{
	{"rebalance", "", "rebalance: {share: 0.5, idle: 2s, tolerance: 0.1}"},
	{"life", "timeouts: {life: 60s, life-jitter: 30s}", ""},
}

// mqtt has clients at two brokers, starts a third one, and waits until each broker has its part.
func mqtt(s *setup) error {
	var ports [3]string
	var listen [2]string
	if err := trial.Ports(&ports[0], &ports[1], &ports[2], &listen[0], &listen[1]); err != nil {
		return err
	}
	broker := func(i int) (*proc.Process, error) {
		name := fmt.Sprint("broker", i)
		file, err := s.file(name+".conf", "listener %s 127.0.0.1\nallow_anonymous true\nmax_keepalive 600\n", ports[i])
		if err != nil {
			return nil, err
		}
		return s.begin(name, "mosquitto", "-c", file)
	}
	for i := range 2 {
		if _, err := broker(i); err != nil {
			return err
		}
	}
	config := "listeners:\n"
	groups := "groups:\n"
	for i, c := range causes {
		config += fmt.Sprintf("  %s:\n    listen: tcp://127.0.0.1:%s\n    to: %s\n    %s\n", c.name, listen[i], c.name, c.listener)
		groups += fmt.Sprintf("  %s:\n    balance: least-connections\n    check: {tcp: {every: 1s, timeout: 1s}}\n    members: [tcp://127.0.0.1:%s, tcp://127.0.0.1:%s, tcp://127.0.0.1:%s]\n    %s\n", c.name, ports[0], ports[1], ports[2], c.group)
	}
	d, err := s.daemon("%s%s", config, groups)
	if err != nil {
		return err
	}
	if err := until("the members' states", nil, func() error { return known(d) }); err != nil {
		return err
	}
	for i, c := range causes {
		for n := range s.clients {
			id := fmt.Sprint(c.name, n)
			if _, err := s.begin(filepath.Join(c.name, id), "mosquitto_sub", "-h", "127.0.0.1", "-p", listen[i], "-t", "all/#", "-k", "300", "-i", id); err != nil {
				return err
			}
		}
		if err := until("the clients of "+c.name, nil, func() error { return s.spread(d, c.name, 0.5, 0.5, 0) }); err != nil {
			return err
		}
	}
	third, err := broker(2)
	if err != nil {
		return err
	}
	start := time.Now()
	for _, c := range causes { // both at the same time; each begins at start
		if err := proc.Until("the broker's part of the clients of "+c.name, 3*time.Minute, 100*time.Millisecond, func() error { return s.spread(d, c.name, 1./3, 1./3, 1./3) }); err != nil {
			return fmt.Errorf("%w: %s", err, third.Printed())
		}
		took := time.Since(start)
		once, more, err := s.connects(c.name)
		if err != nil {
			return err
		}
		s.report("cause="+c.name+fmt.Sprint("/clients=", s.clients), took, "spread-s", once, "connected-again", more, "more-than-once")
	}
	return nil
}

// known returns an error until the checks have found two members of each group up and the third down.
func known(d *trial.Daemon) error {
	m, err := d.Metrics()
	if err != nil {
		return err
	}
	if up := m.Sum("penstock_member_up", "group"); up["rebalance"] != 2 || up["life"] != 2 {
		return fmt.Errorf("members that are up: %v", up)
	}
	return nil
}

// spread returns an error unless all clients are connected, and no member of a group has more than its part, a tenth and one.
func (s *setup) spread(d *trial.Daemon, group string, parts ...float64) error {
	b, err := d.Get("/v1/groups/" + group)
	if err != nil {
		return err
	}
	var g struct{ Members []struct{ Flows int } }
	if err := json.Unmarshal(b, &g); err != nil {
		return err
	}
	all := 0
	for i, m := range g.Members {
		all += m.Flows
		if float64(m.Flows) > 1.1*parts[i]*float64(s.clients)+1 {
			return fmt.Errorf("flows of the members: %v", g.Members)
		}
	}
	if all != s.clients {
		return fmt.Errorf("flows of the members: %v", g.Members)
	}
	return nil
}

// connects counts the clients that have connected a second time, and those that have more often, as the brokers' logs have it.
func (s *setup) connects(cause string) (once, more int, err error) {
	var logs []byte
	for i := range 3 {
		b, err := os.ReadFile(filepath.Join(s.Dir, "printed", fmt.Sprint("broker", i), "output"))
		if err != nil {
			return 0, 0, err
		}
		logs = append(logs, b...)
	}
	for n := range s.clients {
		switch n := bytes.Count(logs, fmt.Appendf(nil, " as %s%d (", cause, n)); {
		case n == 2:
			once++
		case n > 2:
			more++
		}
	}
	return once, more, nil
}
