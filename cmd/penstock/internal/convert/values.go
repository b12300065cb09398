package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// prefix reads an address or a range of addresses. Bits behind the length are
// left out, as HAProxy and nginx do.
func prefix(s string) (string, bool) {
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

// serverName reads the name that a TLS client asks for, or *. and the end of it.
func serverName(s string) (string, bool) {
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

// lazyRE returns what compiles a regular expression at its first use: the daemon has this package, and never converts.
func lazyRE(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// serviceRE matches names of SRV records.
var serviceRE = lazyRE(`^_[A-Za-z0-9-]{1,62}\._tcp(\.[A-Za-z0-9_-]{1,63}){1,8}$`)

var labelRE = lazyRE(`^[a-z0-9_-]{1,63}$`)

// timeOf reads a number with one of the units, or without: then it counts in unit.
func timeOf(s string, units map[string]time.Duration, unit time.Duration) (time.Duration, bool) {
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
		if n > int64(10*maxLife/by) {
			n = int64(10 * maxLife / by)
		}
		total = min(total+time.Duration(n)*by, 10*maxLife)
	}
	return total, true
}

// sizeOf reads a number of bytes, with k, m or g.
func sizeOf(s string) (int, bool) {
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

// size writes a number of bytes, at most a GiB.
func size(n int) raw {
	n = min(n, many)
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if by := 1 << (30 - 10*i); n > 0 && n%by == 0 {
			return raw(strconv.Itoa(n/by) + unit)
		}
	}
	return raw(strconv.Itoa(n))
}

// count reads a number that is not negative.
func count(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil
}

// upstream returns the URL of an upstream, or why it cannot be one.
func upstream(url string) (string, error) {
	e, err := spec.ParseUpstream(url)
	if err != nil {
		return "", err
	}
	return e.String(), nil
}

var interfaceRE = lazyRE(`^[^/\s\x00-\x1f]{1,15}$`)

// An accessRule admits or refuses clients of some addresses; the first rule that
// matches decides.
type accessRule struct {
	allow bool
	from  []string // nil: everybody
	at    at
}

// access turns rules into the lists allow and deny of a listener, where deny
// counts more. It returns a rule that the lists cannot express, if there is one.
func access(rules []accessRule) (allow, deny []string, bad *accessRule) {
	closed := false
	for i, r := range rules {
		if closed {
			break // no client gets here
		}
		switch {
		case r.from == nil && r.allow:
			return nil, deny, nil // everybody else
		case r.from == nil:
			closed = true
		case r.allow:
			// A refused range inside an admitted one came first and still counts; an
			// admitted one inside a refused one has been refused.
			allow = append(allow, r.from...)
		default:
			for _, s := range r.from {
				if slices.ContainsFunc(allow, func(t string) bool { return inside(t, s) }) {
					continue // all of it has been admitted
				}
				if slices.ContainsFunc(allow, func(t string) bool { return inside(s, t) }) {
					return nil, nil, &rules[i] // a part has been admitted
				}
				deny = append(deny, s)
			}
		}
	}
	if !closed {
		allow = nil // nobody is refused in the end
	} else if len(allow) == 0 {
		return nil, nil, &rules[len(rules)-1]
	}
	return allow, deny, nil
}

// setAccess sets allow and deny of a listener by rules. It reports false if the listener cannot be
// had.
func (p *plan) setAccess(l *listener, rules []accessRule) bool {
	if strings.HasPrefix(l.url, "unix") {
		return p.unixAccess(l, rules)
	}
	allow, deny, bad := access(rules)
	switch {
	case bad != nil && bad.from == nil:
		p.refusesAll(l, bad)
		return false
	case bad != nil:
		p.note(bad.at, "the order of these rules has no counterpart: allow and deny of a listener are two lists, and deny counts more; the listener %s is left out", l.name)
		return false
	}
	if len(allow) > 0 {
		l.fields.set("allow", allow)
	}
	if len(deny) > 0 {
		l.fields.set("deny", deny)
	}
	return true
}

// unixAccess reports whether a Unix socket admits its clients. They have no address, so no rule
// with a range matches any of them, and one that matches everybody decides for all.
func (p *plan) unixAccess(l *listener, rules []accessRule) bool {
	for i, r := range rules {
		switch {
		case r.from != nil:
			p.note(r.at, "clients of the Unix socket of %s have no address: allow and deny with addresses are left out", l.name)
		case r.allow:
			return true
		default:
			p.refusesAll(l, &rules[i])
			return false
		}
	}
	return true
}

func (p *plan) refusesAll(l *listener, r *accessRule) {
	p.note(r.at, "the listener %s refuses everybody, and is left out", l.name)
}

func quoted(words []string) string {
	return fmt.Sprintf("%q", strings.Join(words, " "))
}

// hostless returns a member of a group that has no host of its own, so that only a server name tells whose certificate it
// must have: a Unix socket, or what DNS says of a service. Empty: there is none.
func hostless(group fields) string {
	discover, _ := group.get("discover").([]fields)
	for _, d := range discover {
		if service, ok := d.get("srv").(string); ok {
			return service
		}
	}
	for _, url := range urlsOf(group) {
		if strings.HasPrefix(url, "unix:") {
			return url
		}
	}
	return ""
}

// urlsOf returns where the members of a group are.
func urlsOf(group fields) (urls []string) {
	switch members := group.get("members").(type) {
	case []string:
		urls = members
	case []fields:
		for _, m := range members {
			if url, ok := m.get("to").(string); ok {
				urls = append(urls, url)
			}
		}
	}
	return urls
}
