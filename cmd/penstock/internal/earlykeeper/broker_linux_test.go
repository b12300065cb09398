package earlykeeper

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, path string) string {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask makes the broker open something, and returns what was opened.
func ask(t *testing.T, p *Policy, request string) (*os.File, error) {
	t.Helper()
	fd, err := broker(p.Text(), request)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), request)
	t.Cleanup(func() { f.Close() })
	return f, nil
}

// The broker opens what the policy names, and nothing to which a worker could have led it.
func TestBroker(t *testing.T) {
	dir := folder(t)
	token := write(t, dir+"/secrets/v1/token", "token")
	link(t, "v1", dir+"/secrets/data")
	secret := link(t, "data/token", dir+"/secrets/token") // as Kubernetes mounts it
	shadow := write(t, dir+"/shadow", "shadow")
	conf := write(t, dir+"/etc/conf.d/a.yaml", "a")
	write(t, dir+"/etc/conf.d/b.key", "b")
	certificate := write(t, dir+"/etc/certs/a.pem", "a")
	write(t, dir+"/etc/certs/.hidden.pem", "a")
	write(t, dir+"/etc/certs/a.yaml", "a")
	write(t, dir+"/etc/certs/sub/a.pem", "a")
	log := dir + "/log/a.log"
	write(t, dir+"/log/other", "")
	p := &Policy{Mode: ModeOn, WritesNowhereElse: true, Files: []string{secret, token, dir + "/log/conf", "/proc/self/fd/0"}, Folders: []string{dir + "/etc/conf.d"}, Certificates: []string{dir + "/etc/certs"},
		Logs: []Log{{Path: log, Mode: 0o640}, {Path: dir + "/log/link", Mode: 0o640}, {Path: dir + "/log/other-name", Mode: 0o640}, {Path: dir + "/log/sub/a", Mode: 0o640}}, Write: []string{dir + "/log"}}
	link(t, shadow, dir+"/log/link")
	link(t, shadow, dir+"/log/conf")
	link(t, dir+"/etc", dir+"/log/sub")
	if err := os.Link(shadow, dir+"/log/other-name"); err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{Read(secret), Read(token), Read(conf), Read(dir + "/etc/conf.d"), Read(certificate), Read(dir + "/etc/certs")} {
		if _, err := ask(t, p, request); err != nil {
			t.Errorf("%s: %v", request, err)
		}
	}
	for _, request := range []string{Read(shadow), Read(dir + "/etc/conf.d/b.key"), Read(dir + "/etc/certs/.hidden.pem"), Read(dir + "/etc/certs/a.yaml"), Read(dir + "/etc/certs/sub/a.pem"), Read(dir + "/etc"), Read(log), Append(token), Append(shadow), Append(dir + "/log/other"),
		Read(dir + "/log/conf"), Append(dir + "/log/link"), Append(dir + "/log/other-name"), Append(dir + "/log/sub/a"), Read("/proc/self/fd/0"), "read", ""} {
		if f, err := ask(t, p, request); err == nil {
			t.Errorf("%s: opened %s", request, f.Name())
		}
	}
	for range 2 { // it is made, and then it is there
		f, err := ask(t, p, Append(log))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("line\n"); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(log)
	info, err2 := os.Stat(log)
	if err != nil || err2 != nil || string(text) != "line\nline\n" || info.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v, %v", text, info, err, err2)
	}
	for _, mode := range []string{"off", "log", ""} {
		q := *p
		if q.Mode = mode; true {
			if _, err := ask(t, &q, Read(token)); err == nil {
				t.Errorf("mode %q: opened", mode)
			}
		}
	}
	if _, err := broker("{", Read(token)); err == nil {
		t.Error("a policy that cannot be read: opened")
	}
}

