//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/load"
	"github.com/penstock/penstock/bench/internal/peer"
	"github.com/penstock/penstock/bench/internal/stat"
)

// compare compares this checkout with an older commit, and fails if one of the loads has become
// dearer.
func compare(args []string) error {
	s := settings{
		bench:    bench{rounds: 9, warm: 200 * time.Millisecond, window: 400 * time.Millisecond, place: place{cpus: "0"}},
		loadList: "bulk16k,bulk1m,pingpong64,connect,udp1200,udpping64",
	}
	fs := flag.NewFlagSet("compare", flag.ExitOnError)
	s.flags(fs)
	base := fs.String("base", "", "the `COMMIT` to compare with")
	bound := fs.Float64("bound", 1.10, "upper limit for the median of the ratios, new over old")
	fs.Parse(args)
	if *base == "" || fs.NArg() > 0 {
		return errors.New("compare: want -base COMMIT and no other argument")
	}
	if s.rounds < 5 {
		return fmt.Errorf("compare: %d rounds: want 5 or more, because fewer cannot tell a change from chance", s.rounds)
	}
	var worse []string
	s.report = func(l namedLoad, results [][]load.Result) {
		s.table(l, results)
		judged, _ := figures(l.Spec)
		c := stat.Compare(column(judged, results[0]), column(judged, results[1]))
		verdict := "ok"
		if c.Worse(*bound) {
			verdict = "WORSE"
			worse = append(worse, l.text)
		}
		fmt.Fprintf(s.out, "# compare %s: %s, new / old: %v: %s\n", l.text, judged.unit, c, verdict)
	}
	err := s.start(func(dir string) ([]peer.Peer, error) {
		commit, err := git("rev-parse", "--verify", *base+"^{commit}")
		if err != nil {
			return nil, err
		}
		tree := filepath.Join(dir, "base")
		if err := checkOut(commit, tree); err != nil {
			return nil, err
		}
		oldBin, newBin := filepath.Join(dir, "penstock-old"), filepath.Join(dir, "penstock-new")
		if err := errors.Join(build(tree, oldBin), build("", newBin)); err != nil {
			return nil, err
		}
		return []peer.Peer{peer.Penstock("new", "this checkout", newBin), peer.Penstock("old", commit, oldBin)}, nil
	})
	if len(worse) > 0 {
		err = errors.Join(err, fmt.Errorf("dearer than %s by more than a factor of %v: %s", *base, *bound, strings.Join(worse, ", ")))
	}
	return err
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
