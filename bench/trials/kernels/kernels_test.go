//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestResult(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doctor, tests := jobs[0], testsOf("a/b", "")
	write("doctor.out", "kernel\n  ok       release    6.1\n  ok       pipes of 1 MiB           works\n\nlimits\n  warn     open files    few\n           costs: clients\n\nsandbox\n"+
		"  warn     landlock-scope           not known\n                                    costs: a lot\n")
	write("a_b.out", "=== RUN   TestA\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\n--- FAIL: TestC (1.00s)\n--- SKIP: TestD (0.00s)\n")
	if _, there := readResult(folder, doctor); there {
		t.Fatal("a job that has not ended has a result")
	}
	write("doctor.code", "1\n")
	write("a_b.code", "1\n")
	c := &column{release: "6.1", results: map[string]result{}}
	for _, j := range []job{doctor, tests} {
		r, there := readResult(folder, j)
		if !there {
			t.Fatal("no result of", j.name)
		}
		c.results[j.name] = r
	}
	var out strings.Builder
	if err := table(&out, []job{doctor, tests, testsOf("c", "")}, []*column{c}); err != nil {
		t.Fatal(err)
	}
	const want = `
| kernel | 6.1 |
|---|---|
| pipes of 1 MiB | works |
| landlock-scope | no: not known; a lot |
| ` + "`a/b`" + ` | 1 passed, 1 skipped, 1 failed: TestC |
| ` + "`c`" + ` | not run |
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	err := failures([]job{doctor, tests, testsOf("c", "")}, []*column{c})
	if err == nil || err.Error() != "a/b under 6.1: 1 passed, 1 skipped, 1 failed: TestC\nc under 6.1: not run" {
		t.Errorf("what has failed: %v", err)
	}
}

func TestByNumbers(t *testing.T) {
	all := []string{"6.12.9+deb12-amd64", "6.12.113+deb12-amd64", "6.12.27+deb12-amd64"}
	if newest := slices.MaxFunc(all, byNumbers); newest != all[1] {
		t.Error(newest)
	}
}
