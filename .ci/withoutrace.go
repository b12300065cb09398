//go:build ignore

// withoutrace PACKAGE...: print the arguments for go test that run, without the race detector, the tests that the race job does not stand for. The rule: a test
// whose code asks whether the race detector is on runs with it and without it, any other test only with it.
//
// The code of a test is its function, the functions and variables of its package's tests that it names, what these name, and so on. Names are all that is
// compared, so it may be more than that, and never less. A package of which TestMain asks, or what is not a test, runs whole.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// asks are the names of what asks: see package testnet.
var asks = []string{"RaceEnabled", "raceEnabled", "OneGoroutine", "AlsoWithoutRace"}

// isTest matches what go test -run does.
var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)([^a-z]|$)`)

func main() {
	out, err := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles"}, os.Args[1:]...)...).Output()
	if err != nil {
		fail(err)
	}
	var packages, tests []string
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir, ImportPath                    string
			GoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := in.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			fail(err)
		}
		found, err := inBoth(p.Dir, p.GoFiles, slices.Concat(p.TestGoFiles, p.XTestGoFiles))
		if err != nil {
			fail(err)
		}
		if len(found) > 0 {
			packages, tests = append(packages, p.ImportPath), append(tests, found...)
		}
	}
	if len(tests) == 0 {
		fail(errors.New("no test asks: the rule cannot be right"))
	}
	slices.Sort(tests)
	fmt.Printf("-run ^(%s)$ %s\n", strings.Join(slices.Compact(tests), "|"), strings.Join(packages, " "))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "withoutrace:", err)
	os.Exit(1)
}

// inBoth returns the tests of a package that run with the race detector and without it.
func inBoth(dir string, files, testFiles []string) (tests []string, err error) {
	code, testCode := make(map[string][]string), make(map[string][]string)
	if err := read(code, dir, files); err != nil {
		return nil, err
	}
	if err := read(testCode, dir, testFiles); err != nil {
		return nil, err
	}
	asking := reach(testCode)
	whole := asking["TestMain"]
	for _, names := range code {
		whole = whole || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(asks, n) })
	}
	for name := range testCode {
		if isTest.MatchString(name) && name != "TestMain" && (whole || asking[name]) {
			tests = append(tests, name)
		}
	}
	return tests, nil
}

// reach returns the names of what asks, or names something that does.
func reach(code map[string][]string) map[string]bool {
	asking := make(map[string]bool)
	for _, name := range asks {
		asking[name] = true
	}
	for more := true; more; {
		more = false
		for name, uses := range code {
			if !asking[name] && slices.ContainsFunc(uses, func(n string) bool { return asking[n] }) {
				asking[name], more = true, true
			}
		}
	}
	return asking
}

// read adds the functions, methods and variables of files, each with the names that it uses.
func read(code map[string][]string, dir string, files []string) error {
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if strings.HasSuffix(file, "_test.go") && forRace(f) {
					return fmt.Errorf("%s: functions of tests must not depend on the race detector by a build constraint", filepath.Join(dir, file))
				}
				code[d.Name.Name] = append(code[d.Name.Name], names(d)...)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.ValueSpec); ok {
						for _, n := range s.Names {
							code[n.Name] = append(code[n.Name], names(s)...)
						}
					}
				}
			}
		}
	}
	return nil
}

// names returns the identifiers in a declaration.
func names(n ast.Node) (all []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all = append(all, id.Name)
		}
		return true
	})
	return all
}

// forRace reports whether a build constraint of a file speaks of the race detector.
func forRace(f *ast.File) (yes bool) {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if x, err := constraint.Parse(c.Text); err == nil {
				x.Eval(func(tag string) bool { yes = yes || tag == "race"; return true })
			}
		}
	}
	return yes
}
