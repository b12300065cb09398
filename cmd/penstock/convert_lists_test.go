package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// reachedFrom is reached by a client with an address of this host; the connection is closed.
func reachedFrom(t *testing.T, from, at string) string {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", at)
	if err != nil {
		return ""
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	name, err := readName(c)
	if err != nil && strings.Contains(err.Error(), "timeout") {
		t.Fatal(err)
	}
	return name
}

// HAProxy's ACL files stay files: the same clients are refused and led elsewhere, and what changes in a file changes whom Penstock refuses,
// without a reload.
func TestConvertedListsBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	web, other := speak(t, "web"), speak(t, "other")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("drop.lst", "# those who attack\n127.0.1.0/24\n127.0.2.7\n2001:db8::/32\n")
	write("office.lst", "127.0.0.0/24\n127.0.3.0/30\n\n127.0.1.5\n")
	write("masks.lst", "127.0.2.0/255.255.255.0\n")
	rules := []string{
		"tcp-request connection reject if { src -f drop.lst }",
		"acl office src -f office.lst\n tcp-request connection reject unless office",
		"tcp-request connection reject if !{ src -f office.lst 127.0.2.9 }",
		"acl office src -f office.lst\n use_backend other if office",
		"tcp-request connection reject if { src -f masks.lst }",
		"tcp-request connection reject if { src -f drop.lst -f office.lst }",
		"tcp-request connection accept if { src -f office.lst }\n tcp-request connection reject",
		"tcp-request connection reject if { src -f drop.lst }\n use_backend other if { src -f office.lst } { src 127.0.3.0/24 }",
	}
	text := haproxyDefaults + "backend web\n server s " + web.Addr().String() + "\nbackend other\n server s " + other.Addr().String() + "\n"
	for i, f := range rules {
		f = strings.ReplaceAll(f, "-f ", "-f "+dir+"/")
		text += "frontend f" + string(rune('0'+i)) + "\n bind {" + string(rune('0'+i)) + "}\n " + f + "\n default_backend web\n"
	}
	theirs, ours, c := runBeside(t, "haproxy.cfg", len(rules), text, startHAProxy)
	clients := []string{"127.0.0.1", "127.0.0.77", "127.0.1.1", "127.0.1.5", "127.0.2.7", "127.0.2.9", "127.0.3.1", "127.0.3.4", "127.9.9.9"}
	for i, f := range rules {
		outcomes := map[string]bool{}
		for _, from := range clients {
			a, b := reachedFrom(t, from, theirs[i]), reachedFrom(t, from, ours[i])
			outcomes[a] = true
			if a != b {
				t.Errorf("%q: %s reaches %q through HAProxy, %q through Penstock", f, from, a, b)
			}
		}
		if len(outcomes) < 2 {
			t.Errorf("%q: all clients have the same outcome", f)
		}
	}
	converted, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drop: {file: " + dir + "/drop.lst}", "office: {file: " + dir + "/office.lst}", `deny: [list:drop]`, `allow: [list:office]`, `allow: [127.0.2.9/32, list:office]`, `from: list:office`, "deny: [127.0.2.0/24]", `deny: [list:drop, list:office]`} {
		if !strings.Contains(string(converted), want) {
			t.Errorf("no %s in\n%s", want, converted)
		}
	}
	write("drop.lst", "127.9.9.9\n")
	testwait.Until(t, "who is new in the file is refused, and who is no more is not", func() bool {
		return reachedFrom(t, "127.9.9.9", ours[0]) == "" && reachedFrom(t, "127.0.1.1", ours[0]) == "web"
	})
}
