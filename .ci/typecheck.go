//go:build ignore

// typecheck PACKAGE...: type-check packages and their tests for GOOS and GOARCH, and say how many there were. What they import is checked from source
// too, without the bodies of functions, so that nothing is compiled for a platform that nobody runs here.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles, Imports         []string
	ImportMap                map[string]string
	Standard, DepOnly        bool
	Module                   *struct {
		Main      bool
		GoVersion string
	}
}

func main() {
	n, err := check(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("   %s/%s: %d packages with their tests have the right types\n", env("GOOS"), env("GOARCH"), n)
}

func check(patterns []string) (n int, err error) {
	list := exec.Command("go", append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,ForTest,GoFiles,Imports,ImportMap,Standard,DepOnly,Module"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	var all []*listed
	for in := json.NewDecoder(out); ; {
		p := new(listed)
		if err := in.Decode(p); err == io.EOF {
			break
		} else if err != nil {
			return 0, err
		}
		if !strings.HasSuffix(p.ImportPath, ".test") { // what go test generates
			all = append(all, p)
		}
	}
	if err := list.Wait(); err != nil {
		return 0, fmt.Errorf("go list: %w", err)
	}
	c := checker{fset: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}, sizes: types.SizesFor("gc", env("GOARCH"))}
	for _, p := range all { // in the order of their imports
		ours := !p.Standard && p.Module != nil && p.Module.Main
		if err := c.check(p, ours); err != nil {
			return 0, err
		}
		if ours {
			n++
		}
	}
	return n, errors.Join(c.errs...)
}

func env(name string) string {
	out, _ := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out))
}

type checker struct {
	fset  *token.FileSet
	done  map[string]*types.Package
	sizes types.Sizes
	errs  []error
}

func (c *checker) check(p *listed, bodies bool) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	files, err := c.parse(p)
	if err != nil {
		return err
	}
	cfg := types.Config{
		IgnoreFuncBodies: !bodies, FakeImportC: true, Sizes: c.sizes,
		Importer: importer(func(path string) (*types.Package, error) {
			if to, ok := p.ImportMap[path]; ok {
				path = to
			}
			if q := c.done[path]; q != nil {
				return q, nil
			}
			return nil, fmt.Errorf("%s is not listed", path)
		}),
		Error: func(err error) {
			if bodies {
				c.errs = append(c.errs, err)
			}
		},
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		cfg.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ")
	q, err := cfg.Check(path, c.fset, files, nil)
	if q == nil {
		return err
	}
	c.done[p.ImportPath] = q
	return nil
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }

// parse reads the files of a package, as many at a time as there are CPUs.
func (c *checker) parse(p *listed) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(p.GoFiles)), make([]error, len(p.GoFiles))
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			files[i], errs[i] = parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
		})
	}
	all.Wait()
	return slices.Clip(files), errors.Join(errs...)
}
