//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/internal/testport"
)

// bench is one run of the program.
type bench struct {
	rows   []row
	peers  []peer.Peer
	rounds int
	tries  int // how often a disturbed measurement is tried
	cpus   string
	host   bool
	files  int
	warm   time.Duration
	window time.Duration
	self   string // this program
	dir    string // for the relays' files
	out    io.Writer

	authority *certs.Authority
	servers   map[string]certs.Pair // by kind of key
	verdicts  []string
}

// disturbed is the share of a window that others may take before a measurement is repeated.
const disturbed = 0.10

// prepare makes the certificates.
func (b *bench) prepare() (err error) {
	if b.authority, err = certs.New(b.dir); err != nil {
		return err
	}
	b.servers = make(map[string]certs.Pair)
	for _, r := range b.rows {
		if kind := r.key; b.servers[kind].Key != "" {
			continue
		} else if b.servers[kind], err = b.authority.Server(kind, kind, certs.Name); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) header() error {
	if err := report.Machine(b.out); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "rounds: %d\nwarm: %v\nwindow: %v\nopen-files: %d\nfresh-network-namespace: %v\ncpus: %s\n", b.rounds, b.warm, b.window, b.files, !b.host, cmp.Or(b.cpus, "all"))
	for _, p := range b.peers {
		version, err := p.Missing(), error(nil)
		text := fmt.Sprint(version)
		if version == nil {
			if text, err = p.Version(); err != nil {
				return err
			}
		}
		fmt.Fprintf(b.out, "%s: %s (%s)\n", p.Name, text, p.Note)
	}
	var shown []mode
	for _, r := range b.rows {
		if slices.Contains(shown, r.mode) {
			continue
		}
		shown = append(shown, r.mode)
		for _, p := range b.peers {
			if !p.Installed() || !r.suits(p.Name) {
				continue
			}
			s := peer.Setup{Listen: "127.0.0.1:LISTEN", Upstream: "127.0.0.1:UPSTREAM", Loops: 1, Files: b.files, Dir: b.dir, TLS: r.mode.setup(b.authority, b.servers[r.key])}
			short := strings.NewReplacer(b.self, "tls", b.dir+"/", "")
			plan := p.Plan(s)
			fmt.Fprintf(b.out, "# %s, %s: %s\n", p.Name, r.mode, short.Replace(strings.Join(plan.Argv[1:], " ")))
			for line := range strings.Lines(plan.Config) {
				fmt.Fprintf(b.out, "#     %s", short.Replace(line))
			}
		}
	}
	return nil
}

// run measures row by row. If a relay fails, the output has its error, the others go on, and the run as a whole fails.
func (b *bench) run() error {
	if err := b.prepare(); err != nil {
		return err
	}
	if err := b.header(); err != nil {
		return err
	}
	var failed error
	for _, r := range b.rows {
		fmt.Fprintf(b.out, "\n# row %s: %s\n", r.name, r.what)
		results := make(map[string][]load.TLSResult)
		for round := range b.rounds {
			// Each round begins with a different relay, so that none always follows the same neighbour.
			for i := range b.peers {
				p := b.peers[(i+round)%len(b.peers)]
				if !p.Installed() || !r.suits(p.Name) {
					continue
				}
				res, err := b.undisturbed(r, p)
				if err != nil {
					fmt.Fprintf(b.out, "# FAILED: %s, round %d: %v\n", p.Name, round+1, err)
					failed = errors.Join(failed, fmt.Errorf("%s in row %s: %w", p.Name, r.name, err))
					continue
				}
				results[p.Name] = append(results[p.Name], res)
				b.line(r, p.Name, res)
			}
		}
		b.table(r, results)
	}
	fmt.Fprintf(b.out, "\n# all rows\n%s\n", strings.Join(b.verdicts, "\n"))
	return failed
}

// undisturbed calls once, and again if something else ran on the relay's CPUs; if all tries were disturbed, it returns the least disturbed one.
func (b *bench) undisturbed(r row, p peer.Peer) (best load.TLSResult, err error) {
	for try := range b.tries {
		res, err := b.once(r, p)
		if err != nil {
			return res, err
		}
		if try == 0 || others.of(res) < others.of(best) {
			best = res
		}
		if others.of(best) <= 100*disturbed {
			break
		}
	}
	return best, nil
}

// once runs one row through one relay, with fresh processes.
func (b *bench) once(r row, p peer.Peer) (res load.TLSResult, err error) {
	r.spec.Name, r.spec.CA = certs.Name, b.authority.CA
	err = b.inPlace(func() error {
		server := b.servers[r.key]
		args := sinkArgs{Spec: r.spec}
		if r.mode.sinkTLS() {
			args.Certificate, args.Key = server.Certificate, server.Key
		}
		upstream, sink, stop, err := b.startSink(args)
		if err != nil {
			return err
		}
		defer stop()
		port, release, err := testport.Reserve()
		if err != nil {
			return err
		}
		defer release()
		dir, err := os.MkdirTemp(b.dir, "relay-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		// In a fresh namespace any port may be an outgoing one, or the sink's, but those are at 127.0.0.1.
		s := peer.Setup{Listen: net.JoinHostPort("127.0.7.1", port), Upstream: upstream, Loops: 1, Files: b.files, Dir: dir, TLS: r.mode.setup(b.authority, server)}
		relay, err := peer.Start(p, s)
		if err != nil {
			return err
		}
		g := generateArgs{Spec: r.spec}
		g.Config.Addr, g.Config.Relay, g.Config.Sink, g.Config.CPUs, g.Config.Warm, g.Config.Window = s.Listen, relay.PID, sink, b.cpus, b.warm, b.window
		res, err = b.runGenerator(g)
		if printed := relay.Stop(); err != nil && printed != "" {
			err = fmt.Errorf("%w\nthe relay printed: %s", err, printed)
		}
		return err
	})
	return res, err
}

// inPlace runs f on a thread on the CPUs and in the network namespace of a measurement; processes that f starts stay there.
func (b *bench) inPlace(f func() error) error {
	pinned := func() error {
		if b.cpus != "" {
			if err := proc.Pin(b.cpus); err != nil {
				return err
			}
		}
		return f()
	}
	if b.host {
		return proc.OnHost(pinned)
	}
	return proc.InNamespace("reno", pinned)
}
