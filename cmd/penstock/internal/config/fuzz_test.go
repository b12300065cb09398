package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// FuzzParse: no text makes it panic. What is wrong has a place and stands in one
// line, in order; what is right has every default and every reference, and is the
// same when it is read again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, examples(f)...) {
		if filepath.Base(path) == "laughs.yaml" {
			continue // slow, and found already
		}
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("listeners: {web: {listen: tcp://:80, to: tcp://a:1}}"))
	f.Add([]byte("listeners: {web: {listen: tcp://:80, to: &x tcp://a:1, routes: [{from: ::1, to: *x}]}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("fuzz.yaml", text)
		if err != nil {
			var bad Errors
			if !errors.As(err, &bad) || len(bad) == 0 || c != nil {
				t.Fatalf("%v, %v", c, err)
			}
			line := 0
			for _, e := range bad {
				if text := e.Error(); strings.ContainsFunc(text, unicode.IsControl) || e.Problem == "" {
					t.Errorf("message %q", text)
				}
				if e.Line < max(line, 1) || e.Column < 1 {
					t.Errorf("out of order: %v", bad)
				}
				line = e.Line
			}
			return
		}
		complete(t, c)
		again, err := Parse("fuzz.yaml", text)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("read again it is %+v, %v", again, err)
		}
		if d := Compare(c, again); !d.Empty() {
			t.Errorf("it differs from itself: %v", d)
		}
	})
}

// FuzzCompose: two texts as files of one configuration, or as layers, with variables of any value.
// Nothing panics, and takes long; what is composed is a text that says the same, and says so
// without files and variables.
func FuzzCompose(f *testing.F) {
	f.Add([]byte("x-a: &a {k: v}\nlisteners: {web: {listen: 'tcp://:${P:-80}', to: 'tcp://${V}:81'}}"), []byte("groups: {g: {<<: &x {retries: 1}, members: ['echo:']}}"), "10.0.0.1", true)
	f.Add([]byte("listeners: {web: {listen: tcp://:80, to: g}}\ngroups: {g: {members: ['echo:']}}"), []byte("groups: {g: {retries: '${V}', check: ~}}\nlog: {level: ${V:-info}}"), "5", false)
	f.Add([]byte("a: &a [*a, *a]"), []byte("b: {<<: *b}"), "", true)
	f.Add([]byte("include: ${V}\nlisteners: ${V}"), []byte("? [a]\n: ${\n$${x}: ~"), "{a: b}", false)
	f.Fuzz(func(t *testing.T, one, two []byte, value string, layers bool) {
		l := &loader{r: &reader{places: map[any]*place{}}, env: func(string) (string, bool) { return value, value != "" }}
		a, b := l.parse(&source{name: "one.yaml"}, one), l.parse(&source{name: "two.yaml"}, two)
		switch {
		case a == nil || b == nil:
		case layers:
			a = l.overlay(a, b, nil)
		default:
			l.join(a, b, &place{from: b.from, index: -1}, 0)
		}
		l.composed = true
		c, _, err := l.finish("fuzz", a, nil)
		if err != nil {
			for _, e := range err.(Errors) {
				if text := e.Error(); strings.ContainsFunc(text, unicode.IsControl) || e.Problem == "" || e.Line < 1 || e.Column < 1 || e.File == "" {
					t.Errorf("message %q", text)
				}
			}
			return
		}
		if c == nil {
			return // the second text alone is not a configuration
		}
		complete(t, c)
		again, err := Parse("fuzz", c.Text)
		if err != nil {
			t.Fatalf("what is composed cannot be read: %v\n%s", err, c.Text)
		}
		if d := Compare(c, again); !d.Empty() {
			t.Errorf("what is composed says something else: %v\n%s", d, c.Text)
		}
	})
}

// FuzzExpand: a text without variables stays as it is, and one with variables is bounded.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"a", "${A}", "${A:-b}", "$${A}", "${", "${}", "$$${A}", "${A:-${B}}", "${a b}", "x${A}y${A}z"} {
		f.Add(s, "value")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		got, bad := expand(text, func(string) (string, bool) { return value, true })
		switch {
		case bad != nil && (bad.problem == "" || bad.allowed == "" || got != ""):
			t.Errorf("%q: %q, %+v", text, got, bad)
		case bad == nil && !strings.Contains(text, "${") && got != text:
			t.Errorf("%q becomes %q", text, got)
		}
		// What is escaped comes back as it was.
		if back, bad := expand(strings.ReplaceAll(text, "${", "$${"), nil); bad != nil || back != text {
			t.Errorf("%q escaped and expanded is %q, %+v", text, back, bad)
		}
	})
}

// complete checks what every other station relies on.
func complete(t *testing.T, c *spec.Config) {
	t.Helper()
	groups := map[*spec.Group]bool{}
	names := map[string]bool{}
	for _, g := range c.Groups {
		if groups[g] = true; names[g.Name] || g.Name == "" {
			t.Errorf("the group's name %q", g.Name)
		}
		names[g.Name] = true
		if g.Balance == "" || g.Timeouts.Connect <= 0 || len(g.Members)+len(g.Discover) == 0 && g.Destination == nil || g.Queue.Timeout <= 0 {
			t.Errorf("group %+v", g)
		}
		if d := g.Destination; d != nil && ((d.Port == 0 || len(d.Allow) == 0) && d.By != spec.ByOriginal || d.By == "" || d.Timeout <= 0) {
			t.Errorf("destination %+v", d)
		}
		for _, m := range g.Members {
			if m.Name == "" || m.To.Kind == 0 || m.Weight < 1 {
				t.Errorf("member %+v", m)
			}
		}
		for _, d := range g.Discover {
			if d.Network == 0 || d.Every <= 0 || (d.Host == "") == (d.Service == "") {
				t.Errorf("discover %+v", d)
			}
		}
		if k := g.Check; k != nil && (k.Kind == "" || k.Every <= 0 || k.Timeout <= 0 || k.Rise < 1 || k.Fall < 1) {
			t.Errorf("check %+v", k)
		}
		if e := g.Eject; e != nil && (e.Failures < 1 || e.For <= 0 || e.Max < e.For) {
			t.Errorf("eject %+v", e)
		}
	}
	for _, l := range c.Listeners {
		if l.Name == "" || (l.Listen.Kind == 0) == (l.Inherit == "") || l.Sniff.Max == 0 || l.Timeouts.Connect <= 0 || l.Unreachable == "" {
			t.Errorf("listener %+v", l)
		}
		if (l.To == nil) != (l.Default == nil) || len(l.Routes) == 0 && l.To == nil {
			t.Errorf("listener %+v", l)
		}
		routes := map[string]bool{}
		for _, r := range routesOf(l) {
			if r.Name == "" || routes[r.Name] || slices.ContainsFunc(r.To, func(p spec.Part) bool { return p.Refuse == groups[p.Group] }) || r.Removed.What == "" {
				t.Errorf("route %+v", r)
			}
			routes[r.Name] = true
		}
	}
}
