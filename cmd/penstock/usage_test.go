package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

var update = flag.Bool("update", false, "write the golden files")

// A wrong command line gives one line that says what is allowed, and exit code 2;
// testdata/usage.golden has them all.
func TestUsage(t *testing.T) {
	testnet.OneGoroutine(t)
	inputs, err := os.ReadFile(filepath.Join("testdata", "usage.in"))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for in := bufio.NewScanner(bytes.NewReader(inputs)); in.Scan(); {
		out, code := command(t, strings.Fields(in.Text())...)
		if code != 2 || strings.Count(out, "\n") != 1 {
			t.Errorf("penstock %s: exit code %d, %q", in.Text(), code, out)
		}
		fmt.Fprintf(&got, "$ penstock %s\n%s", in.Text(), out)
	}
	golden := filepath.Join("testdata", "usage.golden")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.Bytes(), want)
	}
}

func TestCannotStart(t *testing.T) {
	taken := testnet.Listen(t, "tcp4")
	for name, args := range map[string][]string{
		"taken":        {url(taken.Addr()), "echo:"},
		"not ours":     {"tcp://192.0.2.1:7000", "echo:"},
		"no folder":    {"unix:///no/such/folder/s", "echo:"},
		"unknown name": {"tcp://127.0.0.1:0", "tcp://no-such-host.invalid:80"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := command(t, append([]string{"relay"}, args...)...)
			if code != 1 || strings.Count(out, "cannot start") != 1 {
				t.Errorf("exit code %d, %s", code, out)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	out, code := command(t, "version")
	if code != 0 || !regexp.MustCompile(`^penstock \S+.* go1\.\S+ \w+/\w+\n$`).MatchString(out) {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// --help lists the exit codes, and exits with 0; every command is in docs/commands.md, and every flag that the
// pages for operators name is a flag of some command.
func TestHelp(t *testing.T) {
	testnet.OneGoroutine(t)
	for _, args := range [][]string{{"--help"}, {"relay", "--help"}} {
		out, code := command(t, args...)
		if code != 0 || !strings.Contains(out, "Exit codes: 0") {
			t.Errorf("penstock %v: exit code %d, %s", args, code, out)
		}
	}
	list, _ := command(t, "help", "--all")
	// Commands are grouped by what one wants, in this order.
	if !regexp.MustCompile(`(?s)Run a relay:\n  relay .*\n  run .*Work on a configuration:\n  check .*Look at a running daemon:\n  status .*Change a running daemon:\n  kill .*Other commands:\n  doctor `).MatchString(list) {
		t.Errorf("the commands are not grouped: %s", list)
	}
	help := ""
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+)?)  `).FindAllStringSubmatch(list, -1) {
		of, _ := command(t, append(strings.Fields(m[1]), "--help")...)
		help += of
		if pattern := regexp.MustCompile(`(?m)^\| .*\b` + strings.Join(strings.Fields(m[1]), `\b.*\b`) + `\b`); !pattern.MatchString(operatorPage(t, "commands.md")) {
			t.Errorf("docs/commands.md has no row for penstock %s", m[1])
		}
	}
	flags := regexp.MustCompile("`(--[a-z-]+)")
	for _, name := range []string{"commands.md", "observing.md", "runbooks.md", "running.md"} {
		for _, m := range flags.FindAllStringSubmatch(operatorPage(t, name), -1) {
			if !strings.Contains(help, m[1]) && m[1] != "--help" {
				t.Errorf("docs/%s names %s, which is not a flag", name, m[1])
			}
		}
	}
}

// The short list of commands and the long one are in testdata/help.golden. --help shows a dozen.
func TestHelpLists(t *testing.T) {
	testnet.OneGoroutine(t)
	var got strings.Builder
	for _, args := range [][]string{{"--help"}, {"help", "--all"}} {
		out, code := command(t, args...)
		if code != 0 {
			t.Errorf("penstock %v: exit code %d", args, code)
		}
		fmt.Fprintf(&got, "$ penstock %s\n%s", strings.Join(args, " "), out)
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
	short, _, _ := strings.Cut(got.String(), "$ penstock help --all")
	if n := len(regexp.MustCompile(`(?m)^  [a-z]+  `).FindAllString(short, -1)); n != 12 {
		t.Errorf("--help shows %d commands", n)
	}
}

// Without a command, penstock prints help; --version does the same as the command version.
func TestBareCommand(t *testing.T) {
	if out, code := command(t); code != 0 || !strings.Contains(out, "Usage: penstock") || !strings.Contains(out, "relay") {
		t.Errorf("%d, %s", code, out)
	}
	want, _ := command(t, "version")
	if out, code := command(t, "--version"); code != 0 || out != want {
		t.Errorf("%d, %s, want %s", code, out, want)
	}
}

// Errors and warnings are in the order of the file.
func TestCheckOrder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := "listeners: {l: {listen: 'tcp://:1', to: g}}\ngroups:\n  g: {members: [{to: 'tcp://a:1', drained: true}]}\n  unused: {members: ['tcp://b:1']}\nnonsense: 1\n"
	if err := os.WriteFile(file, []byte("first: 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := command(t, "check", "-c", file)
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.SplitN(strings.TrimPrefix(line, file), ":", 3)[1])
	}
	if code != 2 || strings.Join(got, " ") != "1 4 5 6" || strings.Count(out, ": warning: ") != 2 {
		t.Errorf("%d, lines %v:\n%s", code, got, out)
	}
}

// operatorPage returns the text of a page of docs.
func operatorPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
