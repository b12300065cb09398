//go:build linux

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/internal/peer"
)

// TestMain lets the test binary act as the relay that needs nothing installed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "gotls" || os.Args[1] == "engine") {
		main()
		return
	}
	os.Exit(m.Run())
}

// Some of the cases of each sort pass with crypto/tls, and the table says so.
func TestCases(t *testing.T) {
	w, err := newWorld(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if w.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	picked := pick("native/*,openssl/tls1_1,openssl/resume-tls1_3,openssl/client-*-tls1_3,openssl/staple,openssl/names,openssl/key-update")
	peers, err := peer.Pick(peer.Secured(peer.Binaries{Self: w.self}), "gotls")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := w.all(&out, picked, peers); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, c := range picked {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.name) + ` +(pass|-) `).MatchString(out.String()) {
			t.Errorf("no line of %s in\n%s", c.name, &out)
		}
	}
}

// A relay that breaks the rules fails.
func TestFailures(t *testing.T) {
	w, err := newWorld(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if w.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	up, err := newUpstream() // it talks plain TCP
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	broken := &target{world: w, addr: up.Addr().String(), upstream: up}
	for _, c := range pick("native/up-half-tls1_3,native/garbage,native/oversized,openssl/verify") {
		if err := c.run(broken); err == nil {
			t.Errorf("%s passes without TLS", c.name)
		}
	}
}

// Names are unique, and each of them says what passes.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name] || c.what == "" || strings.ContainsAny(c.name, " ,*") {
			t.Errorf("case %q: %q", c.name, c.what)
		}
		seen[c.name] = true
	}
}
