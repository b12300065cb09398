//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestReadSNMP(t *testing.T) {
	const text = "Tcp: RtoAlgorithm RtoMin\nTcp: 1 200\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 5 1 2 7 3\nUdpLite: RcvbufErrors\nUdpLite: 9\n"
	if n, err := readSNMP(text, "Udp", "RcvbufErrors"); n != 3 || err != nil {
		t.Error(n, err)
	}
	for _, name := range []string{"SndbufErrors", ""} {
		if n, err := readSNMP(text, "Udp", name); err == nil {
			t.Error(name, n)
		}
	}
}

func TestFault(t *testing.T) {
	lossy, twice := network{name: "lossy"}, network{name: "twice", twice: true}
	well := networkResult{TCP: 2, Alive: 2, UDP: 2, UDPAlive: 2, Asked: 9}
	for _, c := range []struct {
		want   string
		n      network
		change func(r *networkResult)
	}{
		{"", lossy, func(r *networkResult) {}},
		{"", lossy, func(r *networkResult) { r.Lost, r.Network, r.Sockets = 3, 2, 1 }},
		{"", lossy, func(r *networkResult) { r.Lost, r.Away = 3, 3 }},
		{"", twice, func(r *networkResult) { r.Repeated = 1 }},
		{"datagrams lost", lossy, func(r *networkResult) { r.Lost, r.Network = 3, 2 }},
		{"datagrams repeated", lossy, func(r *networkResult) { r.Repeated = 1 }},
		{"flows ended", lossy, func(r *networkResult) { r.Alive, r.Cut = 1, 1 }},
		{"flows ended", lossy, func(r *networkResult) { r.UDPAlive = 1 }},
		{"wrong bytes", twice, func(r *networkResult) { r.Wrong, r.Alive = 1, 1 }},
	} {
		r := well
		c.change(&r)
		if got := r.fault(c.n); got != c.want {
			t.Errorf("%+v: %q, want %q", r, got, c.want)
		}
	}
}

// Over links that change, flows outlive two kills.
func TestNetworks(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("it needs root and ip(8)")
	}
	b := &networksBench{Times: 2, Every: 300 * time.Millisecond, Away: 600 * time.Millisecond}
	b.TCP, b.UDP, b.Penstock = 3, 3, build(t)
	var out bytes.Buffer
	b.Out = &out
	if err := b.runAll([]string{"mtu", "away"}, []string{"penstock"}, []string{"kills"}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
}
