//go:build linux

// Package registry has the engines in which a relay finds the members of its groups, and changes these members as
// an operator's programs do. etcd and the xDS server are real ones (program fleetservers, module fleettest);
// Consul and Kubernetes are stand-ins that follow their documentation.
package registry

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/internal/testport"
)

// A Member is an upstream as a registry says it.
type Member struct {
	Name     string
	Addr     string // HOST:PORT
	Weight   int
	Draining bool
}

// hostPort splits the address.
func (m Member) hostPort() (host string, port int, err error) {
	host, number, err := net.SplitHostPort(m.Addr)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	return host, port, err
}

// services are members by service and name, of registries that keep them here.
type services map[string]map[string]Member

func (s services) put(service string, m Member) {
	if s[service] == nil {
		s[service] = make(map[string]Member)
	}
	s[service][m.Name] = m
}

// members returns those of a service in the order of their names.
func (s services) members(service string) (all []Member) {
	for _, name := range slices.Sorted(maps.Keys(s[service])) {
		all = append(all, s[service][name])
	}
	return all
}

// A Registry has services, each with members by name. Its methods are for one goroutine at a time.
type Registry interface {
	// Registry returns the value of an entry of registries in a configuration.
	Registry() string
	// Discover returns the entry of a group's discover that finds the members of a service.
	Discover(service, network string) string
	// Can reports whether the registry has what not all have: Weights or Draining.
	Can(what string) bool
	// Put adds or replaces a member. Remove removes it.
	Put(service string, m Member) error
	Remove(service, name string) error
	// Kill ends the server at once. Start starts it again, at the same address and with the same data.
	Kill()
	Start() error
	// PID returns the server's process; 0: it is this one.
	PID() int
	Close()
}

// What not all registries have.
const (
	Weights  = "weights"
	Draining = "draining"
)

// kinds are what starts each kind of registry, with a folder for its data.
var kinds = map[string]func(dir string) (Registry, error){
	"consul":     newConsul,
	"etcd":       newEtcd,
	"kubernetes": newKubernetes,
	"xds":        newXDS,
}

// Kinds returns the kinds of registries that there are.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// New starts a registry of a kind. dir is an empty folder for its data.
func New(kind, dir string) (Registry, error) {
	start := kinds[kind]
	if start == nil {
		return nil, fmt.Errorf("unknown registry %q; allowed: %s", kind, strings.Join(Kinds(), ", "))
	}
	return start(dir)
}

// program returns the path of fleetservers. It builds it if need be, which takes a minute the first time.
var program = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "fleetservers").Output()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		return "", fmt.Errorf("build fleetservers: %w\n%s", err, e.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

// server is a process of fleetservers.
type server struct {
	args    []string // of the first start
	url     string
	process *child.Child // nil: it does not run
	stderr  bytes.Buffer

	ports   []string // reserved for the server: clients', peers'
	release []func()
}

// Start starts the server, again at the same address.
func (s *server) Start() error {
	path, err := program()
	if err != nil {
		return err
	}
	for len(s.ports) < 2 {
		port, release, err := testport.Reserve()
		if err != nil {
			return err
		}
		s.ports, s.release = append(s.ports, port), append(s.release, release)
	}
	args := append(slices.Clone(s.args), "-ports", strings.Join(s.ports, ","))
	if s.url != "" {
		args = append(args, "-listen", s.url)
	}
	s.stderr.Reset()
	cmd := exec.Command(path, args...)
	cmd.Stderr = &s.stderr
	if s.process, err = child.Start(cmd); err != nil {
		return err
	}
	line, err := s.process.Line()
	word, url, _ := strings.Cut(line, " ")
	if err != nil || word != "ready" {
		s.Kill()
		return fmt.Errorf("%s is not ready: %q, %v\n%s", args[0], line, err, s.stderr.Bytes())
	}
	s.url, _, _ = strings.Cut(url, " ")
	return nil
}

// Kill ends the server at once.
func (s *server) Kill() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

func (s *server) Close() {
	s.Kill()
	for _, f := range s.release {
		f()
	}
	s.ports, s.release = nil, nil
}

func (s *server) Can(string) bool { return true }

func (s *server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.PID
}
