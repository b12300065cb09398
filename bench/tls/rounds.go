//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/penstock/penstock/bench/internal/certs"
	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/rounds"
	"github.com/penstock/penstock/internal/testport"
)

// bench is one run of the program.
type bench struct {
	rounds.Settings
	rows  []row
	peers []peer.Peer

	authority *certs.Authority
	servers   map[string]certs.Pair // by kind of key
	verdicts  []string
}

// prepare makes the certificates.
func (b *bench) prepare() (err error) {
	if b.authority, err = certs.New(b.Dir); err != nil {
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
	if err := report.Machine(b.Out); err != nil {
		return err
	}
	fmt.Fprintf(b.Out, "rounds: %d\nwarm: %v\nwindow: %v\nopen-files: %d\nfresh-network-namespace: %v\ncpus: %s\n", b.Rounds, b.Warm, b.Window, b.Files, !b.Place.Host, cmp.Or(b.Place.CPUs, "all"))
	if err := peer.Describe(b.Out, b.peers); err != nil {
		return err
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
			s := peer.Setup{Listen: "127.0.0.1:LISTEN", Upstream: "127.0.0.1:UPSTREAM", Loops: 1, Files: b.Files, Dir: b.Dir, TLS: r.mode.setup(b.authority, b.servers[r.key])}
			short := strings.NewReplacer(b.Self, "tls", b.Dir+"/", "")
			plan := p.Plan(s)
			fmt.Fprintf(b.Out, "# %s, %s: %s\n", p.Name, r.mode, short.Replace(strings.Join(plan.Argv[1:], " ")))
			for line := range strings.Lines(plan.Config) {
				fmt.Fprintf(b.Out, "#     %s", short.Replace(line))
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
		fmt.Fprintf(b.Out, "\n# row %s: %s\n", r.name, r.what)
		results := make(map[string][]load.Result)
		for round := range b.Rounds {
			// Each round begins with a different relay, so that none always follows the same neighbour.
			for i := range b.peers {
				p := b.peers[(i+round)%len(b.peers)]
				if !p.Installed() || !r.suits(p.Name) {
					continue
				}
				res, err := b.Undisturbed(func() (load.Result, error) { return b.once(r, p) })
				if err != nil {
					fmt.Fprintf(b.Out, "# FAILED: %s, round %d: %v\n", p.Name, round+1, err)
					failed = errors.Join(failed, fmt.Errorf("%s in row %s: %w", p.Name, r.name, err))
					continue
				}
				results[p.Name] = append(results[p.Name], res)
				b.line(r, p.Name, res)
			}
		}
		b.table(r, results)
	}
	fmt.Fprintf(b.Out, "\n# all rows\n%s\n", strings.Join(b.verdicts, "\n"))
	return failed
}

// once runs one row through one relay, with fresh processes.
func (b *bench) once(r row, p peer.Peer) (res load.Result, err error) {
	r.spec.Name, r.spec.CA = certs.Name, b.authority.CA
	err = b.Place.Run(func(*proc.Hosts) error {
		server := b.servers[r.key]
		args := sinkArgs{Spec: r.spec}
		if r.mode.sinkTLS() {
			args.Certificate, args.Key = server.Certificate, server.Key
		}
		sink, upstream, err := child.Begin("sink", args)
		if err != nil {
			return fmt.Errorf("start the sink: %w", err)
		}
		defer sink.Kill()
		port, release, err := testport.Reserve()
		if err != nil {
			return err
		}
		defer release()
		dir, err := os.MkdirTemp(b.Dir, "relay-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		// In a fresh namespace any port may be an outgoing one, or the sink's, but those are at 127.0.0.1.
		s := peer.Setup{Listen: net.JoinHostPort("127.0.7.1", port), Upstream: upstream, Loops: 1, Files: b.Files, Dir: dir, TLS: r.mode.setup(b.authority, server)}
		relay, err := peer.Start(p, s)
		if err != nil {
			return err
		}
		res, err = b.Generate(generateArgs{r.spec, load.Config{Addr: s.Listen, Relay: relay.PID, Sink: sink.PID, CPUs: b.Place.CPUs, Warm: b.Warm, Window: b.Window}})
		if printed := relay.Stop(); err != nil && printed != "" {
			err = fmt.Errorf("%w\nthe relay printed: %s", err, printed)
		}
		return err
	})
	return res, err
}
