//go:build linux

// Kernels boots other kernels than this host's, Debian's, in software emulation and with this host's files as their root, and runs there what
// depends on the kernel: what the daemon says of its features, the tests of packages, and the script that kills workers under load. It prints a
// table of kernels and what works with each.
//
//	go run ./bench/trials/kernels
//	go run ./bench/trials/kernels -kernels 6.1 -jobs 'splice,dgram' -out result.txt
//
// It needs root, Debian's packages qemu-system-x86, busybox-static, kmod and python3-venv, and a Debian whose repositories have the kernels.
// virtme-ng, which boots them, is installed from PyPI. A guest takes 10 to 20 times as long as this host for the same: it shows what is right, and
// not how fast it is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/report"
	"github.com/penstock/penstock/bench/internal/trial"
)

// here stands for this host's kernel, which needs no guest.
const here = "host"

// setup is what is tried, and where.
type setup struct {
	root   string // of the repository
	work   string // the folder for kernels, test binaries and results
	memory string
	cpus   int
	limit  time.Duration // of a job
	add    bool          // to the results that there are
}

func main() {
	var s setup
	kernels := flag.String("kernels", "6.1,6.12,"+here, "kernels, with commas between them: the beginning of a release that Debian has, "+userMode+" for Debian's user-mode-linux, or "+here)
	named := flag.String("jobs", "*", "jobs to run, with commas between them; -list has them")
	list := flag.Bool("list", false, "list the jobs")
	out := flag.String("out", "", "also write everything to this `FILE`")
	flag.StringVar(&s.work, "work", "bin/kernels", "the folder for kernels, test binaries and results; what is there already is not downloaded again")
	flag.StringVar(&s.memory, "memory", "3G", "memory of a guest")
	flag.IntVar(&s.cpus, "cpus", 2, "processors of a guest")
	flag.DurationVar(&s.limit, "limit", 30*time.Minute, "how long a job may take in a guest")
	flag.BoolVar(&s.add, "add", false, "the table also has the results of jobs that ran before, and are not run now")
	flag.Parse()
	if *list {
		for _, j := range jobs {
			fmt.Printf("%-36s %s\n", j.name, j.what)
		}
		return
	}
	var chosen []job
	for _, j := range jobs {
		if trial.Named(*named, j.name) {
			chosen = append(chosen, j)
		}
	}
	if err := s.all(strings.Split(*kernels, ","), chosen, *out); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// all builds what the jobs need, runs them under each kernel and prints the table.
func (s *setup) all(kernels []string, chosen []job, file string) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("root is needed: guests have this host's files as their root")
	}
	if s.root, err = os.Getwd(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.root, "go.work")); err != nil {
		return fmt.Errorf("it runs in the root of the repository: %w", err)
	}
	if s.work, err = filepath.Abs(s.work); err != nil {
		return err
	}
	out, closeFile, err := report.Output(file)
	if err != nil {
		return err
	}
	defer closeFile()
	if err := report.Machine(out); err != nil {
		return err
	}
	if err := s.build(chosen); err != nil {
		return err
	}
	var all []*column
	for _, kernel := range kernels {
		c, err := s.run(kernel, chosen)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", kernel, err)
		}
		all = append(all, c)
	}
	if s.add {
		chosen = withResult(all)
	}
	return errors.Join(table(out, chosen, all), failures(chosen, all))
}
