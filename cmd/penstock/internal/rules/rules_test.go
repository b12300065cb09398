package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
)

// A check warns of kernel: auto where the kernel has no TLS, and asks the kernel nothing that would load it.
func TestCheckKernelTLS(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "penstock.yaml")
	text := "listeners: {l: {listen: \"tcp://127.0.0.1:1\", to: g}}\ngroups:\n  g:\n    members: [\"tcp://127.0.0.1:2\"]\n    tls: {kernel: auto}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	before := availableULPs
	defer func() { availableULPs = before }()
	availableULPs = filepath.Join(dir, "ulps")
	for ulps, want := range map[string]string{"espintcp mptcp tls\n": "", "espintcp mptcp\n": file + ":5:19: groups.g.tls.kernel: " + errNoKernelTLS.Error()} {
		if err := os.WriteFile(availableULPs, []byte(ulps), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := (&config.Source{Paths: []string{file}}).Load(OnHost(false)...)
		if err != nil || strings.TrimSpace(warnings.String()) != want {
			t.Errorf("%q: %v, %s\nwant %s", ulps, err, warnings, want)
		}
	}
}

// What this host has decides whether an access log can be: a folder is an error at its place, a
// folder that is not there a warning. A listener that relays to itself has its place, too.
func TestRulesAboutThisHost(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "penstock.yaml")
	for _, c := range []struct{ listener, log, errs, warnings string }{
		{`{listen: "tcp://127.0.0.1:1", to: "echo:"}`, "access.log", "", ""},
		{`{listen: "tcp://127.0.0.1:1", to: "echo:"}`, dir, file + ":2:18: access-log.to: " + dir + " is a folder; allowed: a file in it, such as " + dir + "/access.log", ""},
		{`{listen: "tcp://127.0.0.1:1", to: "echo:"}`, "no/such/access.log", "", file + ":2:18: access-log.to: the folder " + dir + "/no/such does not exist: the log could not be opened now"},
		{`{listen: "tcp://127.0.0.1:1", to: "tcp://127.0.0.1:1"}`, "stdout", file + ":1:50: listeners.l.to: tcp://127.0.0.1:1 leads back to listener l (l > l); allowed: members that do not lead back to it", ""},
		{`{listen: "tcp://127.0.0.1:1", routes: [{from: 10.0.0.0/8, to: "tcp://127.0.0.1:1"}], to: "echo:"}`, "stdout", file + ":1:78: listeners.l.routes[0].to: tcp://127.0.0.1:1 leads back to listener l (l > l); allowed: members that do not lead back to it", ""},
	} {
		text := fmt.Sprintf("listeners: {l: %s}\naccess-log: {to: %s}\n", c.listener, c.log)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := (&config.Source{Paths: []string{file}}).Load(OnHost(false)...)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.errs || strings.TrimSpace(warnings.String()) != c.warnings {
			t.Errorf("%s\ngot  %s, %s\nwant %s, %s", text, got, warnings, c.errs, c.warnings)
		}
	}
}
