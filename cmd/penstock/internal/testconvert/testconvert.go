// Package testconvert is for tests only: what must hold of every reader of package convert. The originals, real
// configurations, are in the folder testdata of the reader's package.
package testconvert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/convert"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "write the golden files")

// Originals returns the configurations in testdata that a reader is for.
func Originals(t testing.TB, r *convert.Reader) (list []convert.File) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*" + map[convert.Product]string{convert.HAProxy: ".cfg", convert.Nginx: ".conf"}[r.Product])
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := convert.File{Name: filepath.Base(path), Text: text}
		if convert.Guess(f) != r.Product {
			t.Errorf("%s: not guessed", path)
		}
		list = append(list, f)
	}
	return list
}

// Folder reads included files from a folder.
func Folder(dir string) convert.Source {
	return convert.Source{Read: func(pattern string) ([]convert.File, error) {
		if strings.Contains(pattern, "..") {
			return nil, os.ErrNotExist
		}
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(names) == 0 && !strings.Contains(pattern, "*") {
			err = &os.PathError{Op: "open", Path: pattern, Err: os.ErrNotExist}
		}
		var files []convert.File
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			files = append(files, convert.File{Name: pattern, Text: text})
		}
		return files, err
	}}
}

// Text converts one file without any others.
func Text(r *convert.Reader, name, text string) (*convert.Result, error) {
	return r.Convert([]convert.File{{Name: name, Text: []byte(text)}}, convert.Source{})
}

// Golden converts the originals: what comes out of them is in testdata, and check accepts it without a warning that the
// original does not deserve.
func Golden(t *testing.T, r *convert.Reader) {
	for _, f := range Originals(t, r) {
		result, err := r.Convert([]convert.File{f}, Folder("testdata"))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		Valid(t, f.Name, result)
		NoWarnings(t, result)
		var notes bytes.Buffer
		for _, n := range result.Notes {
			notes.WriteString(n.String() + "\n")
		}
		base := filepath.Join("testdata", strings.TrimSuffix(f.Name, filepath.Ext(f.Name)))
		for name, got := range map[string][]byte{base + ".yaml": result.YAML, base + ".notes": notes.Bytes()} {
			if *Update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v; got:\n%s", name, err, got)
			}
		}
	}
}

// Valid fails the test unless Penstock reads the result without an error.
func Valid(t testing.TB, name string, r *convert.Result) {
	t.Helper()
	if _, err := config.Parse(name, r.YAML); err != nil {
		t.Errorf("%s: %v\n%s", name, err, r.YAML)
	}
}

// warned are warnings that a converted file may cause: the original has the same flaw.
var warned = []string{"every member is drained", "checks have no client to connect from", "shorter than connect", "are refused if the member chooses what the group again offers", "open relay"}

// NoWarnings fails the test if penstock check would warn about the result.
func NoWarnings(t testing.TB, r *convert.Result) {
	t.Helper()
	// A text in a registry is one that is in no file.
	source := config.Source{Paths: []string{"etcd://127.0.0.1:1/converted"}, Remote: func(string) (spec.Layer, error) { return spec.Layer{Text: r.YAML}, nil }}
	_, warnings, err := source.Load()
	if err != nil {
		t.Errorf("%v\n%s", err, r.YAML)
	}
	for _, w := range warnings {
		if !slices.ContainsFunc(warned, func(s string) bool { return strings.Contains(w.Error(), s) }) {
			t.Errorf("%v\n%s", w, r.YAML)
		}
	}
}

// Outcome is all that a conversion says.
func Outcome(r *convert.Reader, name, text string) string {
	result, err := r.Convert([]convert.File{{Name: name, Text: []byte(text)}}, Folder("testdata"))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(string(result.YAML), result.Notes)
}
