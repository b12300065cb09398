//go:build linux

// Quicpeers tries implementations of QUIC that others have written, as clients and as servers, through the daemon: each client with each server,
// by name, with another port in the middle of a download, with active migration, and with a worker that is killed or upgraded then. Every byte
// of each download is compared with the file of the name that was asked for.
//
//	go run ./bench/trials/quicpeers -python bin/aioquic/bin/python -quinn bin/quicpeer
//	go run ./bench/trials/quicpeers -clients ngtcp2 -servers 'quic*' -cases kill
//	go run ./bench/trials/quicpeers -direct
//
// What is not installed is left out, and named. make quic-peers installs it.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

const (
	size   = 2 << 20 // of a download
	middle = size / 8
	// patience bounds a download.
	patience = 90 * time.Second
)

// names are the server names, each of which has a group of two members.
var names = []string{"blue.test", "green.test"}

// An implementation of QUIC with HTTP/3.
type implementation struct {
	name    string
	missing string // why it cannot be tried; "": it can
	// server returns the command that serves the files of a folder; id, if not empty, is the 8 bytes that its connection IDs have, in hexadecimal.
	server func(s *setup, port, root, id string) []string
	// client returns the command that downloads a file of a name to out; bytes, if not empty, is after how many of them it moves.
	client func(s *setup, port, name, path, out, bytes string) []string
	// routable says that the server can have its ID in its connection IDs.
	routable bool
}

// A trialCase is what happens in the middle of a download.
type trialCase struct {
	name, what string
	migrate    bool // the client moves by itself, to servers with IDs
	daemon     bool // something happens to the daemon
	act        func(s *setup, n *nat) error
	ports      int // that the client has had at the end, at least
}

var cases = []trialCase{
	{"names", "two names, nothing else", false, false, nil, 1},
	{"rebind", "the client's router gives it another port", false, false, func(_ *setup, n *nat) error { return n.rebind() }, 2},
	{"migrate", "the client moves, with another connection ID; the servers have their IDs in theirs", true, false, nil, 2},
	{"kill", "the worker is killed", false, true, func(s *setup, _ *nat) error { return s.kill() }, 1},
	{"upgrade", "the daemon is upgraded", false, true, func(s *setup, _ *nat) error { return s.upgrade() }, 1},
	{"rebind+kill", "another port, and then a kill", false, true, func(s *setup, n *nat) error { return errors.Join(n.rebind(), n.heard(), s.kept(), s.kill()) }, 2},
}

// setup is what a case is given.
type setup struct {
	trial.Run
	python, quinn string
	pair          certs.Pair
	ca            string
	files         map[string][]byte // by name
	daemon        *trial.Daemon
	ports         map[bool]string // of the listeners, by whether the servers have IDs
	direct        bool
	servers       map[string]string // with direct: the port of one of a name's servers, with IDs if it can have them
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "peer" {
		if err := peerMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var s setup
	s.Flags(flag.CommandLine)
	clients := flag.String("clients", "*", "implementations to try as clients, with commas between them")
	servers := flag.String("servers", "*", "implementations to try as servers")
	named := flag.String("cases", "*", "cases to try")
	flag.StringVar(&s.python, "python", "python3", "a Python that has aioquic")
	flag.StringVar(&s.quinn, "quinn", "bin/quicpeer", "the program in bench/trials/quicpeers/quinn")
	flag.BoolVar(&s.direct, "direct", false, "no relay between: what clients and servers do by themselves; kills and upgrades are left out")
	flag.Parse()
	trial.Main("quicpeers", func() error { return s.all(*clients, *servers, *named) })
}

func (s *setup) all(clients, servers, named string) error {
	end, err := s.Begin(4000)
	if err != nil {
		return err
	}
	defer end()
	authority, err := certs.New(s.Dir)
	if err != nil {
		return err
	}
	s.ca = authority.CA
	if s.pair, err = authority.Server("server", "ecdsa", names...); err != nil {
		return err
	}
	s.files = map[string][]byte{}
	for _, name := range names {
		b := make([]byte, size)
		rand.Read(b)
		s.files[name] = b
		root := filepath.Join(s.Dir, "files", name)
		if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "file"), b, 0o644)); err != nil {
			return err
		}
	}
	all := s.implementations()
	for _, i := range all {
		if i.missing != "" {
			fmt.Fprintf(s.Out, "# without %s: %s\n", i.name, strings.ReplaceAll(strings.TrimSpace(i.missing), "\n", "\n# "))
		}
	}
	var failed []error
	for _, server := range all {
		if server.missing != "" || !trial.Named(servers, server.name) {
			continue
		}
		if err := s.start(server); err != nil {
			return fmt.Errorf("server %s: %w", server.name, err)
		}
		for _, client := range all {
			if client.missing != "" || !trial.Named(clients, client.name) {
				continue
			}
			for _, c := range cases {
				if !trial.Named(named, c.name) || s.direct && c.daemon {
					continue
				}
				hello, result := 0, "ok"
				if c.migrate && !server.routable {
					result = "-" // the ID that the client takes is one that nobody has seen
				} else if hello, err = s.try(client, c); err != nil {
					failed = append(failed, fmt.Errorf("client %s, server %s, %s: %w\n%s", client.name, server.name, c.name, err, s.logTail()))
					result = "FAILED"
					fmt.Fprintf(s.Out, "# %v\n", strings.ReplaceAll(failed[len(failed)-1].Error(), "\n", "\n# "))
				}
				fmt.Fprintf(s.Out, "QUIC/client=%s/server=%s/%s\t%s\t%d datagrams-of-hello\n", client.name, server.name, c.name, result, hello)
				if result == "FAILED" && c.act == nil && !c.migrate {
					break // they do not get along
				}
			}
		}
		proc.EndAll()
	}
	return errors.Join(failed...)
}

