package sys

import "testing"

// A process goes on after TrimPrograms, again and again.
func TestTrimPrograms(t *testing.T) {
	for range 3 {
		if n := TrimPrograms(); n == 0 {
			t.Error("nothing of the test's own program was mapped")
		}
	}
	for _, fields := range [][]string{
		nil,
		{"x"},
		{"1000-2000", "rw-p", "0", "08:01", "12", "/a"},
		{"1000-2000", "r-xp", "0", "00:00", "0", "[vdso]"},
		{"2000-1000", "r-xp", "0", "08:01", "12", "/a"},
		{"1000", "r-xp", "0", "08:01", "12", "/a"},
	} {
		if m := parseMapping(fields); m != (mapping{}) {
			t.Errorf("%v: %+v", fields, m)
		}
	}
}
