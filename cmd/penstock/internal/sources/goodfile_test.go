package sources

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const testRemote = "etcd://10.0.0.1:2379/penstock/edge"

func layerOf(version, text string) spec.Layer {
	return spec.Layer{Path: testRemote, Version: version, At: time.Date(2026, 11, 22, 13, 0, 0, 5, time.UTC), Text: []byte(text)}
}

// What was written is read again, only its owner can read it, and of a damaged file the one before is used.
func TestGoodFile(t *testing.T) {
	dir := t.TempDir()
	f := newGoodFile(dir, testRemote+"?user-file=/etc/user")
	if l, err := f.read(); l.from != "" || err != nil || l.Version != "" {
		t.Errorf("of an empty folder: %+v, %v", l, err)
	}
	one, two := layerOf("12", "listeners: {}\n# no newline"), layerOf("13", "")
	for _, l := range []spec.Layer{one, two} {
		if err := f.write(&l); err != nil {
			t.Fatal(err)
		}
		got, err := f.read()
		if err != nil || got.from != f.path || !sameText(&got.Layer, &l) || !got.At.Equal(l.At) || got.Path != testRemote {
			t.Errorf("%+v, %v; want %+v", got, err, l)
		}
	}
	large := layerOf("14", strings.Repeat("x", maxGoodFile))
	if err := f.write(&large); err == nil || !strings.Contains(err.Error(), "version 14 has 8388") {
		t.Errorf("of what cannot be read: %v", err)
	}
	if got, err := f.read(); err != nil || got.from != f.path || !sameText(&got.Layer, &two) {
		t.Errorf("after what is too large: %+v, %v", got, err)
	}
	info, err := os.Stat(f.path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{"", string(text[:len(text)-1]), string(text) + "x", strings.Replace(string(text), "13", "14", 1), "listeners: {}\n"} {
		if err := os.WriteFile(f.path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.read(); !errors.Is(err, errDamaged) || got.from != f.path+previousSuffix || !sameText(&got.Layer, &one) {
			t.Errorf("of %q: %+v, %v", damaged, got, err)
		}
	}
	if err := os.Remove(f.path); err != nil { // the host went down between the two renames
		t.Fatal(err)
	}
	if got, err := f.read(); err != nil || !sameText(&got.Layer, &one) {
		t.Errorf("without the newest: %+v, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".config-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if err := os.Rename(f.path+previousSuffix, newGoodFile(dir, "etcd://10.0.0.2:2379/other").path); err != nil {
		t.Fatal(err)
	}
	if got, err := newGoodFile(dir, "etcd://10.0.0.2:2379/other").read(); err == nil || got.from != "" {
		t.Errorf("the file of another source: %+v, %v", got, err)
	}
}

func FuzzGoodFile(f *testing.F) {
	g := newGoodFile("/", testRemote)
	l := layerOf("12", "listeners: {}\n")
	f.Add(g.format(&l))
	f.Add([]byte(goodFileBegins + spec.HashOf([]byte("#\n")) + "\n#\n"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, text := range [][]byte{text, append([]byte(goodFileBegins+spec.HashOf(text)+"\n"), text...)} {
			l, err := parseGoodFile(text)
			if err != nil {
				continue
			}
			if again, err := parseGoodFile(g.format(&l)); err != nil || string(again.Text) != string(l.Text) || again.Version != config.PlainLine(l.Version) {
				t.Errorf("%+v became %+v, %v", l, again, err)
			}
		}
	})
}

// What was kept is found whatever the list of servers is, as long as it is the same registry, or there is nothing else of
// the key; and it does not stay beside what is newer.
func TestGoodFileOfOtherServers(t *testing.T) {
	dir := t.TempDir()
	const ab, ba, abc, c, other = "etcd://10.0.0.1:2379,10.0.0.2:2379/penstock/edge", "etcds://10.0.0.2:2379,10.0.0.1:2379/penstock/edge", "etcd://10.0.0.3:2379,10.0.0.1:2379/penstock/edge", "etcd://10.0.0.3:2379/penstock/edge", "etcd://10.0.0.1:2379/penstock/other"
	write := func(url, version string, minute int) {
		t.Helper()
		l := layerOf(version, "text of "+version)
		l.At = l.At.Add(time.Duration(minute) * time.Minute)
		if err := newGoodFile(dir, url).write(&l); err != nil {
			t.Fatal(err)
		}
	}
	read := func(url, version string, stranger bool) {
		t.Helper()
		l, err := newGoodFile(dir, url).read()
		if err != nil || l.Version != version || l.stranger != stranger {
			t.Errorf("%s: version %q, stranger %v, from %s, %v; want %q, %v", url, l.Version, l.stranger, l.from, err, version, stranger)
		}
	}
	write(ab, "12", 0)
	read(ba, "12", false)
	read(abc, "12", false)
	read(c, "12", true)
	read(other, "", false)
	read("xds://10.0.0.1:2379/penstock/edge", "", false)
	write(ba, "13", 1)
	read(ab, "13", false) // the older one is no longer there
	write(c, "7", 2)      // another cluster, with the same key
	read(c, "7", false)
	read(ab, "13", false)
	read("etcd://10.0.0.9:2379/penstock/edge", "", false) // which of the two is not known
	read(abc, "7", false)                                 // the newer one of both
	if l, _ := newGoodFile(dir, ab).read(); !strings.Contains(l.from, ", which is of "+ba) {
		t.Errorf("from %s", l.from)
	}
}

// The folder is created if it is not there, also when somebody has removed it.
func TestGoodFileFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "penstock", "edge")
	f := newGoodFile(dir, testRemote)
	l := spec.Layer{Text: []byte("x"), Version: "1"}
	for range 2 {
		if err := f.write(&l); err != nil {
			t.Fatal(err)
		}
		if s, err := os.Stat(dir); err != nil || s.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", s, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