// start starts two servers of each name, with and without IDs, and the daemon.
func (s *setup) start(i implementation) error {
	dir := filepath.Join(s.Dir, "with-"+i.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s.ports, s.servers = map[bool]string{}, map[string]string{}
	config, groups, number := "keeper: {}\nlisteners:\n", "groups:\n", 0
	for _, ids := range []bool{false, true} {
		if ids && !i.routable {
			continue
		}
		listener := "learned"
		if ids {
			listener = "routable"
		}
		port, err := freeUDP()
		if err != nil {
			return err
		}
		s.ports[ids] = port
		config += fmt.Sprintf("  %s:\n    listen: \"udp://127.0.0.1:%s\"\n    routes:\n", listener, port)
		for _, name := range names {
			group := listener + "-" + strings.TrimSuffix(name, ".test")
			config += fmt.Sprintf("      - {name: %s, sni: %s, to: %s}\n", group, name, group)
			quic, members := "{}", ""
			if ids {
				quic = "{learn: false, ids: cloud}"
			}
			for range 2 {
				number++
				to, err := freeUDP()
				if err != nil {
					return err
				}
				id, more := "", ""
				if ids {
					id = fmt.Sprintf("%016x", 0x5e70000000000000+uint64(number))
					more = fmt.Sprintf(", quic-server-id: \"0x%s\"", id)
				}
				s.servers[name] = to
				members += fmt.Sprintf("      - {to: \"udp://127.0.0.1:%s\"%s}\n", to, more)
				p := &proc.Process{Argv: i.server(s, to, filepath.Join(s.Dir, "files", name), id), Dir: filepath.Join(dir, fmt.Sprint(number))}
				if err := errors.Join(os.Mkdir(p.Dir, 0o755), p.Begin()); err != nil {
					return err
				}
				if err := proc.Until("a server", trial.Patience, 50*time.Millisecond, func() error { return errors.Join(p.Failed(), listens(to)) }); err != nil {
					return fmt.Errorf("%w\n%s", err, p.Printed())
				}
			}
			groups += fmt.Sprintf("  %s:\n    balance: round-robin\n    quic: %s\n    members:\n%s", group, quic, members)
		}
	}
	if s.direct {
		return nil
	}
	var err error
	s.daemon, err = trial.StartDaemon(s.Penstock, filepath.Join(dir, "relay"), config+groups)
	if err != nil && s.daemon != nil {
		err = fmt.Errorf("%w\n%s", err, s.daemon.LogTail(20))
	}
	return err
}

// try downloads the file of each name, and lets something happen in the middle.
func (s *setup) try(i implementation, c trialCase) (hello int, err error) {
	for _, name := range names {
		if hello, err = s.download(i, c, name); err != nil {
			return hello, fmt.Errorf("%s: %w", name, err)
		}
	}
	return hello, nil
}

func (s *setup) download(i implementation, c trialCase, name string) (hello int, err error) {
	to := s.ports[c.migrate]
	if s.direct {
		to = s.servers[name]
	}
	n, err := newNAT("127.0.0.1:"+to, middle)
	if err != nil {
		return 0, err
	}
	defer n.close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dir, err := os.MkdirTemp(s.Dir, "download-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	after := ""
	if c.migrate {
		after = fmt.Sprint(middle)
	}
	_, port, _ := net.SplitHostPort(n.address())
	out := filepath.Join(dir, "file")
	argv := i.client(s, port, name, "/file", out, after)
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &printed, &printed
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	ended := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("the client: %w; %d bytes had come\n%s", errors.Join(err, ctx.Err()), n.got(), trial.Tail(printed.String(), 15))
	}
	select {
	case <-n.reached:
		if c.act != nil {
			if c.daemon {
				err = s.kept()
			}
			err = errors.Join(err, c.act(s, n))
		}
		if !c.migrate {
			n.hurry()
		}
		err = errors.Join(err, ended(<-over))
	case err = <-over:
		if err = ended(err); err == nil {
			err = fmt.Errorf("the client has ended before the middle; %d bytes had come\n%s", n.got(), trial.Tail(printed.String(), 15))
		}
	}
	ports, hello := n.ports()
	if err != nil {
		return hello, err
	}
	b, err := os.ReadFile(out)
	switch {
	case err != nil:
		return hello, err
	case !bytes.Equal(b, s.files[name]):
		for other, file := range s.files {
			if bytes.Equal(b, file) {
				return hello, fmt.Errorf("the file is that of %s", other)
			}
		}
		return hello, fmt.Errorf("%d bytes that are not those of the file, which has %d", len(b), size)
	case ports < c.ports:
		return hello, fmt.Errorf("the client has had %d ports only", ports)
	}
	return hello, nil
}

// kill kills the worker, and waits for the next one.
func (s *setup) kill() error {
	was := s.worker()
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		return err
	}
	if err := proc.Wait("another worker", trial.Patience, func() bool { w := s.worker(); return w != 0 && w != was }); err != nil {
		return err
	}
	return s.daemon.Ready(trial.Patience)
}

