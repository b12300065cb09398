package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the check and a release run from elsewhere is pinned: actions by the hash of a commit, because a tag can be
// moved, and programs by an exact version, whose checksum the module proxy and the checksum database keep.
func TestPinned(t *testing.T) {
	for _, name := range pinnedFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, loose := range unpinned(string(text)) {
			if name != ".github/workflows/check.yaml" || loose != "golang.org/dl/gotip@latest" { // it fetches the newest commit of Go, whatever its own version; the job may fail
				t.Errorf("%s: %s is not pinned", name, loose)
			}
		}
	}
}

// pinnedFiles are the files that say what else the check and a release run.
func pinnedFiles(t *testing.T) []string {
	t.Helper()
	files := []string{"Makefile", "bench/install-peers.sh", "cmd/penstock/dist/main.go"}
	for _, pattern := range []string{".ci/*", ".github/workflows/*"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range found {
			files = append(files, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		}
	}
	return files
}

var (
	actionRE  = regexp.MustCompile(`uses: *(\S+)(?: # v[0-9.]+$)?`)
	byHash    = regexp.MustCompile(`^[^@]+@[0-9a-f]{40} # v[0-9.]+$`)
	programRE = regexp.MustCompile(`\b[a-z0-9-]+\.[a-z]+/[\w./-]+@[\w.$]+`)
	exact     = regexp.MustCompile(`@v[0-9]+\.[0-9]+\.[0-9]+$`)
)

// unpinned returns the actions and programs in a text that may change without a change of the text.
func unpinned(text string) (loose []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := actionRE.FindStringSubmatch(line); m != nil {
			if _, action, _ := strings.Cut(line, "uses:"); !byHash.MatchString(strings.TrimSpace(action)) {
				loose = append(loose, m[1])
			}
			continue
		}
		for _, program := range programRE.FindAllString(line, -1) {
			if !exact.MatchString(program) {
				loose = append(loose, program)
			}
		}
	}
	return loose
}

func TestUnpinned(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for line, want := range map[string]string{
		"- uses: actions/checkout@" + hash + " # v4.2.2": "",
		"- uses: actions/checkout@" + hash:               "actions/checkout@" + hash, // nobody knows what that is
		"- uses: actions/checkout@v4":                    "actions/checkout@v4",
		"go run example.com/tool/cmd/tool@v1.2.3 ./...":  "",
		"go run example.com/tool/cmd/tool@latest":        "example.com/tool/cmd/tool@latest",
		"go install example.com/tool@v1.2":               "example.com/tool@v1.2",
		"mail somebody":                                  "",
	} {
		if got := unpinned("  " + line + "\n"); strings.Join(got, " ") != want || want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
