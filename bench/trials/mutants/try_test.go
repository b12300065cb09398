package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A process that uses more than its time is ended, and that is told apart from one that fails.
func TestTimeOfTheProcessor(t *testing.T) {
	for _, c := range []struct {
		script string
		over   bool
	}{{"while :; do :; done", true}, {"exit 1", false}} {
		x := trial{binary: "/bin/sh", dir: t.TempDir()}
		if _, _, over, err := x.run(1, 100*time.Millisecond, []string{"-c", c.script}); over != c.over || err == nil {
			t.Errorf("%q: over %v, %v", c.script, over, err)
		}
	}
}

// A schedule of a random seed that ends a mutant, and fails without one, too, says nothing: others are tried.
func TestScheduleThatFailsAnyway(t *testing.T) {
	const fails = `echo "x_test.go:1: seed 7, step 3: wrong"; exit 1`
	for _, c := range []struct {
		without string
		want    outcome
	}{{"exit 0", dead}, {fails, lives}} {
		dir := t.TempDir()
		binary := filepath.Join(dir, "simulation")
		script := "#!/bin/sh\ncase \"$PENSTOCK_MUTANT $*\" in 0*simulate.seed\\ 7*) " + c.without + ";; 1*simulate=*) [ -e tried ] && exit; touch tried; " + fails + ";; esac\n"
		if err := os.WriteFile(binary, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		x := trial{binary: binary, dir: dir, most: time.Minute}
		if how, _ := x.try(&mutant{number: 1, file: "relay/cause.go"}); how != c.want {
			t.Errorf("without the mutant: %s: %s, want %s", c.without, how, c.want)
		}
	}
}

// Random schedules are of what a mutant's file is about.
func TestStages(t *testing.T) {
	for file, want := range map[string]string{
		"relay/stream_carry_linux.go": streams, "internal/pump/half_linux.go": streams, "relay/datagram_end_linux.go": datagrams, "relay/keep_linux.go": streams + datagrams, "": "",
	} {
		m, random, fixed := &mutant{file: file}, "", ""
		if file == "" {
			m = nil
		}
		for _, s := range stagesOf(m) {
			switch {
			case s.random:
				random += s.run
			case s.run != tests:
				fixed += s.run
			}
		}
		if all := streams + datagrams; random != want || fixed != want && !(m == nil && fixed == all) {
			t.Errorf("%q: %s and %s, want %s", file, fixed, random, want)
		}
	}
}