// logTail returns the last lines of the daemon's log.
func (s *setup) logTail() string {
	if s.direct {
		return ""
	}
	return s.daemon.LogTail(5)
}

// kept waits until the keeper has all flows: a younger one is lost with its worker.
func (s *setup) kept() error {
	return proc.Until("all flows are kept", trial.Patience, 20*time.Millisecond, func() error {
		b, err := s.daemon.Get("/v1/status")
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
func (s *setup) worker() int {
	main := s.daemon.First()
	return slices.Max(append([]int{0}, slices.DeleteFunc(s.daemon.Workers(), func(pid int) bool { return pid == main })...))
}

func (s *setup) upgrade() error {
	was := s.worker()
	out, err := exec.Command(s.Penstock, "upgrade", "--admin", "unix://"+s.daemon.Socket, "--binary", s.Penstock).CombinedOutput()
	if err != nil {
		return fmt.Errorf("upgrade: %w\n%s", err, out)
	}
	if s.worker() == was {
		return fmt.Errorf("the worker is the same after an upgrade\n%s", out)
	}
	return nil
}

// freeUDP returns a port that nobody has at the moment.
func freeUDP() (string, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return fmt.Sprint(c.LocalAddr().(*net.UDPAddr).Port), nil
}

// listens returns an error unless somebody has a port: see proc_net_udp in proc(5). To bind it would take it from a server that is about to.
func listens(port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/net/udp")
	if err == nil && !bytes.Contains(b, fmt.Appendf(nil, ":%04X ", number)) {
		err = errors.New("nobody listens at " + port)
	}
	return err
}
