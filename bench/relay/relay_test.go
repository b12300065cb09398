//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/rounds"
)

// TestMain lets the test binary act as the children that the harness starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"generate", "sink", "gocopy"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// newBench returns a bench with windows too short to mean anything. It includes a peer that is not
// installed.
func newBench(t *testing.T, peers, loads string) (*bench, *bytes.Buffer) {
	var out bytes.Buffer
	b := &bench{loops: []int{1}, verify: true, Settings: rounds.Settings{Rounds: 1, Tries: 1, Warm: 20 * time.Millisecond, Window: 50 * time.Millisecond, Out: &out,
		Place: proc.Place{Host: os.Geteuid() != 0, Congestion: "reno"}}} // only root may create namespaces
	end, err := b.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	b.report = b.tableAndVerdicts
	daemon := filepath.Join(b.Dir, "penstock")
	if err := peer.Build("", daemon, nil); err != nil {
		t.Fatal(err)
	}
	floor := filepath.Join(b.Dir, "floor")
	if strings.Contains(peers, "floor") {
		if err := peer.BuildFloor(floor); err != nil {
			t.Fatal(err)
		}
	}
	if b.peers, err = peer.Pick(peer.All(peer.Binaries{Penstock: daemon, Envoy: peer.FindEnvoy(), Self: b.Self, Floor: floor}), peers); err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(loads, ",") {
		spec, err := load.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		b.loads = append(b.loads, namedLoad{text: text, Spec: spec})
	}
	return b, &out
}

// check runs b and looks for a line for each load and subject that belong together.
func check(t *testing.T, b *bench, out *bytes.Buffer) {
	if err := b.run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, l := range b.loads {
		for _, s := range b.subjects() {
			line := fmt.Sprintf("BenchmarkRelay/load=%s/peer=%s/loops=%d\t", l.text, s.Name, s.loops)
			if strings.Contains(out.String(), line) != l.suits(s) {
				t.Errorf("a line %q is %v, want %v", line, !l.suits(s), l.suits(s))
			}
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestEveryLoad(t *testing.T) {
	b, out := newBench(t, "penstock,gocopy,floor", "bulk16k,bulk1mx2,pingpong8,pingpong16kx8,pingpong1,connect,idle50,udp1200x2,udpgso1200,udpping4,udpsession4")
	check(t, b, out)
	for _, l := range b.loads {
		if want := "# " + l.text + ", loops 1: "; strings.Contains(out.String(), want) == l.UDP() {
			t.Errorf("a verdict %q is %v, want %v", want, l.UDP(), !l.UDP())
		}
	}
}

func TestEveryPeer(t *testing.T) {
	b, out := newBench(t, "penstock,haproxy,haproxy-auto,nginx,nginx-rcvbuf,envoy,gocopy,floor", "pingpong8,udpping4")
	b.loops = []int{1, 2}
	check(t, b, out)
	for _, p := range b.peers {
		if err := p.Missing(); err != nil {
			t.Run(p.Name, func(t *testing.T) { t.Skip(err) })
		}
	}
}

// TestVeth checks that all loads work where client, relay and upstream are hosts of their own.
func TestVeth(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may create network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not installed")
	}
	b, out := newBench(t, "penstock", "bulk1m,pingpong8,udpping4")
	b.Place.Veth = true
	check(t, b, out)
}

// TestObserved checks that the observers' requests succeed: one that fails is an error of the run.
func TestObserved(t *testing.T) {
	b, out := newBench(t, "penstock-run,penstock-watched,penstock-logged", "connect")
	check(t, b, out)
	b.peers[1].Watch = func(context.Context, peer.Setup) error { return errors.New("no answer") }
	if _, err := b.once(b.loads[0], subject{b.peers[1], 1}, false); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("an observer without an answer gave %v", err)
	}
}

// TestKept checks that the flows of every load that lasts are held before its window, by both kinds
// of keeper, and those of short ones by neither count.
func TestKept(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, "penstock-keep,penstock-keep0,penstock-alone", "bulk16kx2,pingpong8,connect,idle50,udp1200x2,udpping4")
	check(t, b, out)
	for _, l := range b.loads {
		for line := range strings.Lines(out.String()) {
			if l.Kind == load.Connect || !strings.HasPrefix(line, "BenchmarkRelay/load="+l.text+"/") {
				continue
			}
			conns := l.Conns
			if l.Kind == load.Idle {
				conns++ // the one that is open before the first reading
			}
			want := fmt.Sprintf("\t%d settled\n", conns)
			if strings.HasSuffix(line, want) == strings.Contains(line, "penstock-alone") {
				t.Errorf("want %q with a keeper, in %s", want, line)
			}
		}
	}
}

// TestSettle checks that the costs of holding are computed.
func TestSettle(t *testing.T) {
	t.Parallel()
	b, out := newBench(t, "penstock-keep5,penstock-alone", "settle8")
	check(t, b, out)
	if want := "# settle8, loops 1: penstock-keep5 - penstock-alone, us per flow, medians: "; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out)
	}
}

// TestNotInstalled checks that the output names a relay that is not installed.
func TestNotInstalled(t *testing.T) {
	b, out := newBench(t, "penstock,envoy", "pingpong1")
	b.peers[1] = peer.Penstock("elsewhere", "", filepath.Join(b.Dir, "nothing"))
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if want := "# elsewhere  not installed"; !strings.Contains(out.String(), want) {
		t.Errorf("no line %q in\n%s", want, out)
	}
}

// TestFailureIsShown runs the harness with a relay that does not start.
func TestFailureIsShown(t *testing.T) {
	b, _ := newBench(t, "penstock", "pingpong1")
	broken := subject{peer.Penstock("broken", "", "/bin/false"), 1}
	if _, err := b.once(b.loads[0], broken, false); err == nil || !strings.Contains(err.Error(), "ended at once") {
		t.Errorf("a relay that ends at once gave %v", err)
	}
}
