package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// The check's step fails for a function with a known vulnerability that is called, and only then. Without
// a network it says that nothing was checked.
func TestVulns(t *testing.T) {
	if testnet.RaceEnabled {
		t.Skip("nothing here is concurrent")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		// https://go.dev/doc/security/vuln/database
		"db/index/db.json":      `{"modified": "2026-01-02T03:04:05Z"}`,
		"db/index/modules.json": `[{"path": "stdlib", "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-02T03:04:05Z"}]}]`,
		"db/index/vulns.json":   `[{"id": "GO-2026-0001", "modified": "2026-01-02T03:04:05Z"}]`,
		"db/ID/GO-2026-0001.json": `{"schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-01-02T03:04:05Z", "published": "2026-01-02T03:04:05Z", "details": "made up", "database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-0001"},
			"affected": [{"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
				"ecosystem_specific": {"imports": [{"path": "path", "symbols": ["Join"]}]}}]}`,
		"go.mod":           "module example.com/vulns\n\ngo 1.26.0\n",
		"calls/calls.go":   "package main\n\nimport \"path\"\n\nfunc main() { println(path.Join(\"a\", \"b\")) }\n",
		"imports/other.go": "package main\n\nimport \"path\"\n\nfunc main() { println(path.Base(\"a\")) }\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs(filepath.Join(root, ".ci", "vulns"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, env, pkg string
		fails          bool
		says           string
	}{
		{"called", "GOVULNDB=file://" + dir + "/db", "./calls", true, "exit status 3"},
		{"only imported", "GOVULNDB=file://" + dir + "/db", "./imports", false, ""},
		{"a database that is not there", "GOVULNDB=file://" + dir + "/none", "./imports", true, "no such file"},
		// Nothing listens on port 1. The tool itself is in the cache of modules by now.
		{"no network", "https_proxy=http://127.0.0.1:1", "./calls", false, "not checked: vuln.go.dev cannot be reached"},
	} {
		if c.name == "no network" {
			t.Setenv("GOPROXY", "file://"+strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))+"/cache/download")
			t.Setenv("GONOSUMDB", "*")
		}
		cmd := exec.Command(script, c.pkg)
		cmd.Dir = dir
		for _, v := range os.Environ() {
			if name, _, _ := strings.Cut(v, "="); !strings.EqualFold(name, "GOVULNDB") && !strings.EqualFold(name, "https_proxy") && !strings.EqualFold(name, "no_proxy") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "GOWORK=off", c.env)
		out, err := cmd.CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.says) || c.says == "" && len(out) > 0 || !c.fails && strings.Count(string(out), "\n") > 1 {
			t.Errorf("%s: %v, it says %q; want %q", c.name, err, out, c.says)
		}
	}
}
