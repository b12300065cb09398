// Command mutants finds out what the simulation of package relay notices: it changes one line of the engine at a time, and says which
// changes no simulated run fails with.
//
//	go run ./bench/trials/mutants -seed 1 -n 100
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
	most := flag.Duration("for", time.Minute, "how much time of the processor one is tried for")
	reach := flag.String("reach", "", "a coverage profile of the simulation, which is made if the file does not exist; empty: a temporary one")
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
	lines, err := b.candidates(reached)
	if err != nil {
		return err
	}
	fmt.Printf("%s; mutants are drawn from %d lines\n", reached, len(lines))
	drawn, binary, err := b.build(draw(*seed, lines), *n)
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
	t := trial{binary: binary, dir: filepath.Join(b.root, "relay"), most: *most}
	if how, _ := t.try(0); how != lives {
		return fmt.Errorf("the simulation fails without a mutant: %s", t.said)
	}
	count := make(map[outcome]int)
	for _, m := range chosen {
		how, after := t.try(m.number)
		count[how]++
		fmt.Printf("%-7s %5.1f s  %v  %s\n", how, after.Seconds(), m, t.said)
	}
	fmt.Printf("%d of %d mutants are dead, of %d nobody knows\n", count[dead]+count[hangs], len(chosen), count[unknown])
	return nil
}

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