// A path of the policy may lead through a folder where the worker writes. What is there is opened, and no link that the worker may have
// made there is followed, wherever the path begins.
func TestBrokerThroughWritableFolder(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/shadow", "shadow")
	write(t, dir+"/etc/certs/real.pem", "certificate")
	write(t, dir+"/run/real.pem", "certificate")
	write(t, dir+"/run/sub/real.pem", "certificate")
	write(t, dir+"/other/a.pem", "shadow")
	link(t, dir+"/shadow", dir+"/run/evil.pem")
	link(t, "../other", dir+"/run/folder")
	link(t, dir+"/run/real.pem", dir+"/etc/certs/a.pem")     // a file where the worker writes
	link(t, "../../run/evil.pem", dir+"/etc/certs/evil.pem") // which it has replaced by a link
	link(t, "evil.pem", dir+"/etc/certs/twice.pem")          // by way of another one
	link(t, dir+"/run", dir+"/alias")                        // the folder has two names
	link(t, "loop.pem", dir+"/etc/certs/loop.pem")
	link(t, dir+"/nothing", dir+"/etc/certs/dangling.pem")
	link(t, "/proc/self/fd/0", dir+"/etc/certs/magic.pem")
	if err := exec.Command("mkfifo", dir+"/etc/certs/fifo.pem").Run(); err != nil {
		t.Fatal(err)
	}
	link(t, "/dev/zero", dir+"/etc/certs/device.pem")
	p := &Policy{Mode: ModeOn, WritesNowhereElse: true, Certificates: []string{dir + "/etc/certs", dir + "/alias", dir + "/alias/folder", dir + "/alias/sub", dir + "/run"},
		Logs: []Log{{Path: dir + "/alias/folder/log", Mode: 0o640}, {Path: dir + "/alias/sub/log", Mode: 0o640}}, Write: []string{dir + "/run"}}
	for _, request := range []string{Read(dir + "/etc/certs/real.pem"), Read(dir + "/etc/certs/a.pem"), Read(dir + "/alias"), Read(dir + "/alias/real.pem"), Read(dir + "/alias/sub/real.pem"), Read(dir + "/run"), Append(dir + "/alias/sub/log")} {
		if _, err := ask(t, p, request); err != nil {
			t.Errorf("%s: %v", request, err)
		}
	}
	for _, request := range []string{Read(dir + "/etc/certs/evil.pem"), Read(dir + "/etc/certs/twice.pem"), Read(dir + "/alias/evil.pem"), Read(dir + "/alias/folder"), Read(dir + "/alias/folder/a.pem"), Append(dir + "/alias/folder/log"),
		Read(dir + "/etc/certs/loop.pem"), Read(dir + "/etc/certs/dangling.pem"), Read(dir + "/etc/certs/magic.pem"), Read(dir + "/etc/certs/fifo.pem"), Read(dir + "/etc/certs/device.pem")} {
		if f, err := ask(t, p, request); err == nil {
			text, _ := io.ReadAll(io.LimitReader(f, 100))
			t.Errorf("%s: opened %q", request, text)
		}
	}
}

// A worker in a sandbox names no binary that it may have written.
func TestCheckBinary(t *testing.T) {
	dir := folder(t)
	elsewhere, own := write(t, dir+"/bin/penstock", "x"), write(t, dir+"/run/penstock", "x")
	gone := write(t, dir+"/bin/gone", "x")
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	deleted := open(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	inside := Policy{Mode: ModeOn, WritesNowhereElse: true, Write: []string{dir + "/run"}}
	other := Policy{Mode: ModeOn, Becomes: true, UID: os.Getuid() + 1}
	same := Policy{Mode: ModeOn, Becomes: true, UID: os.Getuid()}
	for _, c := range []struct {
		name   string
		policy string
		file   *os.File
		good   bool
	}{
		{"elsewhere", inside.Text(), open(elsewhere), true},
		{"where it writes", inside.Text(), open(own), false},
		{"removed", inside.Text(), deleted, false},
		{"a folder", inside.Text(), open(dir), false},
		{"no Landlock, another user's", other.Text(), open(elsewhere), true},
		{"no Landlock, its own", same.Text(), open(elsewhere), false},
		{"only logging", (&Policy{Mode: "log"}).Text(), open(own), true},
		{"no sandbox", "", open(own), true},
		{"not a policy", "{", open(elsewhere), false},
	} {
		if err := checkBinary(c.policy, "", int(c.file.Fd())); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A shell that is named runs what is called "run" in the folder where the keeper is.
	t.Chdir(dir + "/run")
	if err := checkBinary(inside.Text(), "", int(open(elsewhere).Fd())); err == nil {
		t.Error("in a folder where the worker writes: no error")
	}
}
