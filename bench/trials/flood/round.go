//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

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
	ip := func(args ...string) error {
		if text, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w\n%s", args, err, text)
		}
		return nil
	}
	err := ip("link", "add", "away", "type", "dummy")
	if err != nil {
		err = ip("tuntap", "add", "away", "mode", "tun") // which nobody reads
	}
	for _, args := range [][]string{
		{"link", "set", "away", "up"},
		{"route", "add", "default", "dev", "away"},
		{"addr", "add", "192.0.2.1/32", "dev", "lo"},
		{"addr", "add", "192.0.2.2/32", "dev", "lo"},
		{"route", "add", "local", "10.0.0.0/8", "dev", "lo"},
	} {
		if err == nil {
			err = ip(args...)
		}
	}
	return err
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
	up, err := begin("echo", upstreamAddress)
	if err != nil {
		return res, err
	}
	defer up.kill()
	if _, err := up.out.ReadString('\n'); err != nil {
		return res, fmt.Errorf("the upstream: %w", err)
	}
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
		f, err := begin("forge", b.Kind, strconv.Itoa(b.Rate), strconv.Itoa(b.Size), relayAddress)
		if err != nil {
			return res, err
		}
		stop := b.profile(r.PID)
		time.Sleep(b.Flood)
		stop()
		if res.Forged, err = f.end(); err != nil {
			return res, err
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
	if b.Relay == "penstock" {
		if res.Metrics, err = peer.Metrics(s, "penstock_datagram"); err != nil {
			return res, err
		}
	}
	cs.stop()
	res.count(cs)
	return res, nil
}

// profile profiles a process until stop is called, if that was asked for.
func (b *bench) profile(pid int) (stop func()) {
	if b.Profile == "" {
		return func() {}
	}
	file := filepath.Join(b.Profile, fmt.Sprintf("%s-%s-%d.perf", b.Relay, b.Kind, b.Rate))
	cmd := exec.Command("perf", "record", "-q", "-g", "-F", "499", "-p", strconv.Itoa(pid), "-o", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "flood: perf:", err)
		return func() {}
	}
	return func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }
}
