package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// A configuration in which a listener relays to itself, directly or through others, is an error.
func TestLoopsAreRefused(t *testing.T) {
	t.Parallel()
	port, other := testnet.Port(t), testnet.Port(t)
	for name, text := range map[string]string{
		"itself":       `{l: {listen: "tcp://127.0.0.1:{0}", to: "tcp://127.0.0.1:{0}"}}`,
		"all":          `{l: {listen: "tcp://:{0}", to: "tcp://127.0.0.2:{0}"}}`,
		"unspecified":  `{l: {listen: "tcp://127.0.0.1:{0}", to: "tcp://0.0.0.0:{0}"}}`,
		"a circle":     `{l: {listen: "tcp://127.0.0.1:{0}", to: "tcp://127.0.0.1:{1}"}, m: {listen: "tcp://127.0.0.1:{1}", to: "tcp://127.0.0.1:{0}"}}`,
		"by a path":    `{l: {listen: "unix://{dir}/s", to: "unix://{dir}/s"}}`,
		"by datagrams": `{l: {listen: "udp://127.0.0.1:{0}", to: "udp://127.0.0.1:{0}"}}`,
	} {
		dir := shortDir(t)
		file := filepath.Join(dir, "penstock.yaml")
		if err := os.WriteFile(file, []byte("listeners: "+places(dir, text, []any{port, other})), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := command(t, "check", "-c", file); code != 2 || !strings.Contains(out, "leads back to listener l (l > ") || !strings.HasPrefix(out, file+":1:") {
			t.Errorf("%s: check: %d, %s", name, code, out)
		}
		if out, code := command(t, "run", "-c", file); code != 2 || !strings.Contains(out, file+":1:") || !strings.Contains(out, "leads back to listener l (l > ") {
			t.Errorf("%s: run: %d, %s", name, code, out)
		}
	}
	// A chain is not a loop, and neither is the same port of another protocol.
	up := speak(t, "up")
	d := runFile(t, `
listeners:
  outer: {listen: "tcp://127.0.0.1:{1}", to: "tcp://127.0.0.1:{2}"}
  inner: {listen: "tcp://127.0.0.1:{2}", to: "{0}"}
  other: {listen: "udp://127.0.0.1:{1}", to: "udp://127.0.0.1:{2}"}
`, up.url(), port, other)
	c := d.to("outer")
	if n := name(t, c); n != "up" {
		t.Error(n)
	}
}

// A name that resolves to the listener itself costs a few flows, not every descriptor.
func TestLoopByName(t *testing.T) {
	t.Parallel()
	port := testnet.Port(t)
	d := runFile(t, `listeners: {l: {listen: "tcp://127.0.0.1:{0}", to: "tcp://localhost:{0}"}}`, port)
	visit := func() {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.ReadAll(c)
	}
	log := filepath.Join(d.dir, "access.log")
	testwait.Until(t, "a flow is refused", func() bool {
		visit()
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), `"reason":"loop"`)
	})
	text, _ := os.ReadFile(log)
	before := strings.Count(string(text), "\n")
	visit()
	for _, r := range d.records(before + 1)[before:] {
		mustBe(t, r, "cause", "no-upstream", "reason", "loop")
	}
	if s, err := d.admin.Status(d.ctx()); err != nil || s.Resources.FDs > 1000 {
		t.Errorf("%d descriptors, %v", s.Resources.FDs, err)
	}
	d.line("member leads back to its listener; it gets no flows")
}

// Flows go to the members that do not lead back.
func TestLoopIsPassedOver(t *testing.T) {
	t.Parallel()
	port, up := testnet.Port(t), speak(t, "up")
	d := runFile(t, `
listeners: {l: {listen: "tcp://127.0.0.1:{0}", to: g}}
groups: {g: {balance: first, retries: 0, members: ["tcp://localhost:{0}", "{1}"]}}
`, port, up.url())
	d.line("member leads back to its listener; it gets no flows")
	for range 3 {
		c := d.to("l")
		if n := name(t, c); n != "up" {
			t.Errorf("a client went to %s", n)
		}
		c.Close()
	}
	records := d.records(3)
	for _, r := range records[len(records)-3:] {
		mustBe(t, r, "cause", "end", "member", up.url())
	}
}
