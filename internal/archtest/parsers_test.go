package archtest

import (
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// parserName matches the names of functions that read what comes from somewhere else.
var parserName = regexp.MustCompile(`^(?i:parse|decode|unmarshal)`)

// parserCalls are calls that make a function one, whatever its name.
var parserCalls = []string{"json.Unmarshal", "json.NewDecoder", "yaml.Unmarshal", "yaml.NewDecoder", "yaml.Load", "yaml.NewLoader", "pem.Decode", "binary.Uvarint", "protowire.ConsumeTag"}

// notParsed are folders whose programs read what they have made themselves.
var notParsed = regexp.MustCompile(`^(bench|fleettest|cmd/penstock/(dist|scale)|(cmd/penstock/)?internal/(test[a-z]+|archtest))(/|$)`)

// isParser reports whether a function is one: not one that only looks a name up in a list.
func isParser(f *file, fn *ast.FuncDecl) (yes bool) {
	yes = parserName.MatchString(fn.Name.Name)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if ok && slices.Contains(parserCalls, x.Name+"."+s.Sel.Name) {
			yes = true
		}
		if ok && x.Name == "enum" && s.Sel.Name == "Set" && len(fn.Body.List) == 1 {
			yes = false
			return false
		}
		return true
	})
	return yes
}

// parsers returns the parsers of the tree by their folder, and the fuzz targets by theirs.
func parsers(t *testing.T) (found, targets map[string][]string) {
	t.Helper()
	found, targets = map[string][]string{}, map[string][]string{}
	for _, f := range tree(t) {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if f.test {
				if fn.Recv == nil && regexp.MustCompile(`^Fuzz[A-Z]`).MatchString(name) {
					targets[f.pkg] = append(targets[f.pkg], name)
				}
				continue
			}
			if notParsed.MatchString(f.pkg) || strings.HasSuffix(f.path, "_stub.go") || !isParser(f, fn) {
				continue
			}
			if fn.Recv != nil {
				name = receiver(fn) + "." + name
			}
			if !slices.Contains(found[f.pkg], name) {
				found[f.pkg] = append(found[f.pkg], name)
			}
		}
	}
	return found, targets
}

func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// Whatever reads something from outside is in docs/parsers.md, with the fuzz target that reads it, or with the
// reason why there is none; and what the page names exists.
func TestParsers(t *testing.T) {
	const page = "docs/parsers.md"
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	found, targets := parsers(t)
	named, fuzzed := map[string][]string{}, map[string][]string{}
	word := regexp.MustCompile("`([^`]+)`")
	for _, rows := range dependencyRows(string(text)) {
		for _, r := range rows {
			if len(r) != 4 {
				t.Fatalf("%s: %q: want four cells", page, r)
			}
			pkg := strings.Trim(r[0], "`")
			if len(found[pkg]) == 0 && len(targets[pkg]) == 0 {
				t.Errorf("%s: %s reads nothing", page, pkg)
			}
			for _, m := range word.FindAllStringSubmatch(r[2], -1) {
				named[pkg] = append(named[pkg], m[1])
			}
			for _, m := range word.FindAllStringSubmatch(r[3], -1) {
				of, target := pkg, m[1]
				if folder, name, ok := strings.Cut(m[1], ": "); ok { // of another package
					of, target = folder, name
				}
				if !slices.Contains(targets[of], target) {
					t.Errorf("%s: %s has no %s", page, of, target)
				}
				fuzzed[of] = append(fuzzed[of], target)
			}
			if r[3] == "" {
				t.Errorf("%s: %s: no target, and no reason", page, pkg)
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(found)) {
		for _, name := range found[pkg] {
			if !slices.Contains(named[pkg], name) {
				t.Errorf("%s: nothing about %s of %s", page, name, pkg)
			}
		}
	}
	for pkg, names := range named {
		for _, name := range names {
			if !slices.Contains(found[pkg], name) {
				t.Errorf("%s: %s has no %s that reads something", page, pkg, name)
			}
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(targets)) {
		for _, name := range targets[pkg] {
			if !slices.Contains(fuzzed[pkg], name) {
				t.Errorf("%s: nothing about %s of %s", page, name, pkg)
			}
		}
	}
}
