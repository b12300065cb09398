package sandboxneeds

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/sandbox"
)

// Certificates of authorities are read in the sandbox only if all of them can be.
func TestReadsAuthorities(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(dir, path) }
	for _, folder := range []string{"allowed/certs", "allowed/more", "allowed/stray", "other", "private"} {
		if err := os.MkdirAll(at(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{"allowed/ca.pem": 0o644, "allowed/private.pem": 0o600, "other/ca.pem": 0o644, "private/ca.pem": 0o644} {
		if err := os.WriteFile(at(path), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link.pem": at("other/ca.pem"), "allowed/link.pem": at("other/ca.pem"), "other/link.pem": at("allowed/ca.pem"),
		"allowed/certs/a.pem": "../ca.pem", "allowed/certs/b.pem": at("allowed/ca.pem"), "allowed/stray/a.pem": at("other/ca.pem")} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for dir := dir; dir != "/"; dir = filepath.Dir(dir) { // folders of tests are their user's
		at, err := os.Stat(dir)
		if err == nil && at.Mode()&1 == 0 {
			err = os.Chmod(dir, at.Mode()|1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(at("private"), 0o700); err != nil {
		t.Fatal(err)
	}
	user := &sandbox.User{UID: 12345, GID: 12345}
	for _, c := range []struct {
		file, folder string
		policy       sandbox.Policy
		want         bool
	}{
		{"allowed/ca.pem", "none", sandbox.Policy{Read: []string{at("allowed")}}, true},
		{"allowed/ca.pem", "none", sandbox.Policy{Read: []string{at("allowed/ca.pem")}}, true},
		{"allowed/ca.pem", "none", sandbox.Policy{Read: []string{at("allowed")}, User: user}, true},
		{"allowed/ca.pem", "none", sandbox.Policy{}, false},
		{"allowed/ca.pem", "none", sandbox.Policy{AnyFile: true}, true},
		{"allowed/private.pem", "none", sandbox.Policy{Read: []string{at("allowed")}}, true},
		{"allowed/private.pem", "none", sandbox.Policy{Read: []string{at("allowed")}, User: user}, false},
		{"private/ca.pem", "none", sandbox.Policy{Read: []string{at("private")}, User: user}, false},
		{"other/ca.pem", "none", sandbox.Policy{Read: []string{at("allowed")}}, false},
		{"other/link.pem", "none", sandbox.Policy{Read: []string{at("allowed")}}, true},
		{"allowed/link.pem", "none", sandbox.Policy{Read: []string{at("allowed")}}, false},
		{"other/ca.pem", "none", sandbox.Policy{Read: []string{at("link.pem")}}, true}, // the kernel follows it, too
		{"none", "allowed/certs", sandbox.Policy{Read: []string{at("allowed")}}, true},
		{"none", "allowed/certs", sandbox.Policy{Read: []string{at("allowed/certs")}}, false}, // but not what its links lead to
		{"none", "allowed/stray", sandbox.Policy{Read: []string{at("allowed")}}, false},
		{"none", "allowed/stray", sandbox.Policy{AnyFile: true}, true},
		{"allowed/ca.pem", "other", sandbox.Policy{Read: []string{at("allowed")}}, false},
		{"none", "none", sandbox.Policy{AnyFile: true}, false}, // nobody knows where they are
	} {
		t.Setenv("SSL_CERT_FILE", at(c.file))
		t.Setenv("SSL_CERT_DIR", at(c.folder)+":"+at("none"))
		if got := ReadsAuthorities(&c.policy); got != c.want {
			t.Errorf("%s and %s with %+v: %v, want %v", c.file, c.folder, c.policy, got, c.want)
		}
	}
}
