//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "nodes" {
		main()
		return
	}
	testnet.Main(m)
}

// TestScale runs the program with few relays, so that it does not rot; its figures mean nothing.
func TestScale(t *testing.T) {
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("ss (iproute2) is not installed")
	}
	t.Parallel()
	for _, server := range []string{"etcd", "ads"} {
		t.Run("server="+server, func(t *testing.T) {
			t.Parallel()
			s := settings{server: server, daemons: 2, nodes: 10, perProcess: 6, publishes: 2, gap: 10 * time.Millisecond, rest: 300 * time.Millisecond,
				away: 200 * time.Millisecond, storms: 1, stagger: time.Millisecond, patience: testnet.Patience, padding: 1000}
			var out bytes.Buffer
			if err := s.run(&out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for name, want := range map[string]int{"BenchmarkPublish/": s.publishes, "BenchmarkReconnect/": s.storms} {
				if got := strings.Count(out.String(), name); got != want {
					t.Errorf("%d lines of %s, want %d:\n%s", got, name, want, out.String())
				}
			}
		})
	}
}

// TestChecks does so for health checks that daemons share.
func TestChecks(t *testing.T) {
	t.Parallel()
	s := settings{server: "etcd", daemons: 3, members: 2, shared: 1, every: 100 * time.Millisecond, rest: 300 * time.Millisecond, storms: 1, patience: testnet.Patience, padding: 1000}
	var out bytes.Buffer
	if err := s.run(&out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for name, want := range map[string]int{"BenchmarkChecks/": 1, "BenchmarkMember/": 2} {
		if got := strings.Count(out.String(), name); got != want {
			t.Errorf("%d lines of %s, want %d:\n%s", got, name, want, out.String())
		}
	}
}

func TestTimes(t *testing.T) {
	var all times
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	if got := all.String(); got != "p50 51ms, p99 100ms, longest 100ms (of 100)" {
		t.Error(got)
	}
	if got := (times{}).String(); got != "none" {
		t.Error(got)
	}
}

func TestNumberOf(t *testing.T) {
	s := settings{padding: 500}
	for text, want := range map[string]int{s.text(17): 17, "{}": 0, "log: {}\ndrain: 5s": 5, "drain: ": 0} {
		if got := numberOf([]byte(text)); got != want {
			t.Errorf("%.30q: %d, want %d", text, got, want)
		}
	}
}
