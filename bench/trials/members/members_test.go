//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/internal/report"
)

// TestMembers runs the program with few members, so that it does not rot; its figures mean nothing.
func TestMembers(t *testing.T) {
	s := settings{members: 50, changes: 50, rate: 50, rounds: 1, loops: 1, warm: 100 * time.Millisecond, window: 500 * time.Millisecond, balance: "p2c"}
	var out bytes.Buffer
	s.Out = &out
	if err := s.run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	r, err := report.Parse(strings.NewReader(out.String()))
	if err != nil || len(r.Rounds) != 4 {
		t.Fatalf("%v, %d lines:\n%s", err, len(r.Rounds), out.String())
	}
	for _, round := range r.Rounds {
		if (round.Keys["rate"] == "0") != (round.Figures["connects"] == 0) || (round.Keys["changes"] == "0") != (round.Figures["changes"] == 0) || round.Figures["failed"] != 0 {
			t.Errorf("%v: %v", round.Keys, round.Figures)
		}
	}
}
