//go:build linux

// Package report prints the header of every result, and parses results.
package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine writes the date, machine and commit of a result, as configuration lines of the Go
// benchmark format, which benchstat reads.
func Machine(w io.Writer) error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	_, err := fmt.Fprintf(w, "date: %s\ncpu: %d x %s\nmemory: %s\nkernel: %s %s\ngo: %s\ncommit: %s\n",
		time.Now().UTC().Format(time.DateTime),
		runtime.NumCPU(), Model(),
		fileLine("/proc/meminfo", "MemTotal"),
		text(uts.Release[:]), text(uts.Machine[:]),
		runtime.Version(), Commit())
	return err
}

// Model returns the name of the CPUs.
func Model() string { return fileLine("/proc/cpuinfo", "model name") }

// fileLine returns the value of the first "name : value" line of a file.
func fileLine(path, name string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// Commit returns the commit of the checkout, and marks it if there are uncommitted changes.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
