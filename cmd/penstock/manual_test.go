package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// Each command has a manual page, and man shows all of them without a warning.
func TestManualPages(t *testing.T) {
	testnet.OneGoroutine(t)
	dir := t.TempDir()
	if out, code := command(t, "manual", dir); code != 0 || out != "" {
		t.Fatalf("%d, %s", code, out)
	}
	help, _ := command(t, "help", "--all")
	pages := []string{filepath.Join(dir, "penstock.1")}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+)?)  `).FindAllStringSubmatch(help, -1) {
		pages = append(pages, filepath.Join(dir, "penstock-"+strings.ReplaceAll(m[1], " ", "-")+".1"))
	}
	if len(pages) < 20 {
		t.Fatalf("only %d commands in\n%s", len(pages), help)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, section := range []string{".TH ", ".SH \"NAME\"\n", ".SH \"SYNOPSIS\"\n", ".SH \"OPTIONS\"\n"} {
			if !strings.Contains(string(text), section) {
				t.Errorf("%s has no %s", page, section)
			}
		}
	}
	if check, err := os.ReadFile(filepath.Join(dir, "penstock-check.1")); err != nil || !strings.Contains(string(check), `\fB\-\-config\fP=\fI`) {
		t.Errorf("%v\n%s", err, check)
	}
	need(t, "man", "groff")
	cmd := exec.Command("man", append([]string{"--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-P", "cat"}, pages...)...)
	cmd.Env = append(os.Environ(), "MANWIDTH=80", "LC_ALL=C.UTF-8")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 || stdout.Len() < 10000 {
		t.Errorf("%v, %d bytes\n%s", err, stdout.Len(), stderr.String())
	}
}

// The scripts complete in the real shells: commands, flags, words and files.
func TestCompletion(t *testing.T) {
	testnet.OneGoroutine(t)
	dir := t.TempDir()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, code := command(t, "completion", shell)
		if code != 0 {
			t.Fatalf("%s: %d, %s", shell, code, out)
		}
		if err := os.WriteFile(filepath.Join(dir, shell), []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := command(t, "completion", "tcsh"); code != 2 || !strings.Contains(out, "bash") {
		t.Errorf("%d, %s", code, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "relay.yaml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	trials := []struct {
		line string
		want []string // some of what is offered
		not  string
	}{
		{"penstock conv", []string{"convert"}, "relay"},
		{"penstock check --di", []string{"--diff"}, "--idle-timeout"},
		{"penstock relay --log-level ", []string{"debug", "warn"}, "--nagle"},
		{"penstock run -c rel", []string{"relay.yaml"}, "relay"},
		{"penstock members ad", []string{"add"}, "relay"},
		{"penstock members set --we", []string{"--weight"}, "--sort"},
		{"penstock flows --so", []string{"--sort"}, "--config"},
		{"penstock convert rel", []string{"relay.yaml"}, "relay"},
	}
	run := func(t *testing.T, argv ...string) []string {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", argv, err, out)
		}
		var words []string
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			words = append(words, word)
		}
		return words
	}
	compare := func(t *testing.T, line string, got, want []string, not string) {
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%q: %s is missing in %q", line, w, got)
			}
		}
		if slices.Contains(got, not) {
			t.Errorf("%q: %s is among %q", line, not, got)
		}
	}
	t.Run("bash", func(t *testing.T) {
		need(t, "bash")
		for _, c := range trials {
			script := `. ./bash; read -ra COMP_WORDS <<<"$1"; [[ $1 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _penstock; printf '%s\n' "${COMPREPLY[@]}"`
			compare(t, c.line, run(t, "bash", "-c", script, "bash", c.line), c.want, c.not)
		}
	})
	t.Run("fish", func(t *testing.T) {
		need(t, "fish")
		for _, c := range trials {
			compare(t, c.line, run(t, "fish", "--no-config", "-c", "source ./fish; complete -C '"+c.line+"'"), c.want, c.not)
		}
	})
	t.Run("zsh", func(t *testing.T) {
		need(t, "zsh")
		run(t, "zsh", "-f", "-c", "autoload -Uz compinit && compinit -D && source ./zsh && whence -w _penstock _penstock_check && [[ $_comps[penstock] = _penstock ]]")
	})
}
