//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/registry"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

func TestMain(m *testing.M) {
	actBad()
	if dir := os.Getenv(leakyEnv); dir != "" {
		os.Exit(leaky(dir))
	}
	world.Patience = 2 * testwait.Patience // a worker that is stopped while it starts is killed after startTimeout only, and clients wait for the next one
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// TestWithoutKills runs the load through the daemon, and nothing happens to it.
func TestWithoutKills(t *testing.T) {
	runSettings(t, settings{duration: 3 * time.Second})
}

// TestKills is the short form of make chaos.
func TestKills(t *testing.T) {
	runSettings(t, settings{kills: 6, every: 700 * ms, keepAfter: 200 * ms, slack: 5 * time.Second, watchdog: 20 * time.Second})
}

// TestChanges is the short form of make churn.
func TestChanges(t *testing.T) {
	binary := buildDaemon(t)
	for _, source := range registry.Kinds() {
		t.Run("source="+source, func(t *testing.T) {
			if testnet.RaceEnabled && source != "etcd" {
				t.Skip("under the race detector with etcd only: the load is the same, and each has a daemon of its own")
			}
			t.Parallel()
			s := settings{binary: binary, changes: 20, source: source, between: 50 * ms, restarts: 1}
			if source != "etcd" {
				s.changes, s.restarts = 10, 0
			}
			runSettings(t, s)
		})
	}
}

// runSettings runs the program with the daemon of this checkout, which has the race detector if the test
// has, and fails if the balance is not good.
func runSettings(t *testing.T, s settings) string {
	t.Helper()
	if s.binary == "" {
		s.binary = buildDaemon(t)
	}
	if testnet.RaceEnabled {
		s.buildFlags = []string{"-race"} // of binaries to upgrade to
	}
	s.flows, s.loops, s.clients, s.seed = 1, 2, 10*ms, rand.Uint64()>>1
	s.startTimeout = testwait.Patience
	if s.soak == 0 { // at its end nothing may be left
		s.idle = testwait.Patience // an answer may come that late, and there are too few clients to fill the table
	}
	var out bytes.Buffer
	good, err := s.run(&out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !good {
		t.Errorf("the balance is not good:\n%s", out.String())
	}
	return out.String()
}

// built is the folder of the daemon that the tests run, once there is one.
var built string

// makeDaemon builds the daemon of this checkout, once for all tests.
var makeDaemon = sync.OnceValues(func() (binary string, err error) {
	if built, err = os.MkdirTemp("", "penstock-chaos-"); err != nil {
		return "", err
	}
	var flags []string
	if testnet.RaceEnabled {
		flags = []string{"-race"}
	}
	binary = filepath.Join(built, "penstock")
	return binary, trial.Build(binary, flags...)
})

func buildDaemon(t *testing.T) string {
	t.Helper()
	binary, err := makeDaemon()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}
