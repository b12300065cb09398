//go:build linux

// Quicpeers tries implementations of QUIC that others have written, as clients and as servers, through the daemon: each client with each server,
// by name, with another port in the middle of a download, with active migration, and with a worker that is killed or upgraded then. Every byte
// of each download is compared with the file of the name that was asked for.
//
//	go run ./bench/trials/quicpeers -python bin/quicpython/bin/python -quinn bin/quicpeer
//	go run ./bench/trials/quicpeers -clients ngtcp2 -servers 'quic*' -cases kill
//	go run ./bench/trials/quicpeers -direct
//
// Cases for which this program is the client are in probes.go, and relays beside the daemon in relays.go.
//
// What is not installed is left out, and named. make quic-peers installs it.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
)

const (
	size   = 2 << 20 // of a download
	middle = size / 8
)

// patience bounds a download.
var patience = 90 * time.Second

// names are the server names, each of which has a group of two members.
var names = []string{"blue.test", "green.test"}

// An implementation of QUIC with HTTP/3.
type implementation struct {
	name    string
	missing string // why it cannot be tried; "": it can
	// server, unless it is nil, returns the command that serves the files of a folder; id, if not empty, is the 8 bytes that its connection IDs have, in hexadecimal.
	server func(s *setup, port, root, id string) []string
	// client, unless it is nil, returns the command that downloads a file of a name to out; bytes, if not empty, is after how many of them it moves.
	client func(s *setup, port, name, path, out, bytes string) []string
	// ids says how the server writes its ID into connection IDs, as the relay's `ids` of a group; empty: it cannot.
	ids string
	// stays says that the client cannot be told to move.
	stays bool
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
	{"migrate", "the client moves to another address, with another connection ID; the servers have their IDs in theirs", true, false, nil, 2},
	{"kill", "the worker is killed", false, true, func(s *setup, _ *nat) error { return s.relay.kill() }, 1},
	{"upgrade", "the daemon is upgraded", false, true, func(s *setup, _ *nat) error { return s.relay.upgrade() }, 1},
	{"rebind+kill", "another port, and then a kill", false, true, func(s *setup, n *nat) error {
		return errors.Join(n.rebind(), n.heard(), s.relay.kept(), s.relay.kill())
	}, 2},
}

