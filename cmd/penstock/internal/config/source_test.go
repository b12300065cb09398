package config

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
)

// write makes files in a new folder, which becomes the working directory.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func load(paths ...string) (*spec.Config, Warnings, error) {
	return (&Source{Paths: paths}).Load()
}

// mustFail wants exactly these errors, a line for each.
func mustFail(t *testing.T, err error, want ...string) {
	t.Helper()
	var bad Errors
	if !errors.As(err, &bad) || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

const minimal = "listeners: {web: {listen: tcp://:80, to: tcp://127.0.0.1:81}}\n"

func TestInclude(t *testing.T) {
	files := map[string]string{
		"main.yaml":           "include: [conf.d, 'more/*.yaml', one.yaml]\nlog: {level: warn}\ndefaults: {retries: 1}\nlisteners: {web: {listen: 'tcp://:80', to: api}}\n",
		"conf.d/10-api.yaml":  "groups: {api: {members: [tcp://127.0.0.1:1]}}\n",
		"conf.d/20-db.yml":    "listeners: {db: {listen: tcp://:90, to: db}}\ngroups: {db: {members: [tcp://127.0.0.1:2]}}\n",
		"conf.d/30-no.yaml":   "# nothing yet\n",
		"conf.d/.hidden.yaml": "broken: [",
		"conf.d/README":       "not a configuration",
		"more/a.yaml":         "include: sub/b.yaml\nlog: {flows: all}\n",
		"more/sub/b.yaml":     "listeners: {b: {listen: tcp://:91, to: api}}\n",
		"one.yaml":            "drain: 1s\n",
		"whole.yaml":          "log: {level: warn, flows: all}\ndefaults: {retries: 1}\ndrain: 1s\nlisteners: {web: {listen: 'tcp://:80', to: api}, db: {listen: tcp://:90, to: db}, b: {listen: tcp://:91, to: api}}\ngroups: {api: {members: [tcp://127.0.0.1:1]}, db: {members: [tcp://127.0.0.1:2]}}\n",
	}
	write(t, files)
	s := &Source{Paths: []string{"main.yaml"}}
	c, warnings, err := s.Load()
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	whole, _, err := load("whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := Compare(c, whole); !d.Empty() || len(c.Listeners) != 3 {
		t.Errorf("it is not the same as one file:\n%s", d)
	}
	names, dirs := s.Inputs()
	if want := []string{"main.yaml", "conf.d/10-api.yaml", "conf.d/20-db.yml", "conf.d/30-no.yaml", "more/a.yaml", "more/sub/b.yaml", "one.yaml"}; !reflect.DeepEqual(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if want := []string{"conf.d", "more"}; !reflect.DeepEqual(dirs, want) {
		t.Errorf("folders %q, want %q", dirs, want)
	}
	// The text of the configuration is whole, and says the same without the files.
	again, err := Parse("request", c.Text)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Text)
	}
	if d := Compare(c, again); !d.Empty() {
		t.Errorf("its text says something else:\n%s\n%s", d, c.Text)
	}
}

// A folder of files is a configuration.
func TestFolder(t *testing.T) {
	write(t, map[string]string{
		"conf/a.yaml": "listeners: {web: {listen: 'tcp://:80', to: api}}\n",
		"conf/b.yaml": "groups: {api: {members: [tcp://127.0.0.1:1]}}\nadmin: {listen: 'tcp://127.0.0.1:9', token-file: token}\n",
		"conf/token":  "0123456789abcdef",
		"empty/x":     "",
	})
	c, _, err := load("conf")
	if err != nil || len(c.Listeners) != 1 || c.Admin.Token != "0123456789abcdef" {
		t.Errorf("%+v, %v", c, err)
	}
	_, _, err = load("empty")
	mustFail(t, err, "empty:1:1: the folder has no configuration; allowed: files whose names end in .yaml or .yml")
}

