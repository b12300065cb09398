//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/trial"
)

// TestMain lets the test binary act as the child that a round is run in.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "round" || os.Args[1] == "pause-round" || os.Args[1] == "network-round") {
		main()
		return
	}
	var err error
	if folder, err = os.MkdirTemp("", "outlive-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// run runs events in rounds too short to mean anything.
func run(t *testing.T, relay, events string) string {
	b := &bench{TCP: 10, UDP: 5, New: 20 * time.Millisecond, Settle: 300 * time.Millisecond, Watch: 700 * time.Millisecond, Deadline: 300 * time.Millisecond}
	b.Penstock = build(t)
	var out bytes.Buffer
	// Only root may create namespaces.
	b.Out = &out
	if err := b.run(strings.Split(relay, ","), strings.Split(events, ","), 1, os.Geteuid() != 0); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return out.String()
}

// Without a keeper a crash ends every flow, and the count says so.
func TestCrashAlone(t *testing.T) {
	t.Parallel()
	out := run(t, "penstock-alone", "crash")
	if !strings.Contains(out, "\t10 tcp-flows\t0 tcp-alive\t") || !strings.Contains(out, "\t5 udp-flows\t0 udp-alive\t") || !strings.Contains(out, "\t2 starts\t") {
		t.Error(out)
	}
}

// Every connection lives through both events, and those that wait are seen to.
func TestPause(t *testing.T) {
	t.Parallel()
	p := &pauseBench{Conns: 40, Active: 10, Around: 50 * time.Millisecond, rounds: 1, host: os.Geteuid() != 0, events: []string{"crash", "upgrade"}}
	p.Penstock = build(t)
	var out bytes.Buffer
	p.Out = &out
	if err := p.run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, event := range p.events {
		if !strings.Contains(out.String(), "BenchmarkPause/event="+event+"/conns=40/active=10\t1\t40 settled\t0 cut\t") {
			t.Errorf("%s: want 40 flows settled and none cut\n%s", event, &out)
		}
	}
	if strings.Contains(out.String(), "| crash | first-byte-p50-ms | 0 |") {
		t.Errorf("no connection has waited\n%s", &out)
	}
}

// Each peer goes through everything that it has.
func TestPeers(t *testing.T) {
	for _, name := range []string{"haproxy", "nginx"} {
		r, _ := find(relays, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := r.missing(&bench{}); err != nil {
				t.Skip(err)
			}
			out := run(t, name, "crash,upgrade,upgrade-deadline,ten")
			for event, want := range map[string]string{"crash": "0 tcp-alive", "upgrade": "10 tcp-alive"} {
				if !strings.Contains(out, "event="+event+"/relay="+name+"\t1\t10 tcp-flows\t"+want+"\t") {
					t.Errorf("%s: want %s\n%s", event, want, out)
				}
			}
		})
	}
}

// build builds the daemon, once for all tests.
func build(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	folder string
	built  = sync.OnceValues(func() (string, error) { return trial.Penstock("", folder) })
)