// setup is what a case is given.
type setup struct {
	trial.Run
	python, quinn string
	pair          certs.Pair
	ca            string
	files         map[string][]byte // by name
	relay         relay
	through       string // which relay that is
	caddy         string
	rest          string            // the address of what returns every datagram
	ports         map[string]string // of the listeners: see port
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
	flag.StringVar(&s.python, "python", "python3", "a Python that has aioquic and curl_cffi")
	flag.StringVar(&s.quinn, "quinn", "bin/quicpeer", "the program in bench/trials/quicpeers/quinn")
	flag.StringVar(&s.through, "relay", "penstock", "penstock, caddy-l4, or nginx")
	flag.StringVar(&s.caddy, "caddy", "bin/caddy-l4/caddy-l4", "a Caddy with the module caddy-l4")
	flag.DurationVar(&patience, "patience", patience, "bounds a download")
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
		if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, "file"), b, 0o644),
			os.WriteFile(filepath.Join(root, "page.html"), []byte(chromiumPage), 0o644)); err != nil {
			return err
		}
	}
	if starters[s.through] == nil {
		return fmt.Errorf("-relay %s: penstock, caddy-l4, or nginx", s.through)
	}
	if s.caddy = program(s.caddy); s.through == "caddy-l4" && found(s.caddy) != "" {
		return fmt.Errorf("%s; make quic-rivals builds it", found(s.caddy))
	}
	echo, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer echo.Close()
	go returnAll(echo)
	s.rest = echo.LocalAddr().String()
	all := s.implementations()
	for _, i := range all {
		if i.missing != "" {
			fmt.Fprintf(s.Out, "# without %s: %s\n", i.name, strings.ReplaceAll(strings.TrimSpace(i.missing), "\n", "\n# "))
		}
	}
	var failed []error
	for _, server := range all {
		if server.missing != "" || server.server == nil || !trial.Named(servers, server.name) {
			continue
		}
		if err := s.start(server); err != nil {
			return fmt.Errorf("server %s: %w", server.name, err)
		}
		for _, p := range probes {
			if server.name != "quic-go" || s.direct || !trial.Named(clients, "quic-go") || !trial.Named(named, p.name) {
				continue
			}
			result := "ok"
			if s.cannot(p.name) {
				result = "cannot"
			} else if err := p.try(s); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w\n%s", p.name, err, s.logTail()))
				result = "FAILED"
				fmt.Fprintf(s.Out, "# %v\n", strings.ReplaceAll(failed[len(failed)-1].Error(), "\n", "\n# "))
			}
			fmt.Fprintf(s.Out, "QUIC/%s/%s\t%s\n", s.through, p.name, result)
		}
		for _, client := range all {
			if client.missing != "" || client.client == nil || !trial.Named(clients, client.name) {
				continue
			}
			for _, c := range cases {
				if !trial.Named(named, c.name) || s.direct && c.daemon {
					continue
				}
				hello, result := 0, "ok"
				if s.cannot(c.name) {
					result = "cannot"
				} else if c.migrate && (server.ids == "" || client.stays) {
					result = "-" // the ID that a client takes is one that nobody has seen
				} else if hello, err = s.try(client, c); err != nil && !c.daemon && !s.direct && s.fails(client, c) {
					result = "neither" // with the relay, nor without
				} else if err != nil {
					failed = append(failed, fmt.Errorf("client %s, server %s, %s: %w\n%s", client.name, server.name, c.name, err, s.logTail()))
					result = "FAILED"
					fmt.Fprintf(s.Out, "# %v\n", strings.ReplaceAll(failed[len(failed)-1].Error(), "\n", "\n# "))
				}
				fmt.Fprintf(s.Out, "QUIC/%sclient=%s/server=%s/%s\t%s\t%d datagrams-of-hello\n", s.rival(), client.name, server.name, c.name, result, hello)
				if result != "ok" && result != "cannot" && c.act == nil && !c.migrate {
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
	s.ports, s.servers = map[string]string{}, map[string]string{}
	var all []listener
	number := 0
	for _, l := range []listener{{name: "learned"}, {name: "routable", ids: i.ids}, {name: "retry", rest: s.rest}} {
		if l.name == "routable" && l.ids == "" || l.rest != "" && i.name != "quic-go" {
			continue
		}
		var err error
		if l.port, err = freeUDP(); err != nil {
			return err
		}
		s.ports[l.name] = l.port
		for _, name := range names {
			g := group{name: l.name + "-" + strings.TrimSuffix(name, ".test"), sni: name}
			for range 2 {
				number++
				m := member{}
				if m.port, err = freeUDP(); err != nil {
					return err
				}
				if l.ids != "" {
					m.id = fmt.Sprintf("%016x", 0x5e70000000000000+uint64(number))
				}
				s.servers[name] = m.port
				p := &proc.Process{Argv: i.server(s, m.port, filepath.Join(s.Dir, "files", name), m.id), Dir: filepath.Join(dir, fmt.Sprint(number))}
				if l.rest != "" {
					p.Argv = append(p.Argv, "retry")
				}
				if err := errors.Join(os.Mkdir(p.Dir, 0o755), p.Begin()); err != nil {
					return err
				}
				if err := proc.Until("a server", trial.Patience, 50*time.Millisecond, func() error { return errors.Join(p.Failed(), listens(m.port)) }); err != nil {
					return fmt.Errorf("%w\n%s", err, p.Printed())
				}
				g.members = append(g.members, m)
			}
			l.groups = append(l.groups, g)
		}
		all = append(all, l)
	}
	if s.direct {
		return nil
	}
	var err error
	s.relay, err = starters[s.through](s, filepath.Join(dir, "relay"), all)
	return err
}

// rival returns what names the relay in a result, unless it is the daemon.
func (s *setup) rival() string {
	if s.through == "penstock" {
		return ""
	}
	return s.through + "/"
}

// port returns the port of a listener, which another relay than the daemon may have for each name.
func (s *setup) port(listener, name string) string {
	if port, ok := s.ports[listener+" "+name]; ok {
		return port
	}
	return s.ports[listener]
}

// cannot reports whether the relay has no setting for a case, and says why.
func (s *setup) cannot(name string) bool {
	if s.direct {
		return false
	}
	why := s.relay.cannot(name)
	if why != "" {
		fmt.Fprintf(s.Out, "# %s: %s\n", name, why)
	}
	return why != ""
}

// logTail returns the last lines of the relay's log.
func (s *setup) logTail() string {
	if s.direct {
		return ""
	}
	return s.relay.tail()
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

// fails reports whether a case fails without a relay, too.
func (s *setup) fails(i implementation, c trialCase) bool {
	direct := *s
	direct.direct = true
	_, err := direct.try(i, c)
	return err != nil
}

func (s *setup) download(i implementation, c trialCase, name string) (hello int, err error) {
	to := s.port("learned", name)
	if c.migrate {
		to = s.port("routable", name)
	}
	if s.direct {
		to = s.servers[name]
	}
	n, err := newNAT("127.0.0.1:"+to, middle, c.migrate)
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
				err = s.relay.kept()
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
