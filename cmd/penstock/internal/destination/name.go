package destination

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// maxName and maxLabel are of RFC 1035, section 2.3.4.
const (
	maxName  = 253
	maxLabel = 63
)

// Normalize returns a name as it is compared and looked up: in lower case, without the dot at the end. It reports whether it is the
// name of a host: labels of letters, digits and hyphens, the last of which is not a number, so that no address is a name.
func Normalize(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxName {
		return "", false
	}
	number := false
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return "", false
		}
		number = true
		for _, c := range []byte(label) {
			switch {
			case '0' <= c && c <= '9':
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-':
				number = false
			default:
				return "", false
			}
		}
		// inet_aton reads 0x7f as a number, and so do some resolvers.
		if len(label) > 2 && label[0] == '0' && label[1]|0x20 == 'x' && strings.Trim(label[2:], "0123456789abcdefABCDEF") == "" {
			number = true
		}
	}
	return strings.ToLower(s), !number
}

// Names are the names of a destination's allow, to be looked up fast. They do not change.
type Names struct {
	exact map[string]bool
	below map[string]bool // names below these
	any   bool
}

// NewNames returns the names that match one of the patterns.
func NewNames(patterns []string) *Names {
	n := &Names{exact: map[string]bool{}, below: map[string]bool{}}
	for _, p := range patterns {
		if base, ok := strings.CutPrefix(p, "*."); ok {
			n.below[base] = true
		} else if p == spec.AnyName {
			n.any = true
		} else {
			n.exact[p] = true
		}
	}
	return n
}

// Allow reports whether a name, as Normalize returns it, matches. One without a dot must be there itself: search lists may complete it.
func (n *Names) Allow(name string) bool {
	if n.exact[name] || n.any && strings.Contains(name, ".") {
		return true
	}
	for rest := name; len(n.below) > 0; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		if rest = rest[i+1:]; n.below[rest] {
			return true
		}
	}
	return false
}
