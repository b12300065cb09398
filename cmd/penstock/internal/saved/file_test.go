package saved

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A file is written as a whole, only its owner may read it, what was there before stays where the caller wants it, and nothing
// else is left in the folder.
func TestWriteFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	path, previous := filepath.Join(dir, "a.txt"), filepath.Join(dir, "before")
	has := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", path, text, err, want)
		}
	}
	for _, text := range []string{"one", "two"} {
		if err := WriteFile(path, previous, []byte(text)); err != nil {
			t.Fatal(err)
		}
		has(path, text)
	}
	has(previous, "one")
	if err := WriteFile(path, "", []byte("three")); err != nil {
		t.Fatal(err)
	}
	has(path, "three")
	has(previous, "one")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "folder"), "", nil); err == nil {
		t.Error("a file took the place of a folder")
	}
	if err := WriteFile(filepath.Join(path, "x"), "", nil); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a file: %v", err)
	}
}

// What a process left that was killed while it wrote does not stay for ever. What is written just now does, and so do all other files.
func TestAbandoned(t *testing.T) {
	folder := t.TempDir()
	old := time.Now().Add(-2 * abandoned)
	for name, at := range map[string]time.Time{
		".list-1-123": old, ".list-1-456": time.Now(), ".list-2-123": old, "list-1.txt": old, "list-1-1.txt": old, ".list-1": old,
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, ".list-1-789"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(folder, "list-1.txt"), "", []byte("text")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".list-1", ".list-1-456", ".list-1-789", ".list-2-123", "list-1-1.txt", "list-1.txt"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
