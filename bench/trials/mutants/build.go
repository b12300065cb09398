package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// builder builds test binaries of relay in which files are changed; those of the repository stay as they are.
type builder struct {
	root string
	dir  string // for what is made
}

const (
	module  = "github.com/penstock/penstock"
	tests   = "^(TestSimulate|TestDeath)"
	checked = "-tags=penstock_invariants"
)

// reach is what the simulation runs, by file.
type reach struct {
	blocks          map[string][]block
	run, statements int
}

// block is a run of statements, from one place of a file to another.
type block struct{ fromLine, fromColumn, toLine, toColumn int }

func (r *reach) String() string {
	return fmt.Sprintf("the simulation runs %d of %d statements, %.1f%%", r.run, r.statements, 100*float64(r.run)/float64(max(1, r.statements)))
}

func (r *reach) has(file string) bool { return len(r.blocks[file]) > 0 }

func (r *reach) runs(file string, line, column int) bool {
	return slices.ContainsFunc(r.blocks[file], func(b block) bool {
		return (line > b.fromLine || line == b.fromLine && column >= b.fromColumn) && (line < b.toLine || line == b.toLine && column < b.toColumn)
	})
}

// reached returns what a coverage profile says, which is made if it is not there.
func (b *builder) reached(profile string) (*reach, error) {
	if _, err := os.Stat(profile); errors.Is(err, os.ErrNotExist) {
		all := make([]string, len(packages))
		for i, p := range packages {
			all[i] = "./" + p
		}
		if err := b.command(nil, "go", "test", checked, "-count=1", "-run", tests, "-coverprofile", profile, "-coverpkg", strings.Join(all, ","), "./relay"); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return parseReach(text)
}

// parseReach parses a coverage profile: file:line.column,line.column statements count.
func parseReach(text []byte) (*reach, error) {
	r := &reach{blocks: make(map[string][]block)}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		name, rest, ok := strings.Cut(line, ".go:")
		var x block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &x.fromLine, &x.fromColumn, &x.toLine, &x.toColumn, &statements, &count); err != nil || !ok {
			return nil, fmt.Errorf("coverage profile: %q: %v", line, err)
		}
		r.statements += statements
		if count > 0 {
			r.run += statements
			file := strings.TrimPrefix(name, module+"/") + ".go"
			r.blocks[file] = append(r.blocks[file], x)
		}
	}
	return r, lines.Err()
}

// switchFile is added to package ledger, which the others import: it says which mutant is on.
const switchFile = `package ledger

import (
	"os"
	"strconv"
)

// Mutant is the number of the mutant that is on; 0: none.
var Mutant, _ = strconv.Atoi(os.Getenv("PENSTOCK_MUTANT"))
`

// build builds the first n mutants that compile, and do not overlap, into one test binary.
func (b *builder) build(order []*mutant, n int) (chosen []*mutant, binary string, err error) {
	binary = filepath.Join(b.dir, "relay.test")
	refused := make(map[*mutant]bool)
	for {
		chosen = choose(order, n, refused)
		for i, m := range chosen {
			m.number = i + 1
		}
		overlay, err := b.overlay(chosen)
		if err != nil {
			return nil, "", err
		}
		var said bytes.Buffer
		err = b.command(&said, "go", "build", checked, "-gcflags=-e", "-overlay", overlay, "./relay")
		if err == nil {
			return chosen, binary, b.command(nil, "go", "test", "-c", "-vet=off", checked, "-overlay", overlay, "-o", binary, "./relay")
		}
		some := false
		for _, place := range compilerPlace.FindAllStringSubmatch(said.String(), -1) {
			line, _ := strconv.Atoi(place[2])
			for _, m := range chosen {
				if flat(m.file) == filepath.Base(place[1]) && m.line == line {
					some, refused[m] = true, true
				}
			}
		}
		for _, m := range chosen { // a function without its last return is told of at its end
			if strings.Contains(said.String(), "missing return") && strings.HasPrefix(m.old, "return") && m.new == "" && !some {
				some, refused[m] = true, true
			}
		}
		if !some {
			return nil, "", fmt.Errorf("%w\n%s", err, said.String())
		}
	}
}

var compilerPlace = regexp.MustCompile(`(?m)^(\S+\.go):(\d+)`)

// choose returns the first n that are not refused, and do not overlap.
func choose(order []*mutant, n int, refused map[*mutant]bool) (chosen []*mutant) {
	for _, m := range order {
		overlaps := func(x *mutant) bool { return x.file == m.file && x.from < m.to && m.from < x.to }
		if len(chosen) < n && !refused[m] && !slices.ContainsFunc(chosen, overlaps) {
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// overlay writes the files with the mutants in them, and a file that tells the compiler to take those, whose name it returns.
func (b *builder) overlay(chosen []*mutant) (string, error) {
	replace := make(map[string]string)
	write := func(file, text string) error {
		name := filepath.Join(b.dir, flat(file))
		replace[filepath.Join(b.root, filepath.FromSlash(file))] = name
		return os.WriteFile(name, []byte(text), 0o644)
	}
	if err := write("internal/ledger/mutant_linux.go", switchFile); err != nil {
		return "", err
	}
	byFile := make(map[string][]*mutant)
	for _, m := range chosen {
		byFile[m.file] = append(byFile[m.file], m)
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		text, err := os.ReadFile(filepath.Join(b.root, filepath.FromSlash(file)))
		if err != nil {
			return "", err
		}
		if err := write(file, withMutants(file, string(text), byFile[file])); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(b.dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o644)
}

// flat is the name of a file without folders.
func flat(file string) string { return strings.ReplaceAll(file, "/", "+") }

// withMutants returns a file in which the mutants are, all of them off. Its lines have the numbers that they had.
func withMutants(file, text string, all []*mutant) string {
	all = slices.SortedFunc(slices.Values(all), func(x, y *mutant) int { return y.from - x.from })
	on := "mutants.Mutant"
	if filepath.Base(filepath.Dir(file)) == "ledger" {
		on = "Mutant"
	}
	for _, m := range all {
		old := text[m.from:m.to]
		new := fmt.Sprintf("if %s != %d { %s }", on, m.number, old)
		switch {
		case m.isBool:
			new = fmt.Sprintf("(%s == %d && (%s) || %[1]s != %[2]d && (%[4]s))", on, m.number, m.other, old)
		case m.other != "":
			new = fmt.Sprintf("if %s == %d { %s } else { %s }", on, m.number, m.other, old)
		}
		text = text[:m.from] + new + text[m.to:]
	}
	if on == "Mutant" {
		return text
	}
	clause := regexp.MustCompile(`(?m)^package \w+$`).FindStringIndex(text)
	return text[:clause[1]] + `; import mutants "` + module + `/internal/ledger"` + text[clause[1]:]
}

// command runs a command at the root. What it says is returned in said, or with the error.
func (b *builder) command(said *bytes.Buffer, name string, args ...string) error {
	var all bytes.Buffer
	if said == nil {
		said = &all
	}
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr = b.root, said, said
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, all.String())
	}
	return nil
}
