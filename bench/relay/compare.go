//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/rounds"
	"github.com/penstock/penstock/bench/internal/stat"
)

// compare compares this checkout with an older commit, or each load with the best commit known for it, and fails if one of
// the loads has become dearer.
func compare(args []string) error {
	s := settings{bench: bench{Settings: rounds.Settings{Rounds: 9, Warm: 200 * time.Millisecond, Window: 400 * time.Millisecond, Place: proc.Place{CPUs: "0"}}}}
	fs := flag.NewFlagSet("compare", flag.ExitOnError)
	s.flags(fs)
	base := fs.String("base", "", "the `COMMIT` to compare with (empty: for each load the one in bench/best.txt)")
	bound := fs.Float64("bound", 1.05, "upper limit for the median of the ratios, new over old")
	fs.Parse(args)
	if fs.NArg() > 0 {
		return fmt.Errorf("compare: unexpected argument %q", fs.Arg(0))
	}
	if s.Rounds < 5 {
		return fmt.Errorf("compare: %d rounds: want 5 or more, because fewer cannot tell a change from chance", s.Rounds)
	}
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	best, err := readBest(filepath.Join(top, "bench", "best.txt"))
	if err != nil {
		return err
	}
	rows, err := rowsOf(best, s.loadList, *base)
	if err != nil {
		return err
	}
	s.loadList = ""
	for i, r := range rows {
		if i > 0 {
			s.loadList += ","
		}
		s.loadList += r.load
	}
	var worse, summary []string
	s.report = func(l namedLoad, results [][]load.Result) {
		s.table(l, results)
		r := rows[slices.IndexFunc(rows, func(r bestRow) bool { return r.load == l.text })]
		judged := figures(l.Spec).Judged
		old := slices.IndexFunc(s.subjects(), func(p subject) bool { return p.Name == r.commit })
		c := stat.Compare(stat.Of(results[0], judged.Of), stat.Of(results[old], judged.Of))
		verdict := "ok"
		if c.Worse(*bound) {
			verdict = "WORSE"
			worse = append(worse, fmt.Sprintf("%s than %s", l.text, r.commit))
		}
		line := fmt.Sprintf("# compare %s: %s, new / %s: %v: %s", l.text, judged.Unit, r, c, verdict)
		fmt.Fprintln(s.Out, line)
		summary = append(summary, line)
	}
	err = s.start(func(dir string) ([]peer.Peer, error) {
		for i := range s.loads {
			s.loads[i].base = rows[i].commit
		}
		newBin := filepath.Join(dir, "penstock-new")
		if err := peer.Build("", newBin, nil); err != nil {
			return nil, err
		}
		peers := []peer.Peer{peer.Penstock(newName, "this checkout", newBin)}
		for _, r := range rows {
			if slices.ContainsFunc(peers, func(p peer.Peer) bool { return p.Name == r.commit }) {
				continue
			}
			old, err := buildCommit(dir, r.commit)
			if err != nil {
				return nil, err
			}
			peers = append(peers, old)
		}
		return peers, nil
	})
	if s.Out != nil {
		fmt.Fprintf(s.Out, "\n# all loads again\n%s\n", strings.Join(summary, "\n"))
	}
	if len(worse) > 0 {
		err = errors.Join(err, fmt.Errorf("dearer by more than a factor of %v: %s", *bound, strings.Join(worse, ", ")))
	}
	return err
}

// newName is the name of the relay of this checkout.
const newName = "new"

// buildCommit builds the daemon of a commit, and returns it as a relay with the name of the commit.
func buildCommit(dir, commit string) (peer.Peer, error) {
	hash, err := git("rev-parse", "--verify", commit+"^{commit}")
	if err != nil {
		return peer.Peer{}, err
	}
	tree, bin := filepath.Join(dir, hash), filepath.Join(dir, "penstock-"+hash)
	if err := checkOut(hash, tree); err != nil {
		return peer.Peer{}, err
	}
	return peer.Penstock(commit, hash, bin), peer.Build(tree, bin, nil)
}

// checkOut writes the files of a commit into a separate folder, and leaves the repository
// unchanged.
func checkOut(commit, dir string) error {
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	archive := dir + ".tar"
	if _, err := git("-C", top, "archive", "--output", archive, commit); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", commit, err, out)
	}
	return nil
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, text)
	}
	return text, nil
}
