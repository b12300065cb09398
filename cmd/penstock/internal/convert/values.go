package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Prefix reads an address or a range of addresses. Bits behind the length are
// left out, as HAProxy and nginx do.
func Prefix(s string) (string, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()).String(), true
	}
	addr, length, ok := strings.Cut(s, "/")
	if !ok {
		return "", false
	}
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return "", false
	}
	bits, err := strconv.Atoi(length)
	if err != nil { // a mask, such as 255.255.0.0
		m, err := netip.ParseAddr(length)
		if err != nil || !m.Is4() || !a.Is4() {
			return "", false
		}
		b := m.As4()
		n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		for bits = 0; bits < 32 && n&(1<<(31-bits)) != 0; bits++ {
		}
		if bits < 32 && n<<bits != 0 {
			return "", false
		}
	}
	p, err := a.Prefix(bits)
	return p.String(), err == nil
}

// ServerName reads the name that a TLS client asks for, or *. and the end of it.
func ServerName(s string) (string, bool) {
	s = strings.ToLower(s)
	name := strings.TrimPrefix(s, "*.")
	if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !labelRE().MatchString(label) {
			return "", false
		}
	}
	return s, true
}

// LazyRE returns what compiles a regular expression at its first use: the daemon has this package, and never converts.
func LazyRE(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// ServiceRE matches names of SRV records.
var ServiceRE = LazyRE(`^_[A-Za-z0-9-]{1,62}\._tcp(\.[A-Za-z0-9_-]{1,63}){1,8}$`)

var labelRE = LazyRE(`^[a-z0-9_-]{1,63}$`)

// TimeOf reads a number with one of the units, or without: then it counts in unit.
func TimeOf(s string, units map[string]time.Duration, unit time.Duration) (time.Duration, bool) {
	var total time.Duration
	if s == "" {
		return 0, false
	}
	for s != "" {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		n, err := strconv.ParseInt(s[:i], 10, 64)
		if err != nil {
			return 0, false
		}
		s = s[i:]
		i = 0
		for i < len(s) && s[i] >= 'a' && s[i] <= 'z' || i < len(s) && s[i] == 'M' {
			i++
		}
		by := unit
		if i > 0 {
			if by = units[s[:i]]; by == 0 {
				return 0, false
			}
		}
		s = strings.TrimLeft(s[i:], " ")
		if n > int64(10*MaxLife/by) {
			n = int64(10 * MaxLife / by)
		}
		total = min(total+time.Duration(n)*by, 10*MaxLife)
	}
	return total, true
}

// SizeOf reads a number of bytes, with k, m or g.
func SizeOf(s string) (int, bool) {
	shift := 0
	if n := len(s); n > 0 {
		switch s[n-1] | 0x20 {
		case 'k':
			shift = 10
		case 'm':
			shift = 20
		case 'g':
			shift = 30
		}
		if shift > 0 {
			s = s[:n-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return int(n) << shift, err == nil
}

// Size writes a number of bytes, at most a GiB.
func Size(n int) Raw {
	n = min(n, Many)
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if by := 1 << (30 - 10*i); n > 0 && n%by == 0 {
			return Raw(strconv.Itoa(n/by) + unit)
		}
	}
	return Raw(strconv.Itoa(n))
}

// Count reads a number that is not negative.
func Count(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

// Upstream returns the URL of an upstream, or why it cannot be one.
func Upstream(url string) (string, error) {
	e, err := spec.ParseUpstream(url)
	if err != nil {
		return "", err
	}
	return e.String(), nil
}

func Quoted(words []string) string {
	return fmt.Sprintf("%q", strings.Join(words, " "))
}
