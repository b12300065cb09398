//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// column is what was seen under one kernel.
type column struct {
	kernel, release string
	results         map[string]result
}

// result is what came of a job.
type result struct {
	code            string // of the process
	passed, skipped int    // top-level tests
	failed          []string
	features        []feature
}

// feature is one that the doctor has looked for.
type feature struct {
	name, state, text string
	costs             string // what the daemon is without it
}

// testLine is a line of the output of tests; featureLine one of what the doctor says.
var (
	testLine    = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)
	featureLine = regexp.MustCompile(`^  ([a-z]+) +(\S+(?: \S+)*?)  +(.*)$`)
)

// features are those that the doctor has found out about the kernel, and whether the sandbox can be had. What it says of limits and speed is this
// host's or the emulation's.
func features(text string) (all []feature) {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := featureLine.FindStringSubmatch(line)
		costs, isCosts := strings.CutPrefix(strings.TrimSpace(line), "costs: ")
		switch ours := section == "kernel" || section == "sandbox"; {
		case m == nil && line != "" && line[0] != ' ':
			section = line
		case ours && m != nil && m[2] != "release":
			all = append(all, feature{name: m[2], state: m[1], text: m[3]})
		case ours && isCosts && len(all) > 0:
			all[len(all)-1].costs = costs
		}
	}
	return all
}

// readResult reads what came of a job, and reports whether it has ended.
func readResult(folder string, j job) (r result, there bool) {
	path := j.file(folder)
	code, err := os.ReadFile(path + ".code")
	if err != nil || !strings.HasSuffix(string(code), "\n") {
		return r, false
	}
	r.code = strings.TrimSpace(string(code))
	text, err := os.ReadFile(path + ".out")
	if err != nil {
		return r, false
	}
	for _, m := range testLine.FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "PASS":
			r.passed++
		case "SKIP":
			r.skipped++
		case "FAIL":
			r.failed = append(r.failed, m[2])
		}
	}
	if j.name == "doctor" {
		r.features = features(string(text))
	}
	return r, true
}

// short is the result in a few words.
func (r result) short() string {
	switch {
	case r.passed+r.skipped+len(r.failed) > 0:
		text := fmt.Sprintf("%d passed", r.passed)
		if r.skipped > 0 {
			text += fmt.Sprintf(", %d skipped", r.skipped)
		}
		if len(r.failed) > 0 {
			text += fmt.Sprintf(", %d failed: %s", len(r.failed), strings.Join(r.failed, " "))
		} else if r.code != "0" {
			text += ", exit code " + r.code
		}
		return text
	case r.code == "124":
		return "took too long"
	case r.code != "0":
		return "exit code " + r.code
	}
	return "ok"
}

// table prints what was seen, in Markdown.
func table(w io.Writer, chosen []job, all []*column) error {
	var b strings.Builder
	row := func(name string, cell func(*column) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range all {
			fmt.Fprintf(&b, " %s |", strings.ReplaceAll(cell(c), "|", "\\|"))
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	row("kernel", func(c *column) string { return c.release })
	b.WriteString(strings.Repeat("|---", len(all)+1) + "|\n")
	for _, j := range chosen {
		if j.name != "doctor" {
			row("`"+j.name+"`", func(c *column) string {
				if r, known := c.results[j.name]; known {
					return r.short()
				}
				return "not run"
			})
			continue
		}
		for _, name := range featureNames(all) {
			row(name, func(c *column) string { return c.feature(name) })
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// failures says which jobs have failed or have not run. A feature that the doctor finds missing is not a failure.
func failures(chosen []job, all []*column) error {
	var errs []error
	for _, c := range all {
		for _, j := range chosen {
			switch r, known := c.results[j.name]; {
			case !known:
				errs = append(errs, fmt.Errorf("%s under %s: not run", j.name, c.release))
			case r.code != "0" && j.name != "doctor":
				errs = append(errs, fmt.Errorf("%s under %s: %s", j.name, c.release, r.short()))
			}
		}
	}
	return errors.Join(errs...)
}

// withResult returns the jobs that have run under one of the kernels.
func withResult(all []*column) []job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j job) bool {
		return !slices.ContainsFunc(all, func(c *column) bool { _, known := c.results[j.name]; return known })
	})
}

// featureNames returns the names of all features, in the order in which the doctor has them.
func featureNames(all []*column) (names []string) {
	known := map[string]bool{}
	for _, c := range all {
		for _, f := range c.results["doctor"].features {
			if !known[f.name] {
				known[f.name] = true
				names = append(names, f.name)
			}
		}
	}
	return names
}

// feature is what the doctor says of one.
func (c *column) feature(name string) string {
	for _, f := range c.results["doctor"].features {
		if f.name == name && f.state == "ok" {
			return f.text
		} else if f.name == name {
			if f.costs != "" {
				return "no: " + f.text + "; " + f.costs
			}
			return "no: " + f.text
		}
	}
	return ""
}
