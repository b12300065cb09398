// Command mutants finds out what the simulation of package relay notices: it changes one line of the engine at a time, and says which
// changes no simulated run fails with.
//
//	go run ./bench/trials/mutants -seed 1 -n 100 | tee seed1
//	go run ./bench/trials/mutants -again seed1
//
// A mutant is a comparison or a logical operator that is swapped, a condition that is negated, a statement that is left out, a
// constant that is one more, one less or the other one, or an early return, break or continue that is left out. It is drawn from the
// lines of relay, internal/pump and internal/ledger that the simulation runs, which a coverage profile says: no comments, declarations,
// stubs or assertions, and nothing of what the simulation does not do, such as TLS. All mutants are built into one test binary, in
// which the environment says which one is on. Each has a minute of the processor's time: first for the simulation's tests, and then for
// schedules of random seeds. A schedule that ends a mutant and fails without it, too, says nothing of the mutant.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// packages are the directories that mutants are drawn from.
var packages = []string{"relay", "internal/pump", "internal/ledger"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	seed := flag.Uint64("seed", 1, "what the mutants are drawn with")
	n := flag.Int("n", 100, "how many are drawn")
	only := flag.String("only", "", "which of them are tried, such as 3,20-30; empty: all")
	again := flag.String("again", "", "the output of an earlier run: nothing is drawn, and those of its mutants that live are tried")
	most := flag.Duration("for", time.Minute, "how much time of the processor one is tried for")
	reach := flag.String("reach", "", "a coverage profile of the simulation, which is made if the file does not exist; empty: a temporary one")
	files := flag.String("files", "", "an expression that the names of files match that mutants are drawn from, such as datagram_(close|own); empty: all")
	list := flag.Bool("list", false, "say what would be tried, and no more")
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()

	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := builder{root: *root, dir: dir}
	if b.root, err = filepath.Abs(b.root); err != nil {
		return err
	}
	profile := *reach
	if profile == "" {
		profile = filepath.Join(dir, "reach")
	}
	reached, err := b.reached(profile)
	if err != nil {
		return err
	}
	of, err := regexp.Compile(*files)
	if err != nil {
		return err
	}
	lines, err := b.candidates(reached, of)
	if err != nil {
		return err
	}
	fmt.Printf("%s; mutants are drawn from %d lines\n", reached, len(lines))
	order := draw(*seed, lines)
	if *again != "" {
		text, err := os.ReadFile(*again)
		if err != nil {
			return err
		}
		if order, err = survivors(string(text), lines); err != nil {
			return err
		}
		*n = len(order)
	}
	drawn, binary, err := b.build(order, *n)
	if err != nil {
		return err
	}
	chosen, err := some(drawn, *only)
	if err != nil {
		return err
	}
	if *list {
		for _, m := range chosen {
			fmt.Println(m)
		}
		return nil
	}
	t := trial{binary: binary, dir: filepath.Join(b.root, "relay"), most: max(*most, time.Minute)}
	if how, _ := t.try(nil); how != lives {
		return fmt.Errorf("the simulation fails without a mutant: %s", t.said)
	}
	t.most = *most
	alive := 0
	for _, m := range chosen {
		how, after := t.try(m)
		if how == lives {
			alive++
		}
		fmt.Printf("%-7s %5.1f s  %v  %s\n", how, after.Seconds(), m, t.said)
	}
	fmt.Printf("%d of %d mutants are dead\n", len(chosen)-alive, len(chosen))
	return nil
}

// survivors returns the mutants that live by the output of an earlier run, each where its line is now, or nearest to where it was.
func survivors(text string, lines [][]*mutant) (all []*mutant, err error) {
	for _, x := range survived.FindAllStringSubmatch(text, -1) {
		var found *mutant
		was, _ := strconv.Atoi(x[2])
		away := func(m *mutant) int { return max(m.line-was, was-m.line) }
		for _, line := range lines {
			for _, m := range line {
				if m.file == x[1] && m.change() == x[3] && (found == nil || away(m) < away(found)) {
					found = m
				}
			}
		}
		if found == nil {
			return nil, fmt.Errorf("no such line in %s any more: %s", x[1], x[3])
		}
		all = append(all, found)
	}
	return all, nil
}

// survived is a line of the output, of a mutant that lives.
var survived = regexp.MustCompile(`(?m)^lives .* s +\d+  (\S+):(\d+)  (.*?) *$`)

// some returns those of the mutants whose numbers are in a list such as 3,20-30; all of them if it is empty.
func some(all []*mutant, list string) (chosen []*mutant, err error) {
	if list == "" {
		return all, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		i, err := strconv.Atoi(from)
		j, also := strconv.Atoi(to)
		if err != nil || also != nil || i < 1 || j > len(all) || i > j {
			return nil, fmt.Errorf("%q is not in 1-%d", part, len(all))
		}
		chosen = append(chosen, all[i-1:j]...)
	}
	return chosen, nil
}
