package lists

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Bounds of a list.
const (
	MaxNetworks = 4 << 20
	MaxBytes    = 256 << 20 // of its text
	maxNamed    = 5         // bad lines that are named
	maxLine     = 4096
	badShare    = 10 // a text in which more than one line of so many is bad is no list: a page that says what went wrong, or another format
)

// A Report is what a text contained besides networks.
type Report struct {
	Bad     int      // lines that are not a network, and were left out
	Named   []string // the first of them, with their numbers
	Entries int      // networks, before those were left out that others contain
}

// Parse reads a text with one address or network per line. What follows # or ; is a comment. Lines that cannot be read are left out; if
// there are too many of them, the text is refused.
func Parse(text []byte) (*Set, Report, error) {
	list, r, err := parse(nil, text)
	if err != nil {
		return nil, r, err
	}
	return NewSet(list), r, nil
}

// parse appends the networks of a text to a list.
func parse(list []Entry, text []byte) ([]Entry, Report, error) {
	var r Report
	if len(text) > MaxBytes {
		return nil, r, fmt.Errorf("%d bytes; allowed: up to %d", len(text), MaxBytes)
	}
	if list == nil {
		list = make([]Entry, 0, min(bytes.Count(text, []byte("\n"))+1, MaxNetworks))
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for number := uint32(1); len(text) > 0; number++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		if i := bytes.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, problem := network(line)
		if problem != "" {
			if r.Bad++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, fmt.Sprintf("line %d: %s", number, problem))
			}
			continue
		}
		if r.Entries++; len(list) >= MaxNetworks {
			return nil, r, fmt.Errorf("line %d: more than %d networks", number, MaxNetworks)
		}
		list = append(list, Entry{p, number})
	}
	if r.Bad*badShare > r.Bad+r.Entries {
		return nil, r, fmt.Errorf("%d of %d lines are not networks: %s", r.Bad, r.Bad+r.Entries, strings.Join(r.Named, "; "))
	}
	return list, r, nil
}

// network parses an address or a network; bits beyond the prefix do not matter.
func network(line []byte) (p netip.Prefix, problem string) {
	if len(line) > maxLine {
		return p, fmt.Sprintf("%d bytes long", len(line))
	}
	p, err := ParseNetwork(string(line))
	if err != nil {
		return p, err.Error()
	}
	return p, ""
}

// ParseNetwork parses an address or a network. IPv4-mapped IPv6 addresses are IPv4 addresses.
func ParseNetwork(s string) (p netip.Prefix, err error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	if p, err = netip.ParsePrefix(s); err != nil {
		return p, fmt.Errorf("%.60q is neither an address nor a network", s)
	}
	if p.Addr().Is4In6() && p.Bits() < 96 {
		return p, fmt.Errorf("the network %.60q is larger than all IPv4-mapped addresses", s)
	}
	return spec.CanonicalPrefix(p), nil
}
