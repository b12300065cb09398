package feature_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// Each probe must agree with the release that it declares: on an older kernel
// the test is skipped, on a newer one "unsupported" fails it.
func TestProbes(t *testing.T) {
	for _, p := range slices.Concat(feature.Stream, feature.Datagram) {
		t.Run(p.Name, func(t *testing.T) {
			testnet.Need(t, p)
			if !p.Supported() {
				t.Error("Need let an unsupported feature pass")
			}
		})
	}
}

func TestErrorIsUnsupported(t *testing.T) {
	errno := errors.New("function not implemented")
	err := error(&feature.UnsupportedError{Name: "epoll_pwait2", Since: feature.Version{5, 11}, Err: errno})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, errno) {
		t.Errorf("%v is not both ErrUnsupported and the kernel's answer", err)
	}
	const want = "epoll_pwait2 is not supported (needs Linux 5.11): function not implemented"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestParseVersion(t *testing.T) {
	for s, want := range map[string]feature.Version{
		"6.18.44-fc1":        {6, 18, 44},
		"5.15":               {5, 15, 0},
		"5.15-rc1":           {5, 15, 0},
		"4.14.186+":          {4, 14, 186},
		"6.1.0-13-amd64":     {6, 1, 0},
		"3.10.0-1160.el7.x8": {3, 10, 0},
		"7.0.":               {7, 0, 0},
	} {
		if got, err := feature.ParseVersion(s); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "6", "6.", ".1", "v6.1", "6-1"} {
		if got, err := feature.ParseVersion(s); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", s, got)
		}
	}
}

func TestVersionOrder(t *testing.T) {
	order := []feature.Version{{2, 6, 17}, {2, 6, 35}, {4, 2, 0}, {4, 18, 0}, {5, 11, 0}, {5, 11, 1}, {6, 0, 0}}
	for i, v := range order {
		for j, w := range order {
			if v.Less(w) != (i < j) {
				t.Errorf("%v.Less(%v) = %v", v, w, v.Less(w))
			}
		}
	}
	if got := (feature.Version{2, 6, 35}).String(); got != "2.6.35" {
		t.Errorf("got %q", got)
	}
	if got := (feature.Version{5, 11}).String(); got != "5.11" {
		t.Errorf("got %q", got)
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"6.18.44-fc1", "5.15", "", "6..1", "999999999999.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := feature.ParseVersion(s)
		if err != nil {
			return
		}
		again, err := feature.ParseVersion(v.String())
		if err != nil || again != v {
			t.Fatalf("%q -> %v -> %v, %v", s, v, again, err)
		}
	})
}
