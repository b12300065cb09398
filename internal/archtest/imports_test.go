package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestImports(t *testing.T) {
	for _, f := range tree(t) {
		for _, complaint := range checkImports(f) {
			t.Error(complaint)
		}
	}
}

// checkImports returns complaints about the imports of one file.
func checkImports(f *file) (complaints []string) {
	allowed, ok := allowedFor(f)
	if !ok {
		return []string{fmt.Sprintf("%s: package %s is not in the table of internal/archtest", f.path, f.pkg)}
	}
	for _, i := range f.imports {
		if standard(i.path) {
			continue
		}
		target := i.path
		if i.folder != "" {
			target = i.folder
		}
		switch {
		case i.folder == f.pkg && f.test: // the package that an external test tests
		case allowed[target] != "":
		case freeModules[f.module()] != nil && (i.folder == "" || sameModule(i.folder, f.module())):
		default:
			complaints = append(complaints, fmt.Sprintf("%s: %s must not import %s", i.pos, f.pkg, target))
		}
	}
	return complaints
}

func allowedFor(f *file) (edges, bool) {
	sum := edges{}
	if f.test {
		maps.Copy(sum, testsOfAll[f.module()])
	}
	if free := freeModules[f.module()]; free != nil {
		maps.Copy(sum, free)
		return sum, true
	}
	n := slices.IndexFunc(table, func(r rule) bool { return r.pkg == f.pkg })
	if n < 0 {
		return nil, false
	}
	maps.Copy(sum, table[n].code)
	if f.test {
		maps.Copy(sum, table[n].tests)
	}
	return sum, true
}

func sameModule(folder, m string) bool { return (&file{pkg: folder}).module() == m }

// TestTable checks the table itself against the rules of the design.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	internalDaemon := "cmd/penstock/internal/"
	for _, r := range table {
		if seen[r.pkg] {
			t.Errorf("two rows for %s", r.pkg)
		}
		seen[r.pkg] = true
		for _, set := range []edges{r.code, r.tests} {
			for to, why := range set {
				if why == "" {
					t.Errorf("%s -> %s has no reason", r.pkg, to)
				}
			}
		}
		for to := range r.code {
			switch {
			case slices.Contains(testOnly, r.pkg) && slices.Contains(testOnly, to):
			case strings.HasPrefix(r.pkg, "cmd/penstock") && strings.HasPrefix(to, "internal/"):
				t.Errorf("%s -> %s: the daemon uses only the public API", r.pkg, to)
			case !strings.HasPrefix(r.pkg, "cmd/") && strings.HasPrefix(to, "cmd/"):
				t.Errorf("%s -> %s: the library does not know the daemon", r.pkg, to)
			case strings.HasPrefix(r.pkg, internalDaemon) && r.pkg != internalDaemon+"app" &&
				strings.HasPrefix(to, internalDaemon) && !slices.Contains(sharedTypes, to) && !slices.Contains(edgesBetween[r.pkg], to):
				t.Errorf("%s -> %s: the packages of the daemon import only shared types of each other", r.pkg, to)
			case slices.Contains(testOnly, to):
				t.Errorf("%s -> %s: for tests only", r.pkg, to)
			}
		}
	}
	users := []string{"relay", "splice", "dgram"}
	for _, r := range table {
		for to := range r.code {
			if slices.Contains(users, r.pkg) && slices.Contains(users, to) {
				t.Errorf("%s -> %s: these three do not import each other", r.pkg, to)
			}
			if r.pkg == "pool" {
				t.Errorf("pool -> %s: pool imports the standard library only", to)
			}
		}
	}
}
