package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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

// What nginx includes in geo, allow and deny stays a file: the same clients are refused and led elsewhere, and what changes in a file changes
// whom Penstock refuses, without a reload.
func TestConvertedListsBesideNginx(t *testing.T) {
	need(t, "nginx")
	t.Parallel()
	web, other := speak(t, "web"), speak(t, "other")
	dir := t.TempDir()
	files := map[string]string{
		"drop.conf":     "# those who attack\ndeny 127.0.1.0/24;\ndeny\t127.0.2.7; # one\ndeny 2001:db8::/32;\n",
		"office.conf":   "allow 127.0.0.0/24;\n\nallow 127.0.3.0/30;\n",
		"mixed.conf":    "deny 127.0.1.5; allow 127.0.1.0/24;\nallow 127.0.0.0/24;\n",
		"blocked.geo":   "127.0.1.0/24 1;\n127.0.2.7 1;\n",
		"inside.geo":    "127.0.1.0/24 other;\n127.0.3.0/30 other;\n",
		"two.geo":       "127.0.1.0/24 other;\n127.0.1.5 web;\n127.0.2.0/24 \"\";\n",
		"d/one.conf":    "deny 127.0.2.9;\n",
		"d/two.conf":    "deny 127.0.3.1;\n",
		"geo-empty.geo": "127.0.3.0/24 '';\n",
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	servers := []string{
		"include drop.conf; proxy_pass web;",
		"include office.conf; deny all; proxy_pass web;",
		"include drop.conf; include office.conf; deny all; proxy_pass other;",
		"include office.conf; include drop.conf; deny all; proxy_pass web;",
		"include mixed.conf; deny all; proxy_pass web;",
		"include d/*.conf; proxy_pass web;",
		"proxy_pass $blocked_to;",
		"proxy_pass $inside;",
		"proxy_pass $two;",
		"proxy_pass $empty;",
	}
	text := streamModule() + "daemon off;\nmaster_process off;\npid " + dir + "/pid;\nevents {}\nstream {\n" +
		" upstream web { server " + web.Addr().String() + "; }\n upstream other { server " + other.Addr().String() + "; }\n" +
		" geo $blocked { default 0; include blocked.geo; }\n map $blocked $blocked_to { default web; 1 ''; }\n" +
		" geo $inside { default web; include inside.geo; }\n geo $two { default web; include two.geo; }\n" +
		" geo $remote_addr $empty { default other; 127.0.0.77 web; include geo-empty.geo; }\n"
	for i, s := range servers {
		text += " server { listen {" + string(rune('0'+i)) + "}; " + s + " }\n"
	}
	text = strings.ReplaceAll(text, "include ", "include "+dir+"/")
	theirs, ours, c := runBeside(t, "nginx.conf", len(servers), text+"}\n", func(file string) []string {
		return []string{"nginx", "-p", dir, "-e", filepath.Join(dir, "error"), "-c", file}
	})
	clients := []string{"127.0.0.1", "127.0.0.77", "127.0.1.1", "127.0.1.5", "127.0.2.7", "127.0.2.9", "127.0.3.1", "127.0.3.4", "127.9.9.9"}
	for i, s := range servers {
		outcomes := map[string]bool{}
		for _, from := range clients {
			a, b := reachedFrom(t, from, theirs[i]), reachedFrom(t, from, ours[i])
			outcomes[a] = true
			if a != b {
				t.Errorf("%q: %s reaches %q through nginx, %q through Penstock", s, from, a, b)
			}
		}
		if len(outcomes) < 2 {
			t.Errorf("%q: all clients have the same outcome", s)
		}
	}
	converted, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`drop: {file: ` + dir + `/drop.conf, lines: "deny *"}`, `office: {file: ` + dir + `/office.conf, lines: "allow *"}`, `blocked: {file: ` + dir + `/blocked.geo, lines: "* 1"}`,
		`inside: {file: ` + dir + `/inside.geo, lines: "* other"}`, `deny: [list:drop]`, `allow: [list:office]`, `from: list:blocked`, `from: list:inside`,
		`file: ` + dir + `/d/one.conf`, `deny: [list:one, list:two]`, "allow: [list:office]\n    deny: [list:drop]\n",
	} {
		if !strings.Contains(string(converted), want) {
			t.Errorf("no %s in\n%s", want, converted)
		}
	}
	for _, copied := range []string{"mixed", "two.geo", "geo-empty"} {
		if strings.Contains(string(converted), copied+".") {
			t.Errorf("%s is not copied:\n%s", copied, converted)
		}
	}
	write("drop.conf", "deny 127.9.9.9;\n")
	write("blocked.geo", "127.9.9.9 1;\n")
	testwait.Until(t, "who is new in the files is refused, and who is no more is not", func() bool {
		return reachedFrom(t, "127.9.9.9", ours[0]) == "" && reachedFrom(t, "127.0.1.1", ours[0]) == "web" &&
			reachedFrom(t, "127.9.9.9", ours[6]) == "" && reachedFrom(t, "127.0.1.1", ours[6]) == "web"
	})
}

