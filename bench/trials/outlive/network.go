//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/penstock/penstock/bench/internal/proc"
)

// network is what the links are like between clients and relay, and between relay and upstream.
type network struct {
	name       string
	netem      string                                             // what tc-netem(8) does at each end of both links
	begin, end string                                             // what ip-link(8) sets before the first event, and some time after it
	ends       func(*proc.Hosts, func(device string) error) error // where
	away       bool                                               // nothing arrives between begin and end, and no counter says so
	twice      bool                                               // packets can arrive twice
	loses      bool                                               // it drops packets, and counts them
}

func (n network) called() string { return n.name }

var networks = []network{
	{name: "good"},
	{name: "loss-1%", netem: "loss 1%", loses: true},
	{name: "loss-5%", netem: "loss 5%", loses: true},
	{name: "reorder", netem: "delay 10ms reorder 25% 50%"},
	{name: "duplicate", netem: "duplicate 5%", twice: true},
	{name: "delay-100ms", netem: "delay 50ms"}, // a round trip of 100 ms for each of the links
	{name: "1Mbit/s", netem: "rate 1mbit"},
	{name: "mtu", begin: "mtu 1280", end: "mtu 1500", ends: atEachEnd},
	{name: "away", begin: "down", end: "up", ends: atRelaysEnds, away: true},
}

// atEachEnd runs f for the device at each end of both links, in its namespace. The relay's have the names of what is behind them.
func atEachEnd(h *proc.Hosts, f func(device string) error) error {
	relays := func() error { return f("relay") }
	return errors.Join(h.OnClient(relays), h.OnUpstream(relays), f("client"), f("upstream"))
}

// atRelaysEnds does so for the relay's only. The others lose their carrier when these are down.
func atRelaysEnds(_ *proc.Hosts, f func(device string) error) error {
	return errors.Join(f("client"), f("upstream"))
}

// spoil makes the links what the network is. Datagrams have a queue of their own, whose counters are theirs only. A netem that repeats
// packets must be the only one of its device, and drops none.
func (n network) spoil(h *proc.Hosts) error {
	if n.netem == "" {
		return nil
	}
	return atEachEnd(h, func(device string) error {
		commands := `qdisc add DEV root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
filter add DEV parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff flowid 1:2
qdisc add DEV parent 1:1 handle 10: NETEM
qdisc add DEV parent 1:2 handle 20: NETEM
`
		if n.twice {
			commands = "qdisc add DEV root handle 20: NETEM\n"
		}
		lines := strings.NewReplacer("DEV", "dev "+device, "NETEM", "netem limit 10000 "+n.netem).Replace(commands)
		cmd := exec.Command("tc", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tc: %w: %s", err, bytes.TrimSpace(text))
		}
		return nil
	})
}

// change sets something of both links.
func (n network) change(h *proc.Hosts, what string) error {
	if what == "" {
		return nil
	}
	return n.ends(h, func(device string) error { return proc.IP("link set " + device + " " + what) })
}

// dropped returns how many datagrams netem has dropped, and how many sockets have had no room for, since the namespaces were made.
func dropped(h *proc.Hosts) (network, sockets int, err error) {
	err = atEachEnd(h, func(device string) error {
		text, err := exec.Command("tc", "-s", "-j", "qdisc", "show", "dev", device).Output()
		if err != nil {
			return fmt.Errorf("tc: %w", err)
		}
		var all []struct {
			Handle string `json:"handle"`
			Drops  int    `json:"drops"`
		}
		if err := json.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("tc: %w", err)
		}
		for _, q := range all {
			if q.Handle == "20:" {
				network += q.Drops
			}
		}
		return nil
	})
	count := func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		n, err := readSNMP(string(text), "Udp", "RcvbufErrors")
		sockets += n
		return err
	}
	return network, sockets, errors.Join(err, count(), h.OnClient(count), h.OnUpstream(count))
}

// readSNMP returns a counter of /proc/net/snmp, in which a line of names comes before each line of values.
func readSNMP(text, protocol, name string) (value int, err error) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != protocol+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if n == name && i < len(f) {
				_, err = fmt.Sscan(f[i], &value)
				return value, err
			}
		}
	}
	return 0, fmt.Errorf("%s of %s: %w", name, protocol, io.ErrUnexpectedEOF)
}
