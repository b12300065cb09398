package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const source = `package relay

func sample(a, b int, ok bool) int {
	n := a + 1
	if a < b && ok {
		a = b - 1
		return a
	}
	for a == 3 {
		a++
		if ok {
			break
		}
	}
	go func() { a = 2 }()
	return n
}
`

// Each line has its mutants, and a file with all of them is valid and has as many lines.
func TestCandidates(t *testing.T) {
	reached, err := parseReach([]byte("mode: set\n" + module + "/relay/sample.go:3.38,16.2 9 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := candidatesOf("relay/sample.go", []byte(source), reached)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, line := range lines {
		for _, m := range line {
			told = append(told, strings.TrimSpace(m.kind+": "+m.old+" => "+m.new))
		}
	}
	for _, want := range []string{
		"negated: a < b && ok => !(a < b && ok)",
		"swapped: a < b && ok => a < b || ok",
		"swapped: a < b => a <= b",
		"left out: a = b - 1 =>",
		"constant: a = b - 1 => a = b - 2",
		"left out: return a =>",
		"swapped: a == 3 => a != 3",
		"constant: a == 3 => a == 4",
		"left out: a++ =>",
		"left out: break =>",
	} {
		if !strings.Contains(strings.Join(told, "\n")+"\n", want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(told, "\n"))
	}
	for seed := range uint64(20) {
		chosen := choose(draw(seed, lines), 100, nil)
		for i, m := range chosen {
			m.number = i + 1
		}
		text := withMutants("relay/sample.go", source, chosen)
		if _, err := parser.ParseFile(token.NewFileSet(), "sample.go", text, 0); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, text)
		}
		if got, want := strings.Count(text, "\n"), strings.Count(source, "\n"); got != want {
			t.Errorf("seed %d: %d lines, and there were %d", seed, got, want)
		}
	}
}

// A block that the simulation does not run has none.
func TestUnreached(t *testing.T) {
	reached, err := parseReach([]byte(module + "/relay/sample.go:3.38,16.2 9 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := candidatesOf("relay/sample.go", []byte(source), reached)
	if err != nil || len(lines) > 0 || reached.has("relay/sample.go") {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

func TestSome(t *testing.T) {
	all := make([]*mutant, 10)
	for i := range all {
		all[i] = &mutant{number: i + 1}
	}
	if chosen, err := some(all, "3,5-7"); err != nil || len(chosen) != 4 || chosen[0].number != 3 || chosen[3].number != 7 {
		t.Errorf("%v, %v", chosen, err)
	}
	for _, list := range []string{"0", "11", "3-", "7-5", "x"} {
		if _, err := some(all, list); err == nil {
			t.Errorf("%s is taken", list)
		}
	}
}

// Those that live in an output are found again, where their lines are now.
func TestSurvivors(t *testing.T) {
	was, far, other := &mutant{file: "relay/x.go", line: 12, kind: "swapped", old: "a < b", new: "a <= b"}, &mutant{file: "relay/x.go", line: 40, kind: "swapped", old: "a < b", new: "a <= b"},
		&mutant{file: "relay/y.go", line: 10, kind: "left out", old: "f()"}
	lines := [][]*mutant{{far}, {was}, {other}}
	const output = "dead      0.1 s    1  relay/x.go:9  left out: g() =>   x_test.go:1\nlives    60.2 s   17  relay/x.go:10  swapped: a < b => a <= b  \nlives    60.1 s  100  relay/y.go:10  left out: f() =>   \n"
	if all, err := survivors(output, lines); err != nil || !slices.Equal(all, []*mutant{was, other}) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := survivors(output, lines[:1]); err == nil {
		t.Error("one that is not there is found")
	}
}
