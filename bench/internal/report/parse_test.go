package report

import (
	"slices"
	"strings"
	"testing"
)

const sample = `date: 2026-11-21 10:00:00
commit: 0123456789ab
haproxy: HAProxy version 2.6.12: it has a colon
# haproxy runs: haproxy -db

# load idle: 10 connections
BenchmarkRelay/load=idle/peer=penstock/loops=1	10	0.5 KB/conn	10 conns
BenchmarkRelay/load=idle/peer=penstock/loops=1	10	0.7 KB/conn	10 conns
BenchmarkRelay/load=idle/peer=haproxy/loops=1	10	3.3 KB/conn	10 conns
BenchmarkBroken	1	x KB/conn
# FAILED: nginx, round 1: it ended
`

func TestParse(t *testing.T) {
	r, err := Parse(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	if r.Config["commit"] != "0123456789ab" || r.Config["haproxy"] != "HAProxy version 2.6.12: it has a colon" || len(r.Config) != 3 {
		t.Errorf("configuration %v", r.Config)
	}
	if got := r.Column("KB/conn", map[string]string{"load": "idle", "peer": "penstock"}); !slices.Equal(got, []float64{0.5, 0.7}) {
		t.Errorf("column %v", got)
	}
	if got := r.Column("p99-us", map[string]string{"load": "idle"}); got != nil {
		t.Errorf("a unit that no line has gave %v", got)
	}
	if len(r.Rounds) != 3 {
		t.Errorf("%d rounds, want 3", len(r.Rounds))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("Benchmark 1 NaN x")
	f.Fuzz(func(t *testing.T, text string) {
		r, _ := Parse(strings.NewReader(text))
		for _, round := range r.Rounds {
			if len(round.Figures) == 0 {
				t.Errorf("a round without a figure in %q", text)
			}
		}
	})
}
