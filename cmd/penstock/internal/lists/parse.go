package lists

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
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
func Parse(text []byte) (*Set, Report, error) { return parseAll(bytes.NewReader(text), &spec.List{}) }

// parseAll is Parse of a text of a list.
func parseAll(text io.ReadSeeker, l *spec.List) (*Set, Report, error) {
	s := &Set{}
	r, err := s.parse(text, l)
	if err != nil {
		return nil, r, err
	}
	return s.finish(), r, nil
}

// parse adds the networks of a text to a set that is not finished. The text is read twice, in pieces, so that it is never in memory as a whole,
// and the arrays of the set need not grow.
func (s *Set) parse(text io.ReadSeeker, l *spec.List) (r Report, err error) {
	v4, v6 := 0, 0
	if err := eachLine(text, func(line []byte) error {
		if bytes.IndexByte(line, ':') >= 0 {
			v6++
		} else {
			v4++
		}
		return nil
	}); err != nil {
		return r, err
	}
	if _, err := text.Seek(0, io.SeekStart); err != nil {
		return r, err
	}
	s.v4.all, s.v6.all = slices.Grow(s.v4.all, min(v4, MaxNetworks-len(s.v4.all))), slices.Grow(s.v6.all, min(v6, MaxNetworks-len(s.v6.all)))
	number := uint32(0)
	err = eachLine(text, func(line []byte) error {
		if number++; number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if i := bytes.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == ';' {
			return nil
		}
		p, problem := networkOf(l, line)
		if problem != "" {
			if r.Bad++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, fmt.Sprintf("line %d: %s", number, problem))
			}
			return nil
		}
		if r.Entries++; s.Len() >= MaxNetworks {
			return fmt.Errorf("line %d: more than %d networks", number, MaxNetworks)
		}
		s.add(Entry{p, number})
		return nil
	})
	if err == nil && int(number) != v4+v6 {
		err = errors.New("it has changed while it was read")
	}
	if err == nil && r.Bad*badShare > r.Bad+r.Entries {
		err = fmt.Errorf("%d of %d lines are not networks: %s", r.Bad, r.Bad+r.Entries, strings.Join(r.Named, "; "))
	}
	return r, err
}

// eachLine calls f with each line of a text, which is valid until f returns. Of a line that is far too long it is called with the beginning.
func eachLine(text io.Reader, f func(line []byte) error) error {
	in := bufio.NewReaderSize(io.LimitReader(text, MaxBytes+1), 16*maxLine) // a file may grow while it is read
	for total := 0; ; {
		line, err := in.ReadSlice('\n')
		total += len(line)
		if len(line) > 0 {
			if failed := f(line); failed != nil {
				return failed
			}
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of it
			line, err = in.ReadSlice('\n')
			total += len(line)
		}
		switch {
		case total > MaxBytes:
			return fmt.Errorf("more than %d bytes", MaxBytes)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// networkOf parses the address or network of a line; bits beyond the prefix do not matter.
func networkOf(l *spec.List, line []byte) (p netip.Prefix, problem string) {
	if len(line) > maxLine {
		return p, fmt.Sprintf("%d bytes long", len(line))
	}
	network, ok := l.NetworkIn(line)
	if !ok {
		return p, fmt.Sprintf("%.60q is not %q", line, l.Lines)
	}
	line = network
	if p, ok := plain4(line); ok {
		return p, ""
	}
	p, err := ParseNetwork(string(line))
	if err != nil {
		return p, err.Error()
	}
	return p, ""
}

// plain4 parses an IPv4 address or network in its usual form, without allocating: most lists have few others. It returns false for
// everything else.
func plain4(line []byte) (p netip.Prefix, ok bool) {
	var numbers [5]int // the last one is the length of the prefix
	at, begin := 0, 0
	for i := 0; i <= len(line); i++ {
		if i < len(line) && line[i] >= '0' && line[i] <= '9' {
			if numbers[at] = 10*numbers[at] + int(line[i]-'0'); i-begin > 2 {
				return p, false
			}
			continue
		}
		if i == begin || i-begin > 1 && line[begin] == '0' || numbers[at] > 255 {
			return p, false
		}
		switch {
		case i == len(line):
		case at < 3 && line[i] == '.' || at == 3 && line[i] == '/':
			at, begin = at+1, i+1
			continue
		default:
			return p, false
		}
	}
	if at < 3 || numbers[4] > 32 {
		return p, false
	}
	if at == 3 {
		numbers[4] = 32
	}
	a := netip.AddrFrom4([4]byte{byte(numbers[0]), byte(numbers[1]), byte(numbers[2]), byte(numbers[3])})
	return netip.PrefixFrom(a, numbers[4]).Masked(), true
}

// ParseNetwork parses an address or a network. IPv4-mapped IPv6 addresses are IPv4 addresses.
func ParseNetwork(s string) (p netip.Prefix, err error) {
	if !strings.Contains(s, "/") {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			a = a.Unmap()
			return netip.PrefixFrom(a, a.BitLen()), nil
		}
	}
	if p, err = netip.ParsePrefix(s); err != nil {
		return p, fmt.Errorf("%.60q is neither an address nor a network", s)
	}
	if p.Addr().Is4In6() && p.Bits() < 96 {
		return p, fmt.Errorf("the network %.60q is larger than all IPv4-mapped addresses", s)
	}
	return spec.CanonicalPrefix(p), nil
}
