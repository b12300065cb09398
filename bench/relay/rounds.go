//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
)

type namedLoad struct {
	text string
	load.Spec
}

// suits tells whether a peer is measured under a load: nginx-rcvbuf differs from
// nginx for datagrams only.
func (l namedLoad) suits(p peer.Peer) bool {
	if l.UDP() {
		return p.UDP
	}
	return p.Name != "nginx-rcvbuf"
}

// bench is one run of the whole program.
type bench struct {
	loads  []namedLoad
	peers  []peer.Peer
	rounds int
	loops  int
	place  place
	files  int // how many a process may have open
	warm   time.Duration
	window time.Duration
	verify bool
	self   string // this program
	dir    string // for the relays' files
	out    io.Writer
}

// run measures load by load. A relay that fails stays in the output with its
// error, and the others go on; the run as a whole has failed then.
func (b *bench) run() error {
	if err := b.header(); err != nil {
		return err
	}
	var failed error
	for _, l := range b.loads {
		fmt.Fprintf(b.out, "\n# load %s: %s\n", l.text, describe(l.Spec))
		if b.verify && l.Kind == load.Bulk {
			for _, p := range b.peers {
				if _, err := b.once(l, p, true); err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s, verifying %s: %w", p.Name, l.text, err))
				}
			}
		}
		results := make([][]load.Result, len(b.peers))
		for round := range b.rounds {
			// Each round begins with another relay, so that none always
			// follows the same neighbour.
			for i := range b.peers {
				i = (i + round) % len(b.peers)
				p := b.peers[i]
				if !l.suits(p) {
					continue
				}
				r, err := b.once(l, p, false)
				if err != nil {
					fmt.Fprintf(b.out, "# FAILED: %s, round %d: %v\n", p.Name, round+1, err)
					failed = errors.Join(failed, fmt.Errorf("%s under %s: %w", p.Name, l.text, err))
					continue
				}
				results[i] = append(results[i], r)
				b.line(l, p, r)
			}
		}
		b.table(l, results)
	}
	return failed
}

// once runs one load through one relay, all processes fresh.
func (b *bench) once(l namedLoad, p peer.Peer, verify bool) (r load.Result, err error) {
	if n := p.Fit(l.Conns, b.files); n < l.Conns && l.Kind == load.Idle {
		l.text = fmt.Sprintf("idle%d", n)
	}
	err = b.inPlace(func() error {
		upstream, stop, err := b.startSink(l, verify)
		if err != nil {
			return err
		}
		defer stop()
		listen, err := freeAddr()
		if err != nil {
			return err
		}
		relay, err := peer.Start(p, peer.Setup{Listen: listen, Upstream: upstream, UDP: l.UDP(), Loops: b.loops, Files: b.files, Dir: b.dir})
		if err != nil {
			return err
		}
		r, err = b.runGenerator(l, listen, relay.PID, verify)
		printed := relay.Stop()
		if err != nil && printed != "" {
			err = fmt.Errorf("%w\nthe relay printed: %s", err, printed)
		}
		return err
	})
	return r, err
}

// place is where a measurement happens.
type place struct {
	host       bool   // in the machine's own network namespace
	congestion string // the TCP congestion control of a fresh namespace
	cpus       string // "": all
}

// inPlace runs f on a thread there; what f starts stays there.
func (b *bench) inPlace(f func() error) error {
	pinned := func() error {
		if b.place.cpus != "" {
			if err := proc.Pin(b.place.cpus); err != nil {
				return err
			}
		}
		return f()
	}
	if b.place.host {
		return proc.OnHost(pinned)
	}
	return proc.InNamespace(b.place.congestion, pinned)
}

// freeAddr returns an address that nobody listens on at the moment.
func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
