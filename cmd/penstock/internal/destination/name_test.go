package destination

import (
	"strings"
	"testing"
)

func TestNormalize(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"Deb.Debian.ORG": "deb.debian.org", "deb.debian.org.": "deb.debian.org", "localhost": "localhost", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"1.example": "1.example", "a--b.example": "a--b.example", long + ".example": long + ".example", "0xfg": "0xfg",
		strings.Join([]string{long, long, long, long[:61]}, "."): strings.Join([]string{long, long, long, long[:61]}, "."),
		"": "", ".": "", "..": "", "a..b": "", ".a": "", "a.b..": "", "-a.example": "", "a-.example": "", "a_b.example": "", "a b": "", "a/b": "", "*.example": "", "a\x00.example": "", "ä.example": "",
		"127.0.0.1": "", "127.1": "", "2130706433": "", "0x7f000001": "", "0x7f.1": "", "127.0x1": "", "example.1": "", "[::1]": "", "::1": "", "fe80::1%eth0": "", "a:443": "",
		long + "a.example": "", strings.Join([]string{long, long, long, long[:62]}, "."): "",
	} {
		got, ok := Normalize(in)
		if got != want && ok || ok != (want != "") {
			t.Errorf("Normalize(%q) is %q, %v; want %q", in, got, ok, want)
		}
	}
}

func TestAllow(t *testing.T) {
	n := NewNames([]string{"*.debian.org", "github.com", "*.a.test"})
	for name, want := range map[string]bool{
		"deb.debian.org": true, "a.b.debian.org": true, "github.com": true, "x.a.test": true,
		"debian.org": false, "evildebian.org": false, "debian.org.evil.test": false, "www.github.com": false, "org": false, "a.test": false, "deb.debian.org.a": false,
	} {
		if got := n.Allow(name); got != want {
			t.Errorf("Allow(%q) is %v", name, got)
		}
	}
	if !NewNames([]string{"*"}).Allow("any.example") || NewNames([]string{"*"}).Allow("intranet") || NewNames(nil).Allow("any.example") {
		t.Error("* allows all, and nothing allows none")
	}
}

// A name that is taken is one that means itself, and not more than one.
func FuzzName(f *testing.F) {
	for _, s := range []string{"deb.debian.org", "DEB.debian.org.", "127.0.0.1", "0x7f.1", "a..b", "-a", "*.example.org", "ä"} {
		f.Add(s, "*.debian.org")
	}
	f.Fuzz(func(t *testing.T, s, pattern string) {
		name, ok := Normalize(s)
		if !ok {
			return
		}
		if again, ok := Normalize(name); !ok || again != name {
			t.Errorf("%q becomes %q, and that %q", s, name, again)
		}
		if !strings.EqualFold(name, strings.TrimSuffix(s, ".")) || len(name) > maxName {
			t.Errorf("%q becomes %q", s, name)
		}
		want := pattern == "*" && strings.Contains(name, ".") || pattern == name
		if base, ok := strings.CutPrefix(pattern, "*."); ok {
			want = strings.HasSuffix(name, "."+base) && len(name) > len(base)+1
		}
		if got := NewNames([]string{pattern}).Allow(name); got != want && pattern != "*." {
			t.Errorf("%q allows %q: %v", pattern, name, got)
		}
	})
}
