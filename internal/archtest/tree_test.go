package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// file is a Go file of the repository.
type file struct {
	path    string // with slashes, from the root of the repository
	pkg     string // its folder, "." for the root
	test    bool
	lines   int
	syntax  *ast.File
	fset    *token.FileSet
	imports []imported
}

// imported is an import: its path as written, and its folder if the package is in this repository.
type imported struct {
	path, name string // name as written before the path, usually empty
	folder     string
	pos        token.Position
}

// module returns the folder of the module that f belongs to.
func (f *file) module() string {
	for _, m := range nested {
		if f.pkg == m || strings.HasPrefix(f.pkg, m+"/") {
			return m
		}
	}
	return "."
}

// tree returns every Go file of every module. The files are parsed once.
func tree(t *testing.T) []*file {
	t.Helper()
	files, err := loadTree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var loadTree = sync.OnceValues(func() ([]*file, error) { return parseTree(filepath.Join("..", "..")) })

func parseTree(root string) (files []*file, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != root && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parseFile(fset, filepath.ToSlash(rel), src)
		files = append(files, f)
		return err
	})
	return files, err
}

func parseFile(fset *token.FileSet, name string, src []byte) (*file, error) {
	syntax, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &file{
		path:   name,
		pkg:    path.Dir(name),
		test:   strings.HasSuffix(name, "_test.go"),
		lines:  bytes.Count(src, []byte("\n")),
		syntax: syntax,
		fset:   fset,
	}
	if buildLine(f) == "attack" { // only in binaries for tests
		f.test = true
	}
	for _, s := range syntax.Imports {
		i := imported{pos: fset.Position(s.Pos())}
		if i.path, err = strconv.Unquote(s.Path.Value); err != nil {
			return nil, err
		}
		if s.Name != nil {
			i.name = s.Name.Name
		}
		if i.path == module {
			i.folder = "."
		} else if rest, ok := strings.CutPrefix(i.path, module+"/"); ok {
			i.folder = rest
		}
		f.imports = append(f.imports, i)
	}
	return f, nil
}

// standard reports whether a package is in the standard library: the first element of its path has
// no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// TestTreeIsWhole checks that the walk found the repository, because otherwise all other tests
// would pass without files.
func TestTreeIsWhole(t *testing.T) {
	var pkgs []string
	for _, f := range tree(t) {
		pkgs = append(pkgs, f.pkg)
	}
	for _, want := range []string{".", "internal/sys", "internal/feature", "internal/testnet", "internal/archtest"} {
		if !slices.Contains(pkgs, want) {
			t.Errorf("package %s was not found", want)
		}
	}
}
