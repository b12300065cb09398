//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

// A relay is between clients and servers.
type relay interface {
	// kept waits until what outlives a kill is kept.
	kept() error
	// kill kills the process that carries the traffic, and waits for the next one.
	kill() error
	// upgrade replaces that process, or whatever is nearest to it.
	upgrade() error
	// tail returns the last lines of its log.
	tail() string
	// cannot returns why it has no setting for a case; "": it has.
	cannot(name string) string
}

// A listener is a UDP port of a relay.
type listener struct {
	name, port string
	ids        string // how the servers write their IDs into connection IDs, as `ids` of a group; empty: they do not
	groups     []group
	rest       string // the address for what names no server; empty: the first group
}

// A group has the servers of a name.
type group struct {
	name, sni string
	members   []member
}

type member struct {
	port, id string // id: 8 bytes in hexadecimal; empty: it has none
}

// starters start relays in a new folder, by their names.
var starters = map[string]func(s *setup, dir string, all []listener) (relay, error){"penstock": startPenstock, "caddy-l4": startCaddy, "nginx": startNginx}

// penstock is the daemon, with a keeper.
type penstock struct {
	*trial.Daemon
	binary string
}

func startPenstock(s *setup, dir string, all []listener) (relay, error) {
	config, groups := "keeper: {}\nlisteners:\n", "groups:\n"
	for _, l := range all {
		config += fmt.Sprintf("  %s:\n    listen: \"udp://127.0.0.1:%s\"\n    routes:\n", l.name, l.port)
		rest, quic := l.groups[0].name, "{}"
		if l.ids != "" {
			quic = "{learn: false, ids: " + l.ids + "}"
		}
		for _, g := range l.groups {
			config += fmt.Sprintf("      - {name: %s, sni: %s, to: %s}\n", g.name, g.sni, g.name)
			groups += fmt.Sprintf("  %s:\n    balance: round-robin\n    quic: %s\n    members:\n", g.name, quic)
			for _, m := range g.members {
				id := ""
				if m.id != "" {
					id = fmt.Sprintf(", quic-server-id: \"0x%s\"", m.id)
				}
				groups += fmt.Sprintf("      - {to: \"udp://127.0.0.1:%s\"%s}\n", m.port, id)
			}
		}
		if l.rest != "" {
			rest = l.name + "-rest"
			groups += fmt.Sprintf("  %s: {members: [\"udp://%s\"]}\n", rest, l.rest)
		}
		config += fmt.Sprintf("    to: %s\n", rest)
	}
	d, err := trial.StartDaemon(s.Penstock, dir, config+groups)
	if err != nil && d != nil {
		err = fmt.Errorf("%w\n%s", err, d.LogTail(20))
	}
	return &penstock{d, s.Penstock}, err
}

func (p *penstock) tail() string { return p.LogTail(5) }

func (p *penstock) cannot(string) string { return "" }

func (p *penstock) kill() error {
	was := p.worker()
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		return err
	}
	if err := proc.Wait("another worker", trial.Patience, func() bool { w := p.worker(); return w != 0 && w != was }); err != nil {
		return err
	}
	return p.Ready(trial.Patience)
}

// kept waits until the keeper has all flows: a younger one is lost with its worker.
func (p *penstock) kept() error {
	return proc.Until("all flows are kept", trial.Patience, 20*time.Millisecond, func() error {
		b, err := p.Get("/v1/status")
		if err != nil {
			return err
		}
		var status struct {
			Totals, Keeper struct{ Flows int }
		}
		if err := json.Unmarshal(b, &status); err != nil {
			return err
		}
		if status.Keeper.Flows < status.Totals.Flows || status.Totals.Flows == 0 {
			return fmt.Errorf("%d of %d", status.Keeper.Flows, status.Totals.Flows)
		}
		return nil
	})
}

// worker returns the process that carries the traffic; 0: none does.
func (p *penstock) worker() int {
	main := p.First()
	return slices.Max(append([]int{0}, slices.DeleteFunc(p.Workers(), func(pid int) bool { return pid == main })...))
}

func (p *penstock) upgrade() error {
	was := p.worker()
	out, err := exec.Command(p.binary, "upgrade", "--admin", "unix://"+p.Socket, "--binary", p.binary).CombinedOutput()
	if err != nil {
		return fmt.Errorf("upgrade: %w\n%s", err, out)
	}
	if p.worker() == was {
		return fmt.Errorf("the worker is the same after an upgrade\n%s", out)
	}
	return nil
}

// caddy is Caddy with the module caddy-l4. It is started again at once when it is killed, and has no upgrade, but a reload.
type caddy struct {
	proc.Process
	admin string
	all   []listener
}

func startCaddy(s *setup, dir string, all []listener) (relay, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	port, err := freeUDP()
	if err != nil {
		return nil, err
	}
	c := &caddy{admin: "127.0.0.1:" + port, all: all}
	type object = map[string]any
	proxy := func(to ...string) []object {
		var upstreams []object
		for _, at := range to {
			upstreams = append(upstreams, object{"dial": []string{"udp/" + at}})
		}
		return []object{{"handler": "proxy", "upstreams": upstreams, "load_balancing": object{"selection": object{"policy": "round_robin"}}}}
	}
	servers := object{}
	for _, l := range all {
		var routes []object
		rest := []string{l.rest}
		for i, g := range l.groups {
			var to []string
			for _, m := range g.members {
				to = append(to, "127.0.0.1:"+m.port)
			}
			routes = append(routes, object{"match": []object{{"quic": object{"sni": []string{g.sni}}}}, "handle": proxy(to...)})
			if i == 0 && l.rest == "" {
				rest = to
			}
		}
		servers[l.name] = object{"listen": []string{"udp/127.0.0.1:" + l.port}, "routes": append(routes, object{"handle": proxy(rest...)})}
	}
	config, err := json.Marshal(object{"admin": object{"listen": c.admin}, "apps": object{"layer4": object{"servers": servers}}})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "caddy.json")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return nil, err
	}
	c.Process = proc.Process{Argv: []string{s.caddy, "run", "--config", file}, Env: []string{"HOME=" + dir}, Dir: dir, Again: true}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	return c, c.listen()
}

// listen waits until it has all ports.
func (c *caddy) listen() error {
	for _, l := range c.all {
		if err := proc.Until("caddy-l4 listens", trial.Patience, 20*time.Millisecond, func() error { return listens(l.port) }); err != nil {
			return fmt.Errorf("%w\n%s", err, c.Printed())
		}
	}
	return nil
}

func (c *caddy) tail() string { return trial.Tail(c.Printed(), 5) }

func (c *caddy) cannot(string) string { return "" }

func (c *caddy) kept() error { return nil }

func (c *caddy) kill() error {
	was, begun := c.First(), c.Begun()
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		return err
	}
	if err := proc.Wait("another caddy-l4", trial.Patience, func() bool { return c.Begun() > begun }); err != nil {
		return err
	}
	return c.listen()
}

func (c *caddy) upgrade() error {
	out, err := exec.Command(c.Argv[0], "reload", "--force", "--address", c.admin, "--config", filepath.Join(c.Dir, "caddy.json")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("reload: %w\n%s", err, out)
	}
	return c.listen()
}
