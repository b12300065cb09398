package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testwait"
)

// A list in a folder that only root may enter is read by a worker that is somebody else and in a sandbox, and again when it is replaced; a bad
// one leaves what was there, also in the worker after a crash of one that had it.
func TestListOfRoot(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	if err := os.Mkdir(dir+"/lists", 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(dir+"/lists/new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+"/lists/new", dir+"/lists/bad.txt"); err != nil {
			t.Fatal(err)
		}
	}
	put("# nobody of this host\n192.0.2.0/24\n")
	text := `keeper: {keep-after: 0, max-restart-delay: 100ms}
lists: {bad: {file: '{dir}/lists/bad.txt', every: 1s}}
listeners:
  web: {listen: 'tcp://127.0.0.1:0', deny: ['list:bad'], to: 'echo:'}
  other: {listen: 'tcp://127.0.0.1:0', routes: [{from: ['list:bad'], to: 'echo:'}], to: 'discard:'}
`
	if os.Getuid() == 0 {
		text += "sandbox: {user: '65534:65534'}\n"
	}
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, text)
	k.begin(t, exec.Command(binary, "run", "-c", k.file))
	k.endWorker(t)
	testwait.Until(t, "the API answers", k.answers)
	list := func() (l api.List) {
		if all, err := k.admin.Lists(k.ctx()); err == nil && len(all.Lists) == 1 {
			l = all.Lists[0]
		}
		return l
	}
	echoes := func(listener string) bool {
		c, err := net.Dial("tcp", k.at(listener).String())
		if err != nil {
			return false
		}
		defer c.Close()
		if _, err := c.Write([]byte("ping")); err != nil {
			return false
		}
		n, err := c.Read(make([]byte, 4))
		return n == 4 && err == nil
	}
	if !echoes("web") {
		t.Error("a client that is in no list is refused")
	}
	put("127.0.0.0/8\n192.0.2.0/24\n")
	testwait.Until(t, "the list has two networks", func() bool { return list().Networks == 2 })
	if echoes("web") {
		t.Error("a client that is in the list is admitted")
	}
	if !echoes("other") || list().Hits != 2 {
		t.Errorf("a client that is in the list has another route, or is not counted: %d", list().Hits)
	}
	put("<html>\n")
	testwait.Until(t, "the list is refused", func() bool { return list().Error != "" })
	if l := list(); l.Networks != 2 || echoes("web") || !strings.Contains(l.Error, "1 of 1 lines are not networks: line 1") {
		t.Errorf("%+v", l)
	}
	if code, out := k.command("reload"); code == 0 || !strings.Contains(out, "bad.txt: 1 of 1 lines are not networks") {
		t.Errorf("exit code %d: %s", code, out)
	}
	put("127.0.0.1\n")
	testwait.Until(t, "the list is good", func() bool { return list().Error == "" })
	k.end(syscall.SIGKILL)
	k.started(1)
	if l := list(); l.Networks != 1 || l.Hits < 2 || echoes("web") {
		t.Errorf("after a crash: %+v", l)
	}
	put("192.0.2.0/24\n")
	testwait.Until(t, "the client is admitted again", func() bool { return echoes("web") })
	if code, out := k.command("lists"); code != 0 || !strings.Contains(out, "bad") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A list from a URL that cannot be reached at a start is as it was, if there is a folder for that.
func TestListFromDisk(t *testing.T) {
	t.Parallel()
	var text atomic.Pointer[string] // nil: the server fails
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s := text.Load(); s != nil {
			io.WriteString(w, *s)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	put := func(s string) { text.Store(&s) }
	put("127.0.0.1\n192.0.2.0/24\n")
	dir := shortDir(t)
	k := &kept{configured: &configured{dir: dir, file: dir + "/penstock.yaml"}}
	k.write(t, `keeper: {}
lists: {bad: {url: '{0}/list', every: 1s}}
listeners: {web: {listen: 'tcp://127.0.0.1:0', deny: ['list:bad'], to: 'echo:'}}
`, server.URL)
	list := func() (l api.List) {
		if all, err := k.admin.Lists(k.ctx()); err == nil && len(all.Lists) == 1 {
			l = all.Lists[0]
		}
		return l
	}
	start := func() {
		t.Helper()
		k.begin(t, exec.Command(binary, "run", "-c", k.file, "--state", dir+"/state"))
		k.endWorker(t)
		testwait.Until(t, "the API answers", k.answers)
	}
	start()
	testwait.Until(t, "the list is loaded", func() bool { return list().Networks == 2 })
	text.Store(nil)
	testwait.Until(t, "the list is loaded no more", func() bool { return list().Error != "" })
	was := list()
	k.cmd.Process.Signal(syscall.SIGTERM)
	k.cmd.Wait()
	start()
	if l := list(); l.Networks != 2 || !l.Saved || l.Loaded.IsZero() || l.Loaded.After(was.Loaded) {
		t.Errorf("%+v", l)
	}
	if echoes(k.configured, "web") {
		t.Error("a client of the list is admitted")
	}
	testwait.Until(t, "the list fails", func() bool { return list().Error != "" })
	if l := list(); l.Networks != 2 || !l.Saved || k.metric("penstock_list_saved", `list="bad"`) != 1 {
		t.Errorf("%+v", l)
	}
	if code, out := k.command("lists"); code != 0 || !strings.Contains(out, ", saved") {
		t.Errorf("exit code %d: %s", code, out)
	}
	put("192.0.2.0/24\n")
	testwait.Until(t, "the list is loaded again", func() bool { l := list(); return l.Networks == 1 && !l.Saved })
	saved := func(name string) bool {
		_, err := os.Stat(dir + "/state/list-" + name + ".txt")
		return err == nil
	}
	if !saved("bad") {
		t.Error("the list is not saved")
	}
	k.write(t, `keeper: {}
lists: {worse: {url: '{0}/list', every: 1s}}
listeners: {web: {listen: 'tcp://127.0.0.1:0', deny: ['list:worse'], to: 'echo:'}}
`, server.URL)
	k.reload()
	testwait.Until(t, "what was saved of the list that is gone is removed, and the new one is there", func() bool { return !saved("bad") && saved("worse") })
}
