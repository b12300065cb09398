package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dependencies are the sections of docs/dependencies.md, each with the folder of its module.
var dependencies = map[string]string{
	"The library": ".", "xnet": "xnet", "cmd/penstock": "cmd/penstock", "bench": "bench", "fleettest": "fleettest", "fleettest/kube": "fleettest/kube", "fleettest/otel": "fleettest/otel",
	"fleettest/coredns": "fleettest/coredns",
}

// licences are those that a dependency may have.
var licences = []string{"BSD-3-Clause", "MIT", "Apache-2.0", "Apache-2.0 AND MIT"}

// Every module that one of ours requires directly, and every program that the check, a release or the site runs, has a row
// in docs/dependencies.md, and each row is about one of them.
func TestDependencies(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const page = "docs/dependencies.md"
	for title, rows := range dependencyRows(read(page)) {
		for _, r := range rows {
			if len(r) != 5 || slices.Contains(r, "") || !slices.Contains(licences, r[1]) {
				t.Errorf("%s: %s: %q: want five cells, the licence one of %q", page, title, r, licences)
			}
		}
		var want []string
		if folder, ok := dependencies[title]; ok {
			want = directly(read(folder + "/go.mod"))
		} else if title == "The site" {
			direct, _, _ := strings.Cut(read("packaging/site/requirements.txt"), "\n\n") // what it brings along comes after a blank line
			for line := range strings.Lines(direct) {
				name, version, pinned := strings.Cut(strings.TrimSpace(line), "==")
				if want = append(want, name); !pinned || version == "" {
					t.Errorf("packaging/site/requirements.txt: %s is not pinned", line)
				}
			}
		} else if title == "Programs" {
			for _, name := range pinnedFiles(t) {
				for line := range strings.Lines(read(name)) {
					for _, program := range programRE.FindAllString(line, -1) {
						want = append(want, programModule(program))
					}
				}
			}
		} else {
			t.Errorf("%s: a table in the section %q", page, title)
		}
		compare(t, page+": "+title, rows, want)
	}
	for title, folder := range dependencies {
		if len(dependencyRows(read(page))[title]) == 0 {
			t.Errorf("%s: no table for %s/go.mod", page, folder)
		}
	}
	mods, err := filepath.Glob(filepath.Join("..", "..", "*", "go.mod"))
	more, err2 := filepath.Glob(filepath.Join("..", "..", "*", "*", "go.mod"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, name := range append(mods, more...) {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../../")
		if !slices.Contains(slices.Collect(maps.Values(dependencies)), folder) {
			t.Errorf("%s: no table for %s/go.mod", page, folder)
		}
	}
}

func compare(t *testing.T, where string, rows [][]string, want []string) {
	t.Helper()
	var have []string
	for _, r := range rows {
		name := strings.Trim(r[0], "`")
		if slices.Contains(have, name) {
			t.Errorf("%s: %s twice", where, name)
		}
		have = append(have, name)
		if !slices.Contains(want, name) {
			t.Errorf("%s: %s is not required any more", where, name)
		}
	}
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("%s: no row for %s", where, name)
		}
	}
}

// dependencyRows returns the rows of the tables of a page, by the section that they are in.
func dependencyRows(text string) map[string][][]string {
	sections, title := map[string][][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "## "); ok {
			title = rest
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		var row []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			row = append(row, strings.TrimSpace(cell))
		}
		sections[title] = append(sections[title], row)
	}
	return sections
}

var requireRE = regexp.MustCompile(`^(?:require )?([\w.-]+\.[\w.-]+/\S+) v\S+$`)

// directly returns the modules that a go.mod requires directly, without our own, and those of its tools.
func directly(mod string) (list []string) {
	all := map[string]bool{}
	for line := range strings.Lines(mod) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "require "), " ")
		if strings.Contains(line, " v") && !strings.Contains(line, "=>") {
			all[name] = true
		}
		if m := requireRE.FindStringSubmatch(line); m != nil && m[1] != module && !strings.HasPrefix(m[1], module+"/") {
			list = append(list, m[1])
		}
	}
	for line := range strings.Lines(mod) {
		tool, ok := strings.CutPrefix(strings.TrimSpace(line), "tool ")
		for ok && !all[tool] && strings.Contains(tool, "/") {
			tool = tool[:strings.LastIndexByte(tool, '/')]
		}
		if ok && all[tool] && !slices.Contains(list, tool) && !strings.HasPrefix(tool, module) {
			list = append(list, tool)
		}
	}
	return list
}

// programModule returns the module of a program that is run at a version: what is in front of /cmd/, or of the last
// element.
func programModule(program string) string {
	path, _, _ := strings.Cut(program, "@")
	if before, _, ok := strings.Cut(path, "/cmd/"); ok {
		return before
	}
	return path[:strings.LastIndexByte(path, '/')]
}

func TestDirectly(t *testing.T) {
	const mod = `module example.com/a

go 1.26.0

require github.com/penstock/penstock v0.0.0

require example.com/single v1.2.3

require (
	example.com/one v1.0.0
	example.com/two v1.0.0 // indirect
	example.com/tools v1.0.0 // indirect
)

replace example.com/other => example.com/other v1.0.0

tool example.com/tools/cmd/x
`
	if got := directly(mod); !slices.Equal(got, []string{"example.com/single", "example.com/one", "example.com/tools"}) {
		t.Errorf("%q", got)
	}
	for program, want := range map[string]string{
		"honnef.co/go/tools/cmd/staticcheck@v0.8.2": "honnef.co/go/tools",
		"golang.org/dl/gotip@latest":                "golang.org/dl",
	} {
		if got := programModule(program); got != want {
			t.Errorf("%s: %s", program, got)
		}
	}
}
