//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
)

// TestMain lets the test binary be the children that the harness starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"generate", "sink", "gocopy"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestEveryPeerUnderEveryLoad runs the whole program with windows too short to
// mean anything. A peer that is not installed is left out and named.
func TestEveryPeerUnderEveryLoad(t *testing.T) {
	files, err := proc.RaiseFiles(4096)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := bench{rounds: 1, loops: 1, files: files, warm: 20 * time.Millisecond, window: 50 * time.Millisecond, verify: true,
		self: self, dir: t.TempDir(), out: &out}
	// Only root may make the namespaces.
	b.place = place{host: os.Geteuid() != 0, congestion: "reno"}
	daemon, err := build(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peer.All(peer.Binaries{Penstock: daemon, Self: self}) {
		if _, err := exec.LookPath(p.Ask[0]); err != nil {
			t.Logf("without %s: %v", p.Name, err)
			continue
		}
		b.peers = append(b.peers, p)
	}
	for _, text := range []string{"bulk16k", "bulk1mx2", "pingpong8", "pingpong1", "connect", "idle50", "udp1200x2", "udpgso1200", "udpping4"} {
		spec, err := load.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b.loads = append(b.loads, namedLoad{text, spec})
	}
	if err := b.run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, l := range b.loads {
		for _, p := range b.peers {
			line := "BenchmarkRelay/load=" + l.text + "/peer=" + p.Name + "/loops=1\t"
			if strings.Contains(out.String(), line) != l.suits(p) {
				t.Errorf("a line %q is %v, want %v", line, !l.suits(p), l.suits(p))
			}
		}
		if want := "# " + l.text + ": "; !strings.Contains(out.String(), want) {
			t.Errorf("no verdict %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// TestFailureIsShown holds the harness against a relay that does not start.
func TestFailureIsShown(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := bench{rounds: 1, loops: 1, files: 4096, self: self, dir: t.TempDir(), out: &out, place: place{host: true},
		peers: peer.All(peer.Binaries{Penstock: "/bin/false", Self: self})[:1]}
	spec, err := load.Parse("pingpong1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.once(namedLoad{"pingpong1", spec}, b.peers[0], false); err == nil || !strings.Contains(err.Error(), "ended at once") {
		t.Errorf("a relay that ends at once gave %v", err)
	}
}
