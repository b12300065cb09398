//go:build linux

package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHalfInstalled: an nginx without its stream module cannot be a peer, and the error says why.
// The module is found whether it is a file or built in.
func TestHalfInstalled(t *testing.T) {
	dir := t.TempDir()
	module := filepath.Join(dir, "ngx_stream_module.so")
	for _, c := range []struct {
		name, options string
		file          bool
		missing       string
		load          string
	}{
		{"no file", "--with-stream=dynamic --modules-path=" + dir, false, "without its stream module", ""},
		{"not configured", "--with-http_ssl_module", false, "without its stream module", ""},
		{"file", "--modules-path=" + dir + " --with-stream=dynamic", true, "", "load_module " + module + ";\n"},
		{"built in", "--with-stream --modules-path=" + dir, false, "", ""},
	} {
		script := "#!/bin/sh\necho nginx version: nginx/1.0\necho configure arguments: --prefix=/usr " + c.options + " >&2\n"
		if err := os.WriteFile(filepath.Join(dir, "nginx"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		os.Remove(module)
		if c.file {
			if err := os.WriteFile(module, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		line, err := findStreamModule(filepath.Join(dir, "nginx"))
		if c.missing == "" && err != nil || c.missing != "" && (err == nil || !strings.Contains(err.Error(), c.missing)) || line != c.load {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, line, err, c.load, c.missing)
		}
	}
}

// TestMissing: every peer reports what it lacks, and the others are usable.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, p := range All(Binaries{Penstock: os.Args[0], Envoy: "/nonexistent", Self: os.Args[0], Floor: "/nonexistent"}) {
		here := strings.HasPrefix(p.Name, "penstock") || p.Name == "stages"
		if err := p.Missing(); (err == nil) != here || p.Installed() != here {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}
