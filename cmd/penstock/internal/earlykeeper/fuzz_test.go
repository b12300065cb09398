package earlykeeper

import (
	"path"
	"strings"
	"testing"
)

func TestRequest(t *testing.T) {
	for _, text := range []string{"", "read", "read ", "read etc/passwd", "read /etc/../etc/shadow", "read //etc", "read /a/", "write /a", "append  /a", "read /a\x00b", "READ /a",
		"read /" + strings.Repeat("a", maxPath)} {
		if r, err := parseRequest(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
	for text, want := range map[string]request{Read("/a b"): {path: "/a b"}, Append("/var/log/a"): {append: true, path: "/var/log/a"}, Read("/"): {path: "/"}} {
		if r, err := parseRequest(text); err != nil || r != want {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

func TestPolicyAllows(t *testing.T) {
	p := Policy{Files: []string{"/etc/penstock.yaml"}, Folders: []string{"/etc/conf.d", "/etc"}}
	for file, want := range map[string]bool{
		"/etc/penstock.yaml": true, "/etc/conf.d": true, "/etc/conf.d/a.yaml": true, "/etc/conf.d/a.yml": true, "/etc/x.yaml": true,
		"/etc/shadow": false, "/etc/conf.d/.a.yaml": false, "/etc/conf.d/a/b.yaml": false, "/etc/conf.d/key": false, "/": false, "/etc/penstock.yaml/x": false,
	} {
		if p.allows(file) != want {
			t.Errorf("%s: %t", file, !want)
		}
	}
	q, err := ParsePolicy(p.Text())
	if err != nil || q.Text() != p.Text() {
		t.Errorf("%+v, %v", q, err)
	}
}

// What a request says is in the policy word for word, or nothing is opened; and its path leads nowhere else.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{"read /etc/a", "append /var/log/a", "read /etc/conf.d/a.yaml", "read /etc/conf.d/../shadow", "append /etc/a", "read "} {
		f.Add(text)
	}
	p := Policy{Mode: ModeOn, Files: []string{"/etc/a"}, Folders: []string{"/etc/conf.d"}, Logs: []Log{{Path: "/var/log/a"}}}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRequest(text)
		if err != nil {
			return
		}
		if !path.IsAbs(r.path) || path.Clean(r.path) != r.path || text != map[bool]string{false: Read(r.path), true: Append(r.path)}[r.append] {
			t.Fatalf("%q: %+v", text, r)
		}
		if p.allows(r.path) && r.path != "/etc/a" && r.path != "/etc/conf.d" && path.Dir(r.path) != "/etc/conf.d" {
			t.Fatalf("%q may be read", r.path)
		}
	})
}

// A policy that can be read says the same when it is written again, and what it does not name is not allowed.
func FuzzPolicy(f *testing.F) {
	f.Add((&Policy{Mode: ModeOn, Files: []string{"/etc/a"}, Folders: []string{"/etc"}, Certificates: []string{"/certs"}, Logs: []Log{{"/var/log/a", 0o640}}, Write: []string{"/run"}, WritesNowhereElse: true, Sandbox: []byte("{}")}).Text(), "/etc/a")
	f.Add(`{"mode":"off"}`, "/")
	f.Add(`{"files":[1]}`, "")
	f.Fuzz(func(t *testing.T, text, file string) {
		p, err := ParsePolicy(text)
		if err != nil {
			return
		}
		q, err := ParsePolicy(p.Text())
		if err != nil || q.Text() != p.Text() {
			t.Fatalf("%q: %+v, %v", text, q, err)
		}
		if len(p.Files)+len(p.Folders)+len(p.Certificates) == 0 && p.allows(file) {
			t.Fatalf("%q allows %q", text, file)
		}
		if root, yes := p.writable(file); yes && root != "/" && !strings.HasPrefix(file, root) {
			t.Fatalf("%q: %q is beneath %q", text, file, root)
		}
	})
}
