package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// tool runs a command of the binary and returns its output.
func tool(t *testing.T, env, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &err
	var exit *exec.ExitError
	if e := cmd.Run(); e != nil && !errors.As(e, &exit) {
		t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// mustReach connects to a listener and checks that the connection arrives at a speaker.
func (c *configured) mustReach(listener, speaker string) {
	c.t.Helper()
	conn := c.to(listener)
	defer conn.Close()
	if got := name(c.t, conn); got != speaker {
		c.t.Errorf("a client of %s is at %s, want %s", listener, got, speaker)
	}
}

// A daemon with layers, a folder of included files and variables: the contents of each file apply,
// a reload and the watch see a new file, and check and explain read the same configuration.
func TestComposed(t *testing.T) {
	t.Parallel()
	one, two := speak(t, "one"), speak(t, "two")
	dir := shortDir(t)
	write := func(name, text string, values ...any) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path+".new", []byte(places(dir, text, values)), 0o644), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	write("penstock.yaml", `include: conf.d
admin: {listen: "unix://{dir}/admin.sock"}
log: {flows: all}
reload: {watch: "${PENSTOCK_TEST_WATCH:-true}"}
`)
	write("conf.d/10-web.yaml", "listeners: {web: {listen: 'tcp://127.0.0.1:0', to: api}}\ngroups: {api: {members: ['${PENSTOCK_TEST_API}']}}\n")
	write("layer.yaml", "log: {level: debug}\n")
	main, layer := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "layer.yaml")

	_, stderr, code := tool(t, "X=", "", "check", "-c", main)
	if want := filepath.Join(dir, "conf.d/10-web.yaml") + ":2:26: the environment variable PENSTOCK_TEST_API is not set; allowed: a variable that is set, or ${PENSTOCK_TEST_API:-DEFAULT}\n"; code != 2 || stderr != want {
		t.Errorf("check without the variable: %d, %q, want %q", code, stderr, want)
	}

	c := &configured{dir: dir, file: main}
	cmd := exec.Command(binary, "run", "-c", main, "-c", layer)
	cmd.Env = append(os.Environ(), "PENSTOCK_TEST_API="+one.url())
	c.begin(t, cmd)
	c.mustReach("web", "one")

	// What a reload would change is asked of the same files, and the API shows no values of variables.
	if diff, err := c.admin.FileDiff(c.ctx()); err != nil || len(diff.Changes) > 0 {
		t.Errorf("what a reload would change: %+v, %v", diff, err)
	}
	if shown, err := c.admin.Config(c.ctx()); err != nil || strings.Contains(shown.Text, one.url()) || !strings.Contains(shown.Text, "${PENSTOCK_TEST_API}") {
		t.Errorf("the running configuration: %v\n%s", err, shown.Text)
	}

	// A new file in the folder is read without a request.
	write("conf.d/20-two.yaml", "listeners: {two: {listen: 'tcp://127.0.0.1:0', to: '{0}'}}\n", two.url())
	testwait.Until(t, "the new file is taken", func() bool {
		l, err := c.admin.Listeners(c.ctx())
		return err == nil && len(l.Listeners) == 2
	})
	c.mustReach("two", "two")
	c.mustReach("web", "one")

	// The whole configuration is read from standard input.
	env := "PENSTOCK_TEST_API=" + one.url()
	whole, stderr, code := tool(t, env, "", "check", "-c", main, "-c", layer, "--print")
	if code != 0 || stderr != "" {
		t.Fatalf("%d, %s", code, stderr)
	}
	if out, stderr, code := tool(t, env, whole, "check", "-c", "-", "--diff", main, "--diff", layer); code != 0 || out != "no difference\n" {
		t.Errorf("%d, %s, %s\n%s", code, out, stderr, whole)
	}
	if out, stderr, code := tool(t, env, "", "check", "-c", main, "-c", layer, "--diff", "unix://"+dir+"/admin.sock"); code != 0 || out != "nothing changes\n" {
		t.Errorf("%d, %s, %s", code, out, stderr)
	}
	if out, stderr, code := tool(t, env, whole, "explain", "-c", "-", "--listener", "two", "--from", "10.0.0.1"); code != 0 || !strings.Contains(out, two.url()) {
		t.Errorf("%d, %s, %s", code, out, stderr)
	}
	if out, stderr, code := tool(t, env, "drain: 1s\n", "check", "-c", main, "-c", "-", "--diff", main); code != 0 || out != "settings  changed\n  drain   30s -> 1s\n" {
		t.Errorf("%d, %q, %s", code, out, stderr)
	}

	// A listener in two files is an error and changes nothing.
	write("conf.d/30-web.yaml", "listeners: {web: {listen: 'tcp://127.0.0.1:0', to: '{0}'}}\n", two.url())
	if l := c.line(notTaken); !strings.Contains(l["error"].(string), "30-web.yaml:1:13: listeners.web: duplicate key, first used at "+filepath.Join(dir, "conf.d/10-web.yaml")+":1:13;") {
		t.Errorf("%v", l["error"])
	}
	c.mustReach("web", "one")
}
