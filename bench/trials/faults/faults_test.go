//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/internal/world"
)

// TestMain lets the test binary act as the processes that the program starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && parts[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestShort does some faults to penstock, in the short form, which judges no times.
func TestShort(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8) of iproute2:", err)
	}
	probe := exec.Command("true")
	probe.SysProcAttr = isolated()
	if err := probe.Run(); err != nil {
		t.Skip("this user may not make namespaces:", err)
	}
	var out bytes.Buffer
	r := &run{out: &out, short: true, parallel: 3, dir: t.TempDir(), relays: []*relay{penstock}}
	for _, k := range kinds {
		if k.short {
			r.kinds = append(r.kinds, k)
		}
	}
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	for _, o := range r.measureAll() {
		if !o.Held {
			t.Errorf("%s: %s\n%s", o.Kind, o.short(), o.json())
		}
	}
}

// TestKinds: every kind is complete, and no two have the same name.
func TestKinds(t *testing.T) {
	seen := make(map[string]bool)
	parts := make(map[string]bool)
	last := ""
	for _, k := range kinds {
		if k.name == "" || k.title == "" || k.fault == nil || k.expect == nil || !strings.HasSuffix(strings.TrimSuffix(k.what, ")"), ".") || !strings.HasSuffix(k.want, ".") {
			t.Errorf("kind %q is not complete", k.name)
		}
		if seen[k.name] || seen[anchor(k.title)] {
			t.Errorf("kind %q or its title exists twice", k.name)
		}
		seen[k.name], seen[anchor(k.title)] = true, true
		if k.part != last && parts[k.part] {
			t.Errorf("part %q is in two places", k.part)
		}
		parts[k.part], last = true, k.part
	}
}

// good is an outcome with which every expectation is met that does not look for a figure of its own.
func good(k *kind) *outcome {
	c := clients{Arrivals: world.Arrivals{Tried: 100, Served: 100}, P50: 1, P99: 2, Max: 3}
	return &outcome{Kind: k.name, Relay: "penstock", Old: old{Streams: 24, Bytes: 1 << 20, Datagrams: 16, Sent: 1000, Answered: 1000},
		New: newByPhase{c, c, c}, Dgm: newByPhase{c, c, c}, Back: 1, Lasted: 4, Notes: map[string]float64{}, Counters: map[string]float64{}}
}

// TestExpectations: no kind holds if old flows got wrong bytes, and each fails of that alone.
func TestExpectations(t *testing.T) {
	for _, k := range kinds {
		o := good(k)
		o.Old.Wrong = 1
		o.judge(k, penstock, false)
		if o.Held || !strings.Contains(strings.Join(o.Bad, ";"), "wrong bytes") {
			t.Errorf("%s: with wrong bytes: %v", k.name, o.Bad)
		}
	}
}

// TestDocument: the document has every kind, and no line of a table is longer than its head.
func TestDocument(t *testing.T) {
	var all []*outcome
	for i, k := range kinds {
		for j, r := range relays {
			o := good(k)
			o.Relay = r.name
			switch (i + j) % 3 {
			case 0:
				o.Absent = "has none"
			case 1:
				o.Bad = []string{"1 of 2 | lost (EOF)"}
			default:
				o.Held = true
			}
			all = append(all, o)
		}
	}
	text := document("a machine", all)
	for _, k := range kinds {
		if !strings.Contains(text, "\n### "+k.title+"\n") || !strings.Contains(text, "(#"+anchor(k.title)+")") {
			t.Errorf("the document lacks %s", k.name)
		}
	}
	cells := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|") - strings.Count(line, `\|`)
		if cells > 0 && n != cells {
			t.Errorf("a line of a table has %d cells, not %d: %s", n, cells, line)
		}
		cells = n
	}
	var out bytes.Buffer
	printTable(&out, all)
	if n := strings.Count(out.String(), "\n"); n < len(all) {
		t.Errorf("the table has %d lines for %d outcomes", n, len(all))
	}
}
