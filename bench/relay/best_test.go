//go:build linux

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
)

// TestBest checks the file of the repository.
func TestBest(t *testing.T) {
	rows, err := readBest("../best.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, r := range rows {
		if _, err := load.Parse(r.load); err != nil {
			t.Error(err)
		}
		if seen[r.load] {
			t.Errorf("two rows for %s", r.load)
		}
		seen[r.load] = true
	}
	if len(rows) == 0 {
		t.Error("no rows")
	}
}

func TestRowsOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "best.txt")
	text := "# comment\n\nbulk1m aaaa 2026-01-02 0.98 haproxy\nconnect bbbb 2026-01-03 - -\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	best, err := readBest(path)
	if err != nil {
		t.Fatal(err)
	}
	bulk := bestRow{"bulk1m", "aaaa", "2026-01-02", "0.98", "haproxy"}
	connect := bestRow{load: "connect", commit: "bbbb", date: "2026-01-03"}
	for _, c := range []struct {
		loads, base string
		want        []bestRow
	}{
		{"", "", []bestRow{bulk, connect}},
		{"connect", "", []bestRow{connect}},
		{"", "HEAD~1", []bestRow{{load: "bulk1m", commit: "HEAD~1"}, {load: "connect", commit: "HEAD~1"}}},
		{"udp100", "HEAD~1", []bestRow{{load: "udp100", commit: "HEAD~1"}}},
	} {
		got, err := rowsOf(best, c.loads, c.base)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q, base %q: %v, %v; want %v", c.loads, c.base, got, err, c.want)
		}
	}
	if _, err := rowsOf(best, "udp100", ""); err == nil {
		t.Error("a load without a row needs no base")
	}
	if got, want := bulk.String(), "aaaa of 2026-01-02, which was 0.98 of haproxy"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.WriteFile(path, []byte("bulk1m aaaa\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readBest(path); err == nil || !strings.Contains(err.Error(), "best.txt:1: want LOAD COMMIT") {
		t.Errorf("half a row gave %v", err)
	}
}

// TestBaseOfEachLoad runs loads that are compared with different commits: each is measured with its own and no other.
func TestBaseOfEachLoad(t *testing.T) {
	b, out := newBench(t, "penstock", "pingpong8,connect8")
	daemon := filepath.Join(b.Dir, "penstock")
	b.peers = nil
	for _, name := range []string{newName, "aaaa", "bbbb"} {
		b.peers = append(b.peers, peer.Penstock(name, "", daemon))
	}
	b.loads[0].base, b.loads[1].base = "aaaa", "bbbb"
	check(t, b, out)
	if strings.Contains(out.String(), "load=pingpong8/peer=bbbb") || !strings.Contains(out.String(), "load=connect8/peer=bbbb") {
		t.Error(out)
	}
}
