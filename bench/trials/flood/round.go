//go:build linux

package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/penstock/penstock/bench/internal/child"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
)

// The addresses. They are not loopback ones, because the kernel sends nothing from those to the rest of
// the world, where replies to forged addresses go.
const (
	relayAddress    = "192.0.2.1:7000"
	upstreamAddress = "192.0.2.2:7001"
)

// routes gives the namespace the relay's and the upstream's address, those of honest clients, and a
// device that takes what goes anywhere else, and drops it.
func routes() error {
	err := proc.IP("link add away type dummy")
	if err != nil {
		err = proc.IP("tuntap add away mode tun") // which nobody reads
	}
	return cmp.Or(err, proc.IP("link set away up", "route add default dev away", "addr add 192.0.2.1/32 dev lo", "addr add 192.0.2.2/32 dev lo", "route add local 10.0.0.0/8 dev lo"))
}

// relay starts the relay of a round.
func (b *bench) relay(dir string) (r *peer.Process, s peer.Setup, err error) {
	s = peer.Setup{Listen: relayAddress, Upstream: upstreamAddress, UDP: true, Loops: b.Loops, Files: 20_000, Replies: b.Replies, Dir: dir}
	if b.Relay == "penstock" {
		r, err = peer.Start(peer.Configured("penstock", "penstock run", b.Penstock, b.Engine, b.Listener), s)
		return r, s, err
	}
	peers, err := peer.Pick(peer.All(peer.Binaries{Penstock: b.Penstock}), b.Relay)
	if err != nil {
		return nil, s, err
	}
	r, err = peer.Start(peers[0], s)
	return r, s, err
}

// measure runs the load of one round.
func (b *bench) measure() (res result, err error) {
	res = result{Relay: b.Relay, Kind: b.Kind, Rate: b.Rate}
	if err := routes(); err != nil {
		return res, err
	}
	dir, err := os.MkdirTemp("", "flood")
	if err != nil {
		return res, err
	}
	defer os.RemoveAll(dir)
	up, _, err := child.Begin("echo", upstreamAddress)
	if err != nil {
		return res, fmt.Errorf("the upstream: %w", err)
	}
	defer up.Kill()
	r, s, err := b.relay(dir)
	if err != nil {
		return res, err
	}
	defer r.Stop()
	cs, err := newClients(netip.MustParseAddrPort(relayAddress), b.Size)
	if err != nil {
		return res, err
	}
	cs.begin(b)
	time.Sleep(b.Calm)
	pids := proc.Tree(r.PID)
	before, err := proc.CPU(pids)
	if err != nil {
		return res, err
	}
	cs.flood.Store(true)
	start := time.Now()
	if b.Rate > 0 {
		cmd, err := child.Command("forge", forgery{b.Kind, b.Rate, b.Size, b.Initials, netip.MustParseAddrPort(relayAddress)})
		if err != nil {
			return res, err
		}
		f, err := child.Start(cmd)
		if err != nil {
			return res, err
		}
		time.Sleep(b.Flood)
		sent, err := f.End()
		if err == nil {
			res.Forged, err = strconv.Atoi(sent)
		}
		if err != nil {
			return res, fmt.Errorf("the forger: %w", err)
		}
	} else {
		time.Sleep(b.Flood)
	}
	cs.flood.Store(false) // what sessions send from now on is not measured
	res.Flood = time.Since(start)
	after, err := proc.CPU(pids)
	if err != nil {
		return res, err
	}
	res.CPU = after - before
	if res.RSS, err = proc.RSS(pids); err != nil {
		return res, err
	}
	if b.Relay == "penstock" {
		if res.Metrics, err = peer.Metrics(s, "penstock_datagram"); err != nil {
			return res, err
		}
	}
	cs.stop()
	res.count(cs)
	return res, nil
}
