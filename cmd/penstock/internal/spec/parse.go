package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// What may be written, for the ends of messages.
const (
	allowedListener = "tcp://HOST:PORT, udp://HOST:PORT, unix:///PATH, unix:@NAME, unixgram:///PATH, unixgram:@NAME"
	allowedUpstream = allowedListener + ", echo:, discard:"
)

// Error says what is wrong with an endpoint, and what is allowed. Its text is
// one line, whatever was parsed.
type Error struct {
	Text    string // what was parsed
	Problem string
	Allowed string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%q: %s; allowed: %s", e.Text, e.Problem, e.Allowed)
}

// ParseListener parses where to listen. The error is an [*Error].
func ParseListener(s string) (Endpoint, error) {
	e, problem := parse(s)
	if problem == "" {
		if e.Kind.BuiltIn() {
			problem = "only an upstream can be built in"
		}
	}
	if problem != "" {
		return Endpoint{}, &Error{s, problem, allowedListener}
	}
	return e, nil
}

// ParseUpstream parses where to connect. The error is an [*Error].
func ParseUpstream(s string) (Endpoint, error) {
	e, problem := parse(s)
	if problem == "" && (e.Kind == TCP || e.Kind == UDP) {
		switch {
		case e.Host == "":
			problem = "an upstream needs a host"
		case e.Port == 0:
			problem = "an upstream needs a port from 1 to 65535"
		}
	}
	if problem != "" {
		return Endpoint{}, &Error{s, problem, allowedUpstream}
	}
	return e, nil
}

// parse reads any endpoint. problem is a phrase that says what is wrong, or empty.
func parse(s string) (e Endpoint, problem string) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || strings.ContainsAny(scheme, "./[]@") {
		return e, "no scheme"
	}
	if scheme == "" {
		return e, "no scheme"
	}
	if e.Kind.UnmarshalText([]byte(scheme)) != nil {
		if _, err := strconv.ParseUint(rest, 10, 16); err == nil {
			return e, "no scheme" // NAME:PORT
		}
		return e, fmt.Sprintf("unknown scheme %q", scheme)
	}
	switch {
	case e.Kind == TCP || e.Kind == UDP:
		rest, ok := strings.CutPrefix(rest, "//")
		if !ok {
			return e, scheme + ": is followed by //HOST:PORT"
		}
		problem = e.parseHostPort(rest)
	case e.Kind.BuiltIn():
		if rest != "" {
			problem = scheme + ": is followed by nothing"
		}
	default:
		e.Path, problem = parsePath(scheme, rest)
	}
	return e, problem
}

func (e *Endpoint) parseHostPort(s string) (problem string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return "no port"
	}
	if problem = e.parsePorts(s[i+1:]); problem != "" {
		return problem
	}
	host := s[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if ip, err := netip.ParseAddr(inner); !ok || err != nil || !ip.Is6() {
			return fmt.Sprintf("%s is not an IPv6 address in brackets", strconv.Quote(host))
		}
		host = inner
	} else if strings.ContainsRune(host, ':') {
		return "an IPv6 address must be in brackets"
	} else if !validHost(host) {
		return fmt.Sprintf("host %q is neither a name nor an address", host)
	}
	e.Host = host
	return ""
}

// parsePorts parses a port, or a range such as 30000-30999.
func (e *Endpoint) parsePorts(s string) (problem string) {
	first, last, isRange := strings.Cut(s, "-")
	n, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return fmt.Sprintf("port %q is not a number from 0 to 65535", first)
	}
	e.Port = uint16(n)
	if !isRange {
		return ""
	}
	m, err := strconv.ParseUint(last, 10, 16)
	switch {
	case err != nil:
		return fmt.Sprintf("port %q is not a number from 0 to 65535", last)
	case n == 0 || m <= n:
		return fmt.Sprintf("%q is not a range of ports such as 30000-30999", s)
	}
	e.LastPort = uint16(m)
	if e.Ports() > MaxPorts {
		return fmt.Sprintf("the range has %d ports, more than %d", e.Ports(), MaxPorts)
	}
	return ""
}

// validHost accepts what a resolver may be asked (RFC 1123, and the underscore
// that some names have), and addresses; empty is all addresses.
func validHost(host string) bool {
	if len(host) > 253 || strings.HasPrefix(host, "-") {
		return false
	}
	for _, c := range []byte(host) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	// Four numbers that are not an address are not a name either.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last != "" && '0' <= last[0] && last[0] <= '9' && strings.Trim(last, "0123456789") == "" {
		_, err := netip.ParseAddr(host)
		return err == nil
	}
	return host == "" || last != "" || len(host) > 1
}

// maxPath is the length of sun_path without its final or leading zero byte (unix(7)).
const maxPath = 107

func parsePath(scheme, rest string) (path, problem string) {
	switch {
	case strings.HasPrefix(rest, "@"):
		path = rest
		if path == "@" {
			return "", "the abstract name is empty"
		}
	case strings.HasPrefix(rest, "///"):
		path = rest[2:]
		if strings.HasSuffix(path, "/") {
			return "", "the path is a folder"
		}
	case strings.HasPrefix(rest, "//"):
		return "", "a path is absolute and so begins with the third slash"
	default:
		return "", scheme + ": is followed by ///PATH or @NAME"
	}
	if strings.ContainsRune(path, 0) {
		return "", "there is a zero byte in the path"
	}
	if len(strings.TrimPrefix(path, "@")) > maxPath {
		return "", fmt.Sprintf("the path is longer than %d bytes", maxPath)
	}
	return path, ""
}
