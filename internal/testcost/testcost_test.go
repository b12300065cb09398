package testcost

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that notes its failures.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Helper()                           {}
func (r *recorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }

// Check fails on what is dearer, on what is cheaper by more than the slack, and on what has no row, and says what to do.
func TestCheck(t *testing.T) {
	saved := table
	t.Cleanup(func() { table = saved })
	table = []row{{"a thing", "calls", 10, 0, "x"}, {"another", "KiB", 10, 2, "x"}}
	for _, c := range []struct {
		of, what string
		n        int64
		want     string
	}{
		{"a thing", "calls", 10, ""},
		{"a thing", "calls", 11, "a thing: 11 calls, and 10 in the table. Find what costs more"},
		{"a thing", "calls", 9, "write 9 into the row"},
		{"another", "KiB", 10, ""},
		{"another", "KiB", 8, ""},
		{"another", "KiB", 7, "write 7 into the row"},
		{"another", "KiB", 11, "Find what costs more"},
		{"another", "calls", 10, "no row"},
	} {
		var r recorder
		Check(&r, c.of, c.what, c.n)
		if c.want == "" && r.text != "" || !strings.Contains(r.text, c.want) {
			t.Errorf("%s, %d %s: %q, want %q", c.of, c.n, c.what, r.text, c.want)
		}
	}
}

// Each row has a reason, is there once, and belongs to a test.
func TestRows(t *testing.T) {
	var tests strings.Builder
	for _, dir := range []string{"../../relay", "../loop", "../../cmd/penstock"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				var text []byte
				text, err = os.ReadFile(path)
				tests.Write(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[[2]string]bool)
	for _, r := range table {
		if seen[[2]string{r.of, r.what}] {
			t.Errorf("%s, %s: two rows", r.of, r.what)
		}
		seen[[2]string{r.of, r.what}] = true
		if r.why == "" || r.most < 0 || r.slack < 0 {
			t.Errorf("%s, %s: %+v", r.of, r.what, r)
		}
		for _, name := range []string{r.of, r.what} {
			if !strings.Contains(tests.String(), fmt.Sprintf("%q", name)) {
				t.Errorf("%s, %s: no test of relay, internal/loop or cmd/penstock has the text %q", r.of, r.what, name)
			}
		}
	}
}
