package archtest

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWithoutRace tries .ci/withoutrace.go, by which the check decides what runs without the race detector: a test that it overlooked would run nowhere.
func TestWithoutRace(t *testing.T) {
	script, err := filepath.Abs("../../.ci/withoutrace.go")
	if err != nil {
		t.Fatal(err)
	}
	const none = "func TestOther(t *testing.T) {}\n"
	for name, c := range map[string]struct{ code, want string }{
		"directly":       {"func TestAsks(t *testing.T) { if testnet.RaceEnabled { t.Skip() } }\n", "TestAsks"},
		"function":       {"func TestAsks(t *testing.T) { a(t) }\nfunc a(t *testing.T) { b(t) }\nfunc b(t *testing.T) { testnet.OneGoroutine(t) }\n", "TestAsks"},
		"method":         {"type x struct{}\nfunc (x) skip(t *testing.T) { _ = raceEnabled }\nfunc TestAsks(t *testing.T) { x{}.skip(t) }\n", "TestAsks"},
		"variable":       {"var n = func() int { if raceEnabled { return 1 }; return 2 }()\nfunc FuzzAsks(f *testing.F) { f.Add(n) }\n", "FuzzAsks"},
		"call":           {"func ExampleAsks() { testnet.AlsoWithoutRace(nil) }\n", "ExampleAsks"},
		"TestMain":       {"func TestMain(m *testing.M) { if testnet.RaceEnabled { return }; m.Run() }\n", "TestOther"},
		"package":        {"", "TestOther"},
		"none":           {"", ""},
		"constraint":     {"", "!must not depend"},
		"name in string": {"func TestMentions(t *testing.T) { t.Log(`RaceEnabled`) } // RaceEnabled\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("go.mod", "module m\n")
			write("a_test.go", "package m\n"+c.code+none)
			switch name {
			case "package":
				write("a.go", "package m\nfunc f() bool { return raceEnabled }\n")
			case "constraint":
				write("b_test.go", "//go:build linux && !race\n\npackage m\nfunc TestPlain(t *testing.T) {}\n")
			}
			cmd := exec.Command("go", "run", script, "./...")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
			out, err := cmd.CombinedOutput()
			switch got := string(out); {
			case strings.HasPrefix(c.want, "!"):
				if err == nil || !strings.Contains(got, c.want[1:]) {
					t.Errorf("%v, %s", err, got)
				}
			case c.want == "":
				if err == nil || !strings.Contains(got, "no test asks") {
					t.Errorf("%v, %s", err, got)
				}
			default:
				if want := "-run ^(" + c.want + ")$ m\n"; err != nil || got != want {
					t.Errorf("%v, %q, want %q", err, got, want)
				}
			}
		})
	}
}

// What is not a test may ask in these packages only: .ci/withoutrace.go does not look into what a package imports.
func TestWhoAsks(t *testing.T) {
	asking := map[string]string{
		"internal/testnet": "it is what tests ask",
		"internal/sys":     "it tells the detector what system calls read and write, and does nothing else then",
		"pool":             "its own tests run with and without it; objects that come back from a pool are its users' own",
	}
	for _, f := range tree(t) {
		if f.test || asking[f.pkg] != "" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && slices.Contains([]string{"RaceEnabled", "raceEnabled", "OneGoroutine", "AlsoWithoutRace"}, id.Name) {
				t.Errorf("%s: %s: let the test ask, or its package's tests", f.path, id.Name)
			}
			return true
		})
	}
}