// Both places are named.
func TestIncludeErrors(t *testing.T) {
	write(t, map[string]string{
		"dup.yaml":    "include: dup.d\nlisteners:\n  web: {listen: 'tcp://:80', to: g}\ngroups:\n  g: {members: ['echo:']}\ndrain: 1s\n",
		"dup.d/a.yml": "listeners:\n  web: {listen: 'tcp://:81', to: g}\n",
		"dup.d/b.yml": "groups:\n  g: {members: ['discard:']}\n  h: {members: ['echo:'], balnce: first}\ndrain: 2s\n",

		"cycle.yaml": "include: x.yaml\n" + minimal,
		"x.yaml":     "include:\n  - y.yaml\n",
		"y.yaml":     "include: [x.yaml]\n",
		"self.yaml":  "include: ./self.yaml\n" + minimal,
		"twice.yaml": "include: [z.yaml, ./z.yaml]\n" + minimal,
		"z.yaml":     "drain: 1s\n",

		"missing.yaml": "include: [nowhere.yaml, 'no/*.yaml', 5, {}]\n" + minimal,
		"list.yaml":    "include: l.yaml\n" + minimal,
		"l.yaml":       "- a\n",
	})
	for _, c := range []struct{ path, want string }{
		{"dup.yaml", "dup.d/a.yml:2:3: listeners.web: duplicate key, first used at dup.yaml:3:3; allowed: each key in one file\n" +
			"dup.d/b.yml:2:3: groups.g: duplicate key, first used at dup.yaml:5:3; allowed: each key in one file\n" +
			"dup.d/b.yml:3:27: groups.h.balnce: unknown key (did you mean balance?)\n" +
			"dup.d/b.yml:4:1: drain: duplicate key, first used at dup.yaml:6:1; allowed: each key in one file"},
		{"cycle.yaml", "y.yaml:1:11: include: include cycle: x.yaml -> y.yaml (included at x.yaml:2:5) -> x.yaml; allowed: each file once"},
		{"self.yaml", "self.yaml:1:10: include: include cycle: self.yaml -> self.yaml; allowed: each file once"},
		{"twice.yaml", "twice.yaml:1:19: include: z.yaml is already read (included at twice.yaml:1:11); allowed: each file once"},
		{"missing.yaml", "missing.yaml:1:11: include: no such file: nowhere.yaml; allowed: a file, a folder, or a pattern such as conf.d/*.yaml\n" +
			"missing.yaml:1:38: include: is a number; allowed: a file, a folder, or a pattern such as conf.d/*.yaml\n" +
			"missing.yaml:1:41: include: is a mapping; allowed: a file, a folder, or a pattern such as conf.d/*.yaml"},
		{"list.yaml", "l.yaml:1:1: is a list; allowed: " + allowedText(fileKeys.shape)},
	} {
		_, _, err := load(c.path)
		mustFail(t, err, c.want)
	}
	// Someone who sends a text cannot have files read.
	_, err := Parse("request", []byte("include: /etc/passwd\n"+minimal))
	mustFail(t, err, "request:1:10: include: other files are not read here; allowed: the whole configuration in one text")
}

// Nothing that includes can ask for is without a bound.
func TestIncludeBounds(t *testing.T) {
	files := map[string]string{"many.yaml": "include: d\n" + minimal, "large.yaml": "include: big\n" + minimal}
	for i := range maxFiles + 5 {
		files[fmt.Sprintf("d/%04d.yaml", i)] = "# nothing\n"
	}
	for i := range 3 {
		files[fmt.Sprintf("big/%d.yaml", i)] = "# " + strings.Repeat("x", maxFile/2) + "\n"
	}
	write(t, files)
	_, _, err := load("many.yaml")
	mustFail(t, err, "many.yaml:1:10: include: too many files; allowed: up to 1000 in one configuration")
	if _, _, err = load("large.yaml"); err == nil || !strings.Contains(err.Error(), "the configuration is too large; allowed: up to 4194304 bytes") {
		t.Error(err)
	}
}

