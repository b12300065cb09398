//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/trial"
	"github.com/penstock/penstock/bench/internal/world"
)

// TestSoak is the short form of make soak.
func TestSoak(t *testing.T) {
	t.Parallel() // it mostly waits: for the ends of datagram flows, and of the drain
	runSettings(t, settings{soak: 4 * time.Second, rate: 8, growth: 4, report: time.Second, sampling: 100 * ms, between: 50 * ms, every: 300 * ms,
		keepAfter: 200 * ms, slack: 20 * time.Second, watchdog: 20 * time.Second})
}

// A slope is found as what it is, with the interval that it has: in 19 of 20 series of noise it contains 0, also if
// neighbours resemble each other.
func TestTrend(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	const runs, windows = 400, 60
	for _, c := range []struct {
		name  string
		slope float64 // per second
		alike float64 // correlation of neighbours
		most  int     // intervals that may miss the slope
	}{
		{"flat", 0, 0, runs / 8},
		{"growing", 0.5, 0, runs / 8},
		{"alike", 0, 0.6, runs / 5}, // r is estimated from few points
		{"alike and growing", -2, 0.6, runs / 5},
	} {
		missed := 0
		for range runs {
			s := series{window: time.Second}
			at := time.Duration(0)
			for life := range 3 {
				level, noise := 1000*r.Float64(), 0.0
				for range windows {
					noise = c.alike*noise + r.NormFloat64()
					s.add(fmt.Sprint(life), at, level+c.slope*at.Seconds()+3*noise)
					at += time.Second
				}
			}
			got, ok := s.trend()
			if !ok || got.segments != 3 || got.low > got.slope || got.high < got.slope {
				t.Fatalf("seed %d: %+v, %v", seed, got, ok)
			}
			if got.low > c.slope || got.high < c.slope {
				missed++
			}
		}
		if missed > c.most {
			t.Errorf("%s: %d of %d intervals miss the slope, seed %d", c.name, missed, runs, seed)
		}
	}
}

// Too little to tell is no slope.
func TestTrendOfLittle(t *testing.T) {
	s := series{window: time.Second}
	if _, ok := s.trend(); ok {
		t.Error("a slope of nothing")
	}
	for i := range 200 {
		s.add(fmt.Sprint(i/4), time.Duration(i)*time.Second, float64(i))
	}
	if got, ok := s.trend(); ok {
		t.Errorf("a slope of 50 short lives: %+v", got)
	}
}

func TestStudent(t *testing.T) {
	for free, want := range map[float64]float64{1: 12.706, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 1000: 1.962} {
		if got := student(free); got < want-0.01 || got > want+0.01 {
			t.Errorf("%v degrees of freedom: %v, want %v", free, got, want)
		}
	}
}

// leakyEnv makes this test binary a daemon that leaks.
const leakyEnv = "PENSTOCK_CHAOS_LEAKY"

// leaky plays a daemon that has metrics at the socket of a folder, and that leaks what a request asks for.
func leaky(dir string) int {
	l, err := net.Listen("unix", filepath.Join(dir, "admin"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var files []*os.File
	var memory [][]byte
	leased, flows := 0, 0
	http.HandleFunc("/leak/{what}/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		switch r.PathValue("what") {
		case "descriptor":
			for range n {
				f, _ := os.Open("/dev/null")
				files = append(files, f)
			}
		case "goroutine":
			for range n {
				go func() { select {} }()
			}
		case "kib":
			b := make([]byte, n<<10)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			memory = append(memory, b)
		case "pipe":
			leased += n
		case "flow":
			flows += n
		}
	})
	http.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		debug.FreeOSMemory() // so that its memory is what it leaks
		fmt.Fprintf(w, "go_goroutines %d\npenstock_pipes_open %d\npenstock_pipes_leased %d\npenstock_flows_open{listener=\"l\"} %d\n", runtime.NumGoroutine(), leased, leased, flows)
	})
	http.HandleFunc("/debug/pprof/goroutine", func(w http.ResponseWriter, r *http.Request) { pprof.Lookup("goroutine").WriteTo(w, 2) })
	fmt.Println("ready")
	http.Serve(l, nil)
	runtime.KeepAlive(files)
	runtime.KeepAlive(memory)
	return 0
}

// startLeaky starts such a daemon.
func startLeaky(t *testing.T) *world.Daemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "chaos") // short: a Unix socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &world.Daemon{Daemon: trial.DaemonAt(exe, dir)}
	d.Env = []string{leakyEnv + "=" + dir, "GOMAXPROCS=1"} // so a goroutine that a request makes does not run before the request's own waits
	if err := d.Begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	if err := proc.Wait("its metrics", world.Patience, func() bool { _, err := d.Get("/metrics"); return err == nil }); err != nil {
		t.Fatal(err)
	}
	return d
}

func mustCensus(t *testing.T, d *world.Daemon) world.Census {
	t.Helper()
	c, err := world.LeastCensus(d.CensusAtRest)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each thing that a process leaks is found, and named.
func TestLeaksAreFound(t *testing.T) {
	d := startLeaky(t)
	before := mustCensus(t, d)
	if _, over, err := world.SettleCensus(&before, d.CensusAtRest, world.Patience); err != nil || len(over) > 0 {
		t.Fatalf("without a leak: %v, %v", over, err)
	}
	for _, c := range []struct {
		what string
		want []string
	}{
		{"descriptor/1", []string{"descriptors of the worker"}},
		{"goroutine/1", []string{"goroutines of the worker"}},
		{"pipe/1", []string{"pipes that a flow has"}},
		{"flow/2", []string{"open flows: 2"}},
	} {
		before := mustCensus(t, d)
		if _, err := d.Ask(http.MethodPost, "/leak/"+c.what, ""); err != nil {
			t.Fatal(err)
		}
		after, over, err := world.SettleCensus(&before, d.CensusAtRest, 300*ms)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(over, func(line string) bool { return strings.Contains(line, want) }) {
				t.Errorf("%s: left over: %q, %+v", c.what, over, after)
			}
		}
	}
}

// Memory that grows is found, and memory that does not is not.
func TestGrowthIsFound(t *testing.T) {
	d := startLeaky(t)
	for _, grows := range []bool{false, true} { // 1,800 MiB/h; the least that a heap of nothing does is far less
		b := newSoakBalance(time.Second, 0, 200)
		b.before = mustCensus(t, d)
		for i := range 30 { // half a minute, as far as the balance knows
			if grows {
				if _, err := d.Ask(http.MethodPost, "/leak/kib/512", ""); err != nil {
					t.Fatal(err)
				}
			}
			c, err := d.Census()
			if err != nil {
				t.Fatal(err)
			}
			b.sample(&c, time.Duration(i)*time.Second, 0)
		}
		var out strings.Builder
		faults := b.print(&out, &b.before, nil)
		if found := slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, "the RSS of the worker grows") }); found != grows {
			t.Errorf("grows: %v, found: %q\n%s", grows, faults, out.String())
		}
	}
}
