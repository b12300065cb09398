//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestCanary runs the program with one harmless version and one outage, so that it does not rot. How they end is not looked at:
// on a busy machine they may end otherwise.
func TestCanary(t *testing.T) {
	s := settings{publishes: 1, relays: 2, rate: 10, wait: time.Second, share: "50%", seed: 1, only: "a comment|member closes", warm: time.Second}
	var out bytes.Buffer
	s.Out = &out
	if _, err := s.run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "1 harmless versions and 1 outages, of which ") {
		t.Error(out.String())
	}
}

// Each version differs from the one before, and each outage from all others.
func TestVersions(t *testing.T) {
	m := &members{urls: map[string]string{}}
	for _, name := range []string{"one", "two", "closes", "silent", "resets", "breaks", "error", "proxied", "far", "late", "dead", "tls-a", "tls-b", "udp", "udp-silent"} {
		m.urls[name] = "tcp://127.0.0.1:" + name
	}
	m.pair.Certificate, m.pair.Key, m.wrong.Certificate, m.wrong.Key = "/cert", "/key", "/wrong-cert", "/wrong-key"
	f := &fleet{text: base(m)}
	seen := map[string]string{f.text: "the first one"}
	for i := range 50 {
		v := f.harmless(i)
		if was, ok := seen[v.text]; ok {
			t.Errorf("version %d, %s, is %s", i, v.name, was)
		}
		seen[v.text], f.text = v.name, v.text
	}
	for i := range outages {
		o := &outages[i]
		v := f.outage(o, m)
		if was, ok := seen[v.text]; ok {
			t.Errorf("the outage %s is %s", o.name, was)
		}
		seen[v.text] = o.name
	}
}