func TestVariables(t *testing.T) {
	for name, value := range map[string]string{"PORT": "8080", "LOOPS": "3", "HOST": "10.0.0.1", "EMPTY": "", "EVIL": "a\nadmin: {listen: 'unix:@x'}", "WATCH": "true"} {
		t.Setenv(name, value)
	}
	write(t, map[string]string{"env.yaml": `
engine: {loops: "${LOOPS:-1}", pipes: 7}
listeners:
  web: {listen: "tcp://:${PORT}", to: g, backlog: 0}
groups:
  g: {members: ["tcp://${HOST:-localhost}:${UPSTREAM_PORT:-81}"], check: {send-expect: {send: "$${PORT} ${EVIL} ${EMPTY:-x}${EMPTY}"}}}
`,
		"plain.yaml": "engine:\n  loops: ${LOOPS}\n  pipes: ${PIPES:--1}\nreload: {watch: '${WATCH}'}\ndrain: ${DRAIN:-5s}\naccess-log: {to: stdout, format: '${PORT}'}\n" + minimal,
		"bad.yaml":   "engine: {loops: '${NOPE}'}\ndrain: ${}\nlog: {level: '${PORT', flows: '${a b}'}\nreload: {watch: '${EMPTY}'}\n" + minimal,
	})
	c, _, err := load("env.yaml")
	if err != nil {
		t.Fatal(err)
	}
	g := c.Groups[0]
	if c.Engine.Loops != 3 || c.Listeners[0].Listen.Port != 8080 || g.Members[0].Name != "tcp://10.0.0.1:81" || string(g.Check.Send) != "${PORT} a\nadmin: {listen: 'unix:@x'} x" {
		t.Errorf("%+v, %+v, %+v, %q", c.Engine, c.Listeners[0], g, g.Check.Send)
	}
	again, err := Parse("request", c.Text)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.Text)
	}
	if d := Compare(c, again); !d.Empty() {
		t.Errorf("its text says something else:\n%s\n%s", d, c.Text)
	}
	c, _, err = load("plain.yaml")
	if err != nil || c.Engine.Loops != 3 || c.Engine.Pipes != -1 || !c.Reload.Watch || c.Drain != 5*time.Second || c.AccessLog.Format != "8080" {
		t.Errorf("%+v, %v", c, err)
	} else if _, err := Parse("request", c.Text); err != nil {
		t.Errorf("%v\n%s", err, c.Text)
	}
	_, _, err = load("bad.yaml")
	const allowed = "; allowed: ${NAME}, ${NAME:-DEFAULT}, or $${ for ${ itself"
	mustFail(t, err, "bad.yaml:1:17: the environment variable NOPE is not set; allowed: a variable that is set, or ${NOPE:-DEFAULT}",
		`bad.yaml:2:8: invalid variable name ""`+allowed,
		"bad.yaml:3:14: a variable begins with ${ and has no closing brace"+allowed,
		`bad.yaml:3:31: invalid variable name "a b"`+allowed)
	// Someone who sends a text does not learn the daemon's environment.
	if _, err = Parse("request", []byte("drain: ${DRAIN}\n"+minimal)); err == nil || !strings.Contains(err.Error(), "the environment variable DRAIN is not set") {
		t.Error(err)
	}
}

func TestMergeKeys(t *testing.T) {
	c := parsed(t, `
x-base: &base {balance: p2c, retries: 4, members: [tcp://127.0.0.1:1]}
x-slow: &slow {slow-start: 9s, retries: 7}
listeners:
  a: {listen: tcp://:80, to: a}
  b: {listen: tcp://:81, to: b}
groups:
  a: {<<: *base, retries: 1}
  b:
    <<: [*slow, *base]
    members: [tcp://127.0.0.1:2]
`)
	a, b := c.Groups[0], c.Groups[1]
	if a.Balance != "p2c" || a.Retries != 1 || a.Members[0].Name != "tcp://127.0.0.1:1" {
		t.Errorf("a: %+v", a)
	}
	if b.Balance != "p2c" || b.Retries != 7 || b.SlowStart != 9*time.Second || len(b.Members) != 1 || b.Members[0].Name != "tcp://127.0.0.1:2" {
		t.Errorf("b: %+v", b)
	}
	_, err := Parse("x", []byte("defaults: {<<: [1, {retries: 0}]}\n"+minimal))
	mustFail(t, err, "x:1:17: is a number; allowed: an alias of a mapping, or a list of such aliases")
}

