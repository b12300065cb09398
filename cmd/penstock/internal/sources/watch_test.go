package sources

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/internal/testwait"
)

// watchPath watches a configuration file, which need not be valid.
func watchPath(path string) (*Watch, error) {
	s := &config.Source{Paths: []string{path}}
	s.Load()
	return WatchFiles(s)
}

// A file that is written in place, or replaced by renaming, or by way of a link to a
// folder, has changed; once for each time.
func TestWatchFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "a")
	w, err := watchPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	changed := func(how string) {
		t.Helper()
		select {
		case <-w.Changed:
		case <-time.After(testwait.Patience):
			t.Fatalf("no change: %s", how)
		}
	}
	write(path, "b")
	changed("written in place")
	write(path+".new", "c")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	changed("replaced")

	// By way of a link: its target is written, and another one takes its place.
	far := t.TempDir()
	target, link := filepath.Join(far, "real.yaml"), filepath.Join(dir, "link.yaml")
	write(target, "a")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	linked, err := watchPath(link)
	if err != nil {
		t.Fatal(err)
	}
	defer linked.Close()
	w, own := linked, w
	write(target, "b")
	changed("the target of a link is written")
	other := filepath.Join(t.TempDir(), "other.yaml")
	write(other, "c")
	if err := errors.Join(os.Symlink(other, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	changed("the link leads elsewhere")
	write(other, "d")
	changed("the new target is written")

	// By way of a link of a folder on the way to the target of a link, as with a volume of Kubernetes
	// and a link of one's own to it.
	volume := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(volume, version), 0o755); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(volume, version, "c.yaml"), version)
	}
	data := filepath.Join(volume, "..data")
	indirect := filepath.Join(dir, "indirect.yaml")
	if err := errors.Join(os.Symlink("1", data), os.Symlink(filepath.Join(data, "c.yaml"), indirect)); err != nil {
		t.Fatal(err)
	}
	if w, err = watchPath(indirect); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := errors.Join(os.Symlink("2", data+".new"), os.Rename(data+".new", data)); err != nil {
		t.Fatal(err)
	}
	changed("a link of a folder on the way leads elsewhere")
	write(filepath.Join(volume, "2", "c.yaml"), "3")
	changed("the file that it leads to is written")
	w = own
	none, err := WatchFiles(nil)
	if err != nil {
		t.Fatal(err)
	}
	none.Close()
}

// Included files and folders are watched as well, those too that do not exist yet.
func TestWatchIncluded(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		at, next := filepath.Join(dir, name), filepath.Join(t.TempDir(), "next")
		// At once: a file that is made and then written has changed twice, if there is a while in between.
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(next, []byte(text), 0o600), os.Rename(next, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("conf.d/a.yaml", "drain: 1s")
	write("main.yaml", "include: [conf.d, late.yaml]")
	w, err := watchPath(filepath.Join(dir, "main.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, step := range []struct {
		how string
		do  func()
	}{
		{"an included file is written", func() { write("conf.d/a.yaml", "drain: 2s") }},
		{"a file is added to the folder", func() { write("conf.d/b.yaml", "log: {}") }},
		{"a file is removed from the folder", func() { os.Remove(filepath.Join(dir, "conf.d/b.yaml")) }},
		{"a missing file is made", func() { write("late.yaml", "") }},
	} {
		step.do()
		select {
		case <-w.Changed:
		case <-time.After(testwait.Patience):
			t.Fatalf("no change: %s", step.how)
		}
	}
	write("conf.d/README", "")
	write("other.yaml", "")
	select {
	case <-w.Changed:
		t.Error("a change of a file that is not read counts")
	case <-time.After(3 * watchDebounce):
	}
}
