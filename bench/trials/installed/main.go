//go:build linux

// Installed makes the packages and the container image of two versions, installs them in a small Debian that it boots, and uses them there as
// operators do, under clients that know each of their bytes: systemd starts, reloads, restarts and stops the service, what can fail is made to fail,
// the package is upgraded and removed, and podman runs the image without root. What must be seen is what docs/install.md and docs/upgrades.md say.
// It prints a table of what was done and seen.
//
//	go run ./bench/trials/installed
//	go run ./bench/trials/installed -cases 'deb-install,deb-start,deb-restart'
//
// The kernel is Debian's user-mode-linux, so that systemd is the first process of a machine, with control groups and users of its own. It needs
// root, Debian, and its packages mmdebstrap and e2fsprogs.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/trial"
)

// setup is what was asked for on the command line.
type setup struct {
	work, kernel string // folders
	packages     string // the folder of those that are there; empty: they are made
	memory       string
	cases        string
	limit        time.Duration
}

func main() {
	trial.Main("installed", func() error {
		switch {
		case len(os.Args) == 3 && os.Args[1] == "inside":
			return inside(os.Args[2])
		case len(os.Args) == 4 && os.Args[1] == "hog":
			worker, err := strconv.Atoi(os.Args[3])
			if err != nil {
				return err
			}
			return hog(os.Args[2], worker)
		}
		return command()
	})
}

func command() error {
	var s setup
	list := flag.Bool("list", false, "list the cases")
	file := flag.String("out", "", "also write everything to this `FILE`")
	flag.StringVar(&s.cases, "cases", "*", "cases to run, with commas between them; each finds what those before it have left")
	flag.StringVar(&s.work, "work", "bin/installed", "the folder for Debian's files, the packages and the results; Debian's files are downloaded once")
	flag.StringVar(&s.kernel, "kernel", "bin/kernels/uml", "the folder for user-mode-linux, which is downloaded once")
	flag.StringVar(&s.packages, "packages", "", "a folder with the packages of "+older+" and "+newer+", as dist makes them for amd64; made from this checkout unless given")
	flag.StringVar(&s.memory, "memory", "1500M", "memory of the guest")
	flag.DurationVar(&s.limit, "limit", time.Hour, "how long all cases may take")
	flag.Parse()
	if *list {
		for _, c := range cases {
			fmt.Printf("%-24s %s\n", c.name, c.what)
		}
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed: files of the guest have owners")
	}
	for _, folder := range []*string{&s.work, &s.kernel} {
		path, err := filepath.Abs(*folder)
		if err != nil {
			return err
		}
		*folder = path
	}
	out, closeFile, err := report.Output(*file)
	if err != nil {
		return err
	}
	defer closeFile()
	if err := report.Machine(out); err != nil {
		return err
	}
	if err := s.build(); err != nil {
		return err
	}
	guest, err := s.boot()
	if err != nil {
		return err
	}
	results, err := s.follow(guest)
	return errors.Join(err, table(out, results))
}

// follow says how each case went, and returns all results once the guest is off.
func (s *setup) follow(guest *proc.Process) (results []result, err error) {
	begin := time.Now()
	err = proc.Until("the guest is off", s.limit, time.Second, func() error {
		over := guest.Over()
		results = results[:0:0]
		text, err := os.ReadFile(s.shared("results"))
		if err != nil && over {
			return nil // said below
		}
		for line := range bytes.Lines(text) {
			var r result
			if json.Unmarshal(line, &r) != nil {
				break // half written
			}
			results = append(results, r)
		}
		if over {
			return nil
		}
		return fmt.Errorf("%d cases after %v", len(results), time.Since(begin).Round(time.Second))
	})
	guest.Kill()
	chosen := 0
	for _, c := range cases {
		if trial.Named(s.cases, c.name) {
			chosen++
		}
	}
	if chosen == 0 {
		err = errors.Join(err, fmt.Errorf("-cases %s: no such case; -list has them", s.cases))
	}
	failed := 0
	for _, r := range results {
		if r.Failed != "" {
			failed++
			fmt.Fprintf(os.Stderr, "%s FAILED: %s\n", r.Case, r.Failed)
		}
	}
	if missing := chosen + 1 - len(results); missing > 0 {
		err = errors.Join(err, fmt.Errorf("%d cases have not run, see %s", missing, s.shared("output")))
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d cases failed", failed))
	}
	return results, err
}

// table prints what was seen, in Markdown.
func table(w io.Writer, results []result) error {
	var b strings.Builder
	b.WriteString("\n| what is done | what is seen |\n|---|---|\n")
	for _, r := range results {
		seen := r.Seen
		if r.Failed != "" {
			first, _, _ := strings.Cut(r.Failed, "\n")
			seen = "FAILED: " + first
		}
		fmt.Fprintf(&b, "| %s | %s |\n", r.What, strings.ReplaceAll(seen, "|", "\\|"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
