package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Messages are part of the interface: each testdata/*.yaml has a .want with
// everything that is wrong with it, and the warnings behind it.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, warnings, err := Load(path)
			var bad Errors
			if !errors.As(err, &bad) || len(bad) == 0 || c != nil {
				t.Fatalf("%v, %v", c, err)
			}
			got := err.Error() + "\n"
			for _, w := range warnings {
				got += "warning: " + w.Error() + "\n"
			}
			got = strings.ReplaceAll(got, path, filepath.Base(path))
			if folder, err := filepath.Abs("testdata"); err == nil {
				got = strings.ReplaceAll(got, folder, "/testdata")
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".want"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestNear(t *testing.T) {
	keys := []string{"listen", "limits", "to", "timeouts", "tcp", "from"}
	for word, want := range map[string]string{
		"lisen": "listen", "lsiten": "listen", "Listen": "listen", "listener": "listen", "limit": "limits", "timeout": "timeouts",
		"form": "from", "ot": "to", "x": "", "tpc": "tcp", "colour": "", "": "", "listeningsocket": "",
	} {
		if got := suggest(word, keys); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.n {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.n)
		}
	}
}

// A file that is too big is refused before it is parsed, also an endless one.
func TestTooBig(t *testing.T) {
	_, err := Parse("big.yaml", make([]byte, maxFile+1))
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
	if _, err := os.Stat("/dev/zero"); err != nil {
		t.Skip("there is no /dev/zero here")
	}
	if _, _, err = Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}

func TestNoFile(t *testing.T) {
	if _, _, err := Load(filepath.Join(t.TempDir(), "penstock.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// No more errors than anybody reads, however maxCount there are.
func TestManyErrors(t *testing.T) {
	_, err := Parse("maxCount.yaml", []byte("listeners: {web: {listen: tcp://:1, allow: ["+strings.Repeat("x, ", 5000)+"]}}"))
	var bad Errors
	if !errors.As(err, &bad) || len(bad) != maxErrors {
		t.Errorf("%d errors", len(bad))
	}
}

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("all", "0123456789abcdef-all\n")
	write("read", "0123456789abcdef-read\n")
	write("p.yaml", "admin: {listen: tcp://127.0.0.1:1, token-file: all, read-token-file: "+filepath.Join(dir, "read")+"}\n"+
		"listeners: {web: {listen: tcp://:1, to: tcp://a:1}}\n")
	c, warnings, err := Load(filepath.Join(dir, "p.yaml"))
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	if c.Admin.Token != "0123456789abcdef-all" || c.Admin.ReadToken != "0123456789abcdef-read" {
		t.Errorf("%+v", c.Admin)
	}
}
