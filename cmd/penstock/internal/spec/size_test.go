package spec

import (
	"errors"
	"math"
	"regexp"
	"testing"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "007": 7, "512KiB": 512 << 10, "1MiB": 1 << 20, "3GiB": 3 << 30, "2TiB": 2 << 40, "9223372036854775807": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		if n, err := ParseSize(text); n != want || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]SizeError{
		"": {}, "x": {}, "-1": {}, "1.5MiB": {}, "KiB": {}, "1PiB": {}, "1KiBs": {},
		"1k": {Near: "1KiB"}, "1 MiB": {Near: "1MiB"}, "1MB": {Near: "1MiB"}, "5g": {Near: "5GiB"}, "5T": {Near: "5TiB"}, "10B": {Near: "10"}, "10i": {Near: "10"},
		"9223372036854775808": {Range: true}, "8388608TiB": {Range: true}, "8388608tb": {Range: true},
	} {
		want.Text = text
		n, err := ParseSize(text)
		var got *SizeError
		if !errors.As(err, &got) || *got != want || n != 0 {
			t.Errorf("%q: %d, %+v, want %+v", text, n, got, want)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "1KiB", "3 gb", "9223372036854775807", "8388607TiB", "x"} {
		f.Add(s)
	}
	pattern := regexp.MustCompile(SizePattern)
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		var e *SizeError
		switch {
		case err != nil:
			if !errors.As(err, &e) || n != 0 {
				t.Fatalf("%q: %d, %v", text, n, err)
			}
			if e.Near != "" {
				if _, err := ParseSize(e.Near); err != nil {
					t.Fatalf("%q: %q is not right either: %v", text, e.Near, err)
				}
			}
		case n < 0:
			t.Fatalf("%q: %d", text, n)
		default:
			back := FormatSize(n)
			if m, err := ParseSize(back); m != n || err != nil {
				t.Fatalf("%q: %d, %q, %d, %v", text, n, back, m, err)
			}
			if back[len(back)-1] == 'B' && !pattern.MatchString(back) {
				t.Fatalf("%q does not match the pattern", back)
			}
		}
	})
}