// A file of HAProxy's that is too large for the converter to read is a list by its path.
func TestConvertedLargeListBesideHAProxy(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	web, other := speak(t, "web"), speak(t, "other")
	dir := t.TempDir()
	var b strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&b, "10.%d.%d.%d/32\n", i>>16, i>>8&255, i&255)
	}
	b.WriteString("127.0.1.0/24\n127.0.3.1\n")
	masks := strings.Replace(b.String(), "10.0.0.0/32", "10.0.0.0/255.255.255.255", 1)
	for name, text := range map[string]string{"large.lst": b.String(), "masks.lst": masks, "small.lst": "127.0.3.0/24\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil || len(text) < 4<<20 && name != "small.lst" {
			t.Fatal(err, len(text))
		}
	}
	rules := []string{
		"tcp-request connection reject if { src -f large.lst }",
		"tcp-request connection reject unless { src -f large.lst }",
		"tcp-request connection reject if { src -f large.lst -f small.lst 127.0.2.0/24 }",
		"use_backend other if { src -f large.lst }",
		"tcp-request connection reject if { src 127.0.1.5 }\n tcp-request connection accept if { src -f large.lst }\n tcp-request connection reject",
	}
	text := haproxyDefaults + "backend web\n server s " + web.Addr().String() + "\nbackend other\n server s " + other.Addr().String() + "\n"
	for i, f := range rules {
		text += "frontend f" + string(rune('0'+i)) + "\n bind {" + string(rune('0'+i)) + "}\n " + strings.ReplaceAll(f, "-f ", "-f "+dir+"/") + "\n default_backend web\n"
	}
	theirs, ours, _ := runBeside(t, "haproxy.cfg", len(rules), text, startHAProxy)
	for i, f := range rules {
		for _, from := range []string{"127.0.0.1", "127.0.1.1", "127.0.1.5", "127.0.2.9", "127.0.3.1", "127.0.3.4"} {
			if a, b := reachedFrom(t, from, theirs[i]), reachedFrom(t, from, ours[i]); a != b {
				t.Errorf("%q: %s reaches %q through HAProxy, %q through Penstock", f, from, a, b)
			}
		}
	}

	// Where nobody can say what a rule means without reading the file, it is left out, and said.
	at := " tcp-request connection "
	for rule, want := range map[string]string{
		" use_backend other if { src -f large.lst } { src 127.0.0.0/8 }\n":                               "too large to be read has no counterpart together with other addresses",
		at + "accept if { src -f large.lst }\n" + at + "reject if { src 127.0.1.5 }\n" + at + "reject\n": "the order of these rules has no counterpart",
		at + "accept if { src 127.0.1.5 }\n" + at + "reject if { src -f large.lst }\n" + at + "reject\n": "the order of these rules has no counterpart",
		at + "reject if { src -f masks.lst }\n":                                                          "is too large to be read, and no list of Penstock's",
		" use_backend other if { req.ssl_sni -f large.lst }\n":                                           "more than 4194304 bytes",
	} {
		file := filepath.Join(dir, "odd.cfg")
		text := haproxyDefaults + "frontend f\n bind 127.0.0.1:1\n" + strings.ReplaceAll(rule, "-f ", "-f "+dir+"/") + " default_backend web\nlisten web\n bind 127.0.0.1:2\n server s 127.0.0.1:3\nbackend other\n server s 127.0.0.1:4\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "convert", file).CombinedOutput()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, no %q in\n%s", rule, err, want, out)
		}
	}
}
