//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/rounds"
)

// TestMain lets the test binary act as the children that the program starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"generate", "sink", "gotls", "engine"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// short returns a run with few connections, in windows too short to mean anything.
func short(t *testing.T, names, relays string) (*bench, *bytes.Buffer) {
	var out bytes.Buffer
	b := &bench{Settings: rounds.Settings{Rounds: 1, Tries: 1, Warm: time.Millisecond, Window: 10 * time.Millisecond, Out: &out, Place: proc.Place{Host: os.Geteuid() != 0, Congestion: "reno"}}}
	end, err := b.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	if b.rows, err = pick(names); err != nil {
		t.Fatal(err)
	}
	for i := range b.rows {
		b.rows[i].spec.Conns = min(4, b.rows[i].spec.Conns)
	}
	if b.peers, err = peer.Pick(peer.Secured(peer.Binaries{Penstock: "/nonexistent", Envoy: peer.FindEnvoy(), Self: b.Self}), relays); err != nil {
		t.Fatal(err)
	}
	return b, &out
}

// Each kind of load goes through the relay that needs nothing installed, in each mode.
func TestEveryLoad(t *testing.T) {
	t.Parallel()
	b, out := short(t, "full-ecdsa-13,resume-ecdsa-12,down,reencrypt-up,pingpong64,idle-used,pass-full,plain-connect", "gotls")
	if err := b.run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range b.rows {
		if line := fmt.Sprintf("BenchmarkTLS/row=%s/relay=gotls\t", r.name); !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// Each relay that is installed takes its configuration of each mode.
func TestEveryRelay(t *testing.T) {
	t.Parallel()
	b, out := short(t, "full-ecdsa-13,reencrypt-down,pass-up", "engine,nginx,nginx-16k,haproxy")
	if err := b.run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range b.peers {
		if line := "BenchmarkTLS/row=pass-up/relay=" + p.Name + "\t"; p.Installed() && !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// A bar is judged beside the right relay, with the right sign.
func TestVerdict(t *testing.T) {
	b := &bench{peers: peer.Secured(peer.Binaries{})}
	result := func(ops int64) []load.Result {
		return []load.Result{{Ops: ops, Bytes: ops, RelayCPU: time.Second, Window: time.Second}}
	}
	results := map[string][]load.Result{"penstock": result(800), "nginx": result(500), "nginx-16k": result(600), "haproxy": result(900), "envoy": result(1000), "gotls": result(2000)}
	for name, want := range map[string]string{
		"full-ecdsa-13": "of penstock / envoy = 0.800 (/ gotls = 0.400); bar: at least 0.8 of the best: holds",
		"full-rsa-13":   "of penstock / envoy = 0.800 (/ gotls = 0.400); no bar",
		"up":            "of penstock / nginx-16k = 0.750 (/ gotls = 2.500); bar: at most 1.1 of nginx: holds",
		"pingpong1":     "of penstock / nginx-16k = 0.750 (/ gotls = 2.500); bar: at most 1 of nginx: holds",
	} {
		picked, err := pick(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.verdict(picked[0], results); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	results["envoy"], results["nginx"] = result(1001), result(2000)
	for name, want := range map[string]string{"full-ecdsa-13": "MISSED", "up": "MISSED"} {
		picked, _ := pick(name)
		if got := b.verdict(picked[0], results); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	results["nginx"][0].Others = time.Second / 2
	picked, _ := pick("up")
	if got := b.verdict(picked[0], results); !strings.HasSuffix(got, "[DISTURBED: others took more than 10% in 1 of 6 measurements]") {
		t.Error(got)
	}
}
