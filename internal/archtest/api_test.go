package archtest

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of testdata/api")

// TestAPI compares the exported declarations of each public package with its golden file, so that
// a change of the API shows in review. CONTRIBUTING.md says how to update the files.
func TestAPI(t *testing.T) {
	for _, p := range published {
		pkg := p.pkg
		got := renderAPI(t, pkg, "linux")
		golden := filepath.Join("testdata", "api", strings.ReplaceAll(pkg, "/", "-")+".txt")
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if line, a, b := firstDifference(want, got); line > 0 {
			t.Errorf("the API of package %s has changed, first in line %d of %s:\n\twas %s\n\tis  %s\n"+
				"If that is intended, run go test ./internal/archtest -run TestAPI -update, and say in CHANGELOG.md how to follow.", pkg, line, golden, a, b)
		}
	}
}

// TestAPIEverywhere checks that the public packages have the same API on every system, so that
// what compiles on one also compiles on the others.
func TestAPIEverywhere(t *testing.T) {
	for _, p := range published {
		pkg := p.pkg
		want := renderAPI(t, pkg, "linux")
		for _, goos := range []string{"darwin", "windows", "freebsd"} {
			if line, a, b := firstDifference(want, renderAPI(t, pkg, goos)); line > 0 {
				t.Errorf("package %s:\n\ton linux %s\n\ton %s %s", pkg, a, goos, b)
			}
		}
	}
}

// firstDifference returns the number of the first line in which two texts differ, and both
// lines. The number is 0 if the texts are equal.
func firstDifference(a, b []byte) (line int, inA, inB string) {
	as, bs := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range max(len(as), len(bs)) {
		inA, inB = "", ""
		if i < len(as) {
			inA = as[i]
		}
		if i < len(bs) {
			inB = bs[i]
		}
		if inA != inB {
			return i + 1, inA, inB
		}
	}
	return 0, "", ""
}

// apiOf returns what go doc shows of a package on a system, with its comments if mode says so.
func apiOf(t *testing.T, pkg, goos string, mode parser.Mode) (*doc.Package, *token.FileSet) {
	t.Helper()
	dir := filepath.Join("..", "..", filepath.FromSlash(pkg))
	ctx := build.Default
	ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled, ctx.BuildTags = goos, "amd64", false, nil
	p, err := ctx.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	sources := make(map[string]string)
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(text)
	}
	fset := token.NewFileSet()
	return parsePackage(t, fset, pkg, sources, mode), fset
}

// parsePackage returns the documentation of a package, whose sources are given by the names of its files.
func parsePackage(t *testing.T, fset *token.FileSet, pkg string, sources map[string]string, mode parser.Mode) *doc.Package {
	t.Helper()
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := parser.ParseFile(fset, name, sources[name], parser.SkipObjectResolution|mode)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	d, err := doc.NewFromFiles(fset, files, module+"/"+pkg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// renderAPI returns the exported declarations of a package as Go source without comments and
// function bodies, in the order of go doc.
func renderAPI(t *testing.T, pkg, goos string) []byte {
	t.Helper()
	d, fset := apiOf(t, pkg, goos, 0)
	var out bytes.Buffer
	fmt.Fprintf(&out, "package %s\n", d.Name)
	afterFunc := false
	decl := func(n ast.Decl) {
		f, isFunc := n.(*ast.FuncDecl)
		if isFunc {
			f.Body = nil
			if f.Recv != nil {
				f.Recv.List[0].Names = nil
			}
		}
		if !isFunc || !afterFunc {
			out.WriteByte('\n')
		}
		afterFunc = isFunc
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok && len(s.Fields.List) == 0 {
				s.Incomplete = true // an empty struct here may have fields elsewhere
			}
			return true
		})
		var b bytes.Buffer
		if err := format.Node(&b, fset, n); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) { // blank lines are where comments were
			if strings.TrimSpace(line) != "" {
				out.WriteString(line)
			}
		}
		out.WriteByte('\n')
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			decl(v.Decl)
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			decl(f.Decl)
		}
	}
	values(d.Consts)
	values(d.Vars)
	funcs(d.Funcs)
	for _, x := range d.Types {
		decl(x.Decl)
		values(x.Consts)
		values(x.Vars)
		funcs(x.Funcs)
		funcs(x.Methods)
	}
	formatted, err := format.Source(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return formatted
}