// A few lines that stand for billions of values, in each place where aliases are followed.
func TestAliasBounds(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("x-a0: &a0 {k: v}\n")
	for i := range 40 {
		fmt.Fprintf(&laughs, "x-a%d: &a%d {l: *a%d, r: *a%d}\n", i+1, i+1, i, i)
	}
	for name, text := range map[string]string{
		"unused":        laughs.String() + minimal,
		"used":          laughs.String() + "log: *a40\n" + minimal,
		"merged":        laughs.String() + "log: {<<: [*a40, *a40]}\n" + minimal,
		"itself":        "x-a: &a [*a, *a, *a]\n" + minimal,
		"merges itself": "x-a: &a {<<: *a, b: *a}\n" + minimal,
	} {
		began := time.Now()
		_, err := Parse("x", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "aliases") || len(err.(Errors)) != 1 {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s: %v, in %v", name, err, time.Since(began))
	}
}

func TestOverlay(t *testing.T) {
	write(t, map[string]string{
		"base.yaml": `
log: {level: info, flows: all}
listeners:
  web: {listen: 'tcp://:80', to: api, timeouts: {idle: 5m, life: 1h}}
  old: {listen: 'tcp://:81', to: api}
groups:
  api: {members: [tcp://127.0.0.1:1, tcp://127.0.0.1:2], check: {tcp: {every: 9s}}}
`,
		"production.yaml": `
log: {level: warn}
include: more.yaml
listeners:
  web: {listen: 'tcp://:8080', timeouts: {idle: ~}}
  old: ~
groups:
  api: {members: [tcp://127.0.0.1:3], check: {tcp: ~, http: {path: /ready}}}
`,
		"more.yaml": "drain: 7s\n",
		"bad.yaml":  "listeners:\n  web: {listen: 'tcp://:8080', idle: 5s, to: nowhere}\n  gone: ~\n  web: {}\n",
	})
	c, warnings, err := load("base.yaml", "production.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := parsed(t, `
log: {level: warn, flows: all}
drain: 7s
listeners: {web: {listen: 'tcp://:8080', to: api, timeouts: {life: 1h}}}
groups: {api: {members: [tcp://127.0.0.1:3], check: {http: {path: /ready}}}}
`)
	if d := Compare(c, want); !d.Empty() {
		t.Errorf("%s", d)
	}
	if c.Source != "base.yaml, production.yaml" {
		t.Errorf("source %q", c.Source)
	}
	// Errors are at the place that decides.
	_, warnings, err = load("base.yaml", "bad.yaml")
	mustFail(t, err, "bad.yaml:2:32: listeners.web.idle: unknown key; allowed: "+strings.TrimPrefix(allowedText(listenerKeys.shape), "a mapping with "),
		"bad.yaml:2:46: listeners.web.to: unknown group nowhere; allowed: api",
		"bad.yaml:4:3: listeners.web: duplicate key, first used at line 2; allowed: each key once")
	if got := warnings.String(); got != "bad.yaml:3:3: listeners.gone: there is nothing to remove: no earlier file has the key" {
		t.Errorf("warnings: %s", got)
	}
}

// The layers of docs/examples.
func TestExampleLayers(t *testing.T) {
	const dir = "../../../../docs/examples/layers/"
	c, warnings, err := load(dir+"penstock.yaml", dir+"production.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if len(c.Listeners) != 1 || c.Listeners[0].Listen.Port != 443 || len(c.Groups) != 2 || c.Groups[1].Check.Kind != "tcp" || len(c.Groups[0].Members) != 3 {
		t.Errorf("%s", c.Text)
	}
}

func TestStdin(t *testing.T) {
	write(t, map[string]string{"in": "drain: 9s\n", "base.yaml": minimal})
	in, err := os.Open("in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	old := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = old }()
	s := &Source{Paths: []string{"base.yaml", Stdin}}
	for range 2 { // a reload uses the text that was read
		c, _, err := s.Load()
		if err != nil || c.Drain != 9*time.Second || c.Source != "base.yaml, stdin" {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// A variable's value may be a secret: what the API shows has the variables as they are written.
func TestWritten(t *testing.T) {
	const web = "groups: {web: {members: [tcp://127.0.0.1:81], check: {send-expect: {send: 'AUTH ${PASSWORD}', expect: OK, every: '${EVERY:-2s}'}}}}\nlisteners: {web: {listen: tcp://:80, to: web}}\n"
	write(t, map[string]string{"one.yaml": web + "# a comment\n", "main.yaml": "include: web.yaml\n", "web.yaml": web, "over.yaml": "listeners: {web: {limits: {flows: 7}}}\nx-literal: a\n"})
	t.Setenv("PASSWORD", "hunter2 $${")
	for _, paths := range [][]string{{"one.yaml"}, {"main.yaml"}, {"web.yaml", "over.yaml"}} {
		c, _, err := load(paths...)
		if err != nil {
			t.Errorf("%s: %v", paths, err)
			continue
		}
		if !strings.Contains(string(c.Text), "hunter2") {
			t.Errorf("%s: Text without the value:\n%s", paths, c.Text)
		}
		if text := string(c.Written); strings.Contains(text, "hunter2") || !strings.Contains(text, "AUTH ${PASSWORD}") || !strings.Contains(text, "${EVERY:-2s}") {
			t.Errorf("%s: Written:\n%s", paths, text)
		}
		if text := string(c.Written); len(paths) == 1 && paths[0] == "one.yaml" && text != web+"# a comment\n" {
			t.Errorf("%s: Written is not the file:\n%s", paths, text)
		}
	}
}

// Few bytes of a file must not take minutes or gigabytes: variables, aliases of long values, and
// merge keys are bounded.
func TestComposeBombs(t *testing.T) {
	testnet.OneGoroutine(t)
	value := strings.Repeat("a", 60_000)
	bombs := map[string]struct{ text, want string }{
		"many variables": {"x-v: [" + strings.Repeat("'${V:-b}',", 200_000) + "]\n" + minimal, "too many values have variables"},
		"distinct variables": {"x-v: [" + func() string {
			var b strings.Builder
			for i := range 200_000 {
				fmt.Fprintf(&b, "'${V:-%d}',", i)
			}
			return b.String()
		}() + "]\n" + minimal, "too many values have variables"},
		"long values":  {"x-v: [" + strings.Repeat("'${LONG}',", 9000) + "]\n" + minimal, "too large with its variables expanded"},
		"long aliases": {"x-a: &a " + strings.Repeat("a", 1<<20) + "\ndrain: '${V:-1s}'\ngroups: {g: {members: [" + strings.Repeat("*a,", 90_000) + "]}}\n" + minimal, "aliases make the file too large"},
		"merge keys": {"x-m: &m {k: 1}\nx-t:\n" + func() string {
			var b strings.Builder
			for i := range 100_000 {
				fmt.Fprintf(&b, "  k%d: 1\n", i)
			}
			return b.String()
		}() + "  <<: [" + strings.Repeat("*m,", 30_000) + "]\n" + minimal, ""},
	}
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			write(t, map[string]string{"main.yaml": bomb.text})
			t.Setenv("LONG", value)
			begin := time.Now()
			_, _, err := load("main.yaml")
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if bomb.want == "" && err != nil || bomb.want != "" && (err == nil || !strings.Contains(err.Error(), bomb.want) || len(err.(Errors)) != 1) {
				t.Errorf("got %.300v, want %q", err, bomb.want)
			}
		})
	}
}

// A pipe that nobody writes to must not stop a load, and with it the daemon's reloads.
func TestPipes(t *testing.T) {
	write(t, map[string]string{
		"file.yaml": "include: conf.d/a.yaml\n" + minimal, "folder.yaml": "include: conf.d\n" + minimal, "pattern.yaml": "include: 'conf.d/*'\n" + minimal,
		"token.yaml": "admin: {listen: 'tcp://127.0.0.1:9', token-file: conf.d/a.yaml}\n" + minimal, "conf.d/README": "", "main.yaml": minimal,
	})
	if err := exec.Command("mkfifo", "conf.d/a.yaml").Run(); err != nil {
		t.Fatal(err)
	}
	for path, at := range map[string]string{"file.yaml": "1:10", "folder.yaml": "1:10", "pattern.yaml": "1:10"} {
		_, _, err := load(path)
		mustFail(t, err, path+":"+at+": include: conf.d/a.yaml is not a regular file; allowed: "+allowedInclude)
	}
	if _, _, err := load("token.yaml"); err == nil || !strings.Contains(err.Error(), "conf.d/a.yaml is not a regular file") {
		t.Errorf("token-file: %v", err)
	}
	// A file that became a pipe is not read by a reload.
	s := &Source{Paths: []string{"main.yaml"}}
	if _, _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("conf.d/a.yaml", "main.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Load(); err == nil || err.Error() != "main.yaml is not a regular file" {
		t.Errorf("a file that became a pipe: %v", err)
	}
}

// A pipe of the command line, such as a shell's <(command), is read once.
func TestPipeOfTheCommandLine(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(minimal); err != nil {
		t.Fatal(err)
	}
	w.Close()
	s := &Source{Paths: []string{fmt.Sprintf("/proc/self/fd/%d", r.Fd())}}
	for range 2 { // a reload uses the text that was read
		if c, _, err := s.Load(); err != nil || len(c.Listeners) != 1 {
			t.Fatal(err)
		}
		if files, _ := s.Inputs(); len(files) > 0 {
			t.Errorf("a pipe is watched: %v", files)
		}
	}
}
