package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Error is one error of a configuration. Its text is one line.
type Error struct {
	File         string
	order        int    // of the file among those of the configuration
	Line, Column int    // from 1; in characters
	Path         string // such as listeners.web.routes[0].sni[1]; empty for the whole file
	Problem      string
	Near         string // a suggestion; empty if there is none
	Allowed      string
}

func (e Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: ", e.File, e.Line, e.Column)
	b.WriteString(e.Message())
	if e.Allowed != "" {
		b.WriteString("; allowed: " + e.Allowed)
	}
	return b.String()
}

// Message returns the key and the problem, without the position and what is allowed.
func (e Error) Message() string {
	if e.Path == "" {
		return e.problemText()
	}
	return e.Path + ": " + e.problemText()
}

func (e Error) problemText() string {
	if e.Near == "" {
		return e.Problem
	}
	return fmt.Sprintf("%s (did you mean %s?)", e.Problem, plain(e.Near))
}

// Errors are all errors of a configuration, in the file's order. The text has one line for each.
type Errors []Error

func (e Errors) Error() string { return lines(e) }

// Warnings report what is allowed but probably not intended, in the file's order. They are not
// errors.
type Warnings []Error

func (w Warnings) String() string { return lines(w) }

// Messages returns errors and warnings in the file's order, one line for each. Warnings are
// marked as such.
func Messages(errs Errors, warnings Warnings) string {
	all := slices.Clone([]Error(errs))
	for _, w := range warnings {
		w.Problem = "warning: " + w.Problem
		all = append(all, w)
	}
	inOrder(all)
	return lines(all)
}

func lines(list []Error) string {
	text := make([]string, len(list))
	for i, e := range list {
		text[i] = e.Error()
	}
	return strings.Join(text, "\n")
}

func inOrder(list []Error) {
	slices.SortStableFunc(list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// quote quotes a text of the file for a message: in one line, shortened if it is long.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "..."
	}
	return strconv.Quote(s)
}

// plain returns s if it is readable as it is, and otherwise s in quotes.
func plain(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == unicode.ReplacementChar }
	if s == "" || len(s) > 60 || strings.ContainsFunc(s, odd) {
		return quote(s)
	}
	return s
}

// suggest returns the candidate that word was probably meant to be, or "". At most a third of
// the letters may be wrong, missing, added or exchanged with a neighbour.
func suggest(word string, candidates []string) string {
	for ours := range strings.SplitSeq(otherProducts[strings.ToLower(strings.ReplaceAll(word, "_", "-"))], "|") {
		first, _, _ := strings.Cut(ours, ":")
		if ours != "" && slices.Contains(candidates, first) {
			return ours
		}
	}
	best, least := "", max(1, min(len(word)/3, 3))+1
	for _, c := range candidates {
		if len(c)-len(word) >= least || len(word)-len(c) >= least || len(c) > 64 || len(word) > 64 {
			continue
		}
		if n := distance(strings.ToLower(word), strings.ToLower(c)); n < least {
			best, least = c, n
		}
	}
	return best
}

// Counterpart returns the key or word here that a name of another product stands for; "": it is none
// that is known.
func Counterpart(name string) string {
	ours := otherProducts[strings.ToLower(strings.ReplaceAll(name, "_", "-"))]
	if i := strings.IndexAny(ours, ":|"); i >= 0 {
		ours = ours[:i]
	}
	return ours
}

// otherProducts maps names of HAProxy, nginx and Envoy, with hyphens for underscores, to the key
// or word here, and to what belongs under the key. Some have another one elsewhere, behind a |.
var otherProducts = map[string]string{
	"acl": "allow", "backend": "groups", "backends": "groups", "cluster": "groups", "clusters": "groups", "upstream": "groups", "upstreams": "groups",
	"frontend": "listeners", "frontends": "listeners", "stream": "listeners", "server": "members", "servers": "members", "endpoints": "members",
	"lb-endpoints": "members", "targets": "members", "bind": "listen", "address": "listen|to", "addr": "listen|to", "url": "to|listen", "port": "listen",
	"default-backend": "to", "use-backend": "to", "proxy-pass": "to", "server-name": "sni", "server-names": "sni",
	"maxconn": "limits: {flows: N}", "max-conns": "max-flows", "max-connections": "max-flows", "maxqueue": "queue: {size: N}",
	"health-check": "check", "health-checks": "check", "healthcheck": "check", "max-fails": "eject: {failures: N}", "outlier-detection": "eject",
	"timeout": "timeouts", "lb-policy": "balance", "lb-algorithm": "balance", "algorithm": "balance", "slowstart": "slow-start", "resolver": "discover", "resolvers": "discover",
	"send-proxy": "proxy-protocol: v1", "send-proxy-v2": "proxy-protocol: v2", "accept-proxy": "proxy-protocol: {from: PREFIX}",
	"leastconn": "least-connections", "least-conn": "least-connections", "least-request": "p2c", "roundrobin": "round-robin", "rr": "round-robin",
	"ip-hash": "maglev", "source": "maglev", "hash": "maglev", "ring-hash": "maglev", "two": "p2c",
	"interval": "every", "inter": "every", "fail-timeout": "eject: {for: TIME}", "hostname": "sni|dns", "host": "sni|dns",
	"cert": "certificates|certificate", "crt": "certificates|certificate", "cert-file": "certificates|certificate", "ssl-certificate": "certificates|certificate", "certificate": "certificates", "key-file": "key", "ssl-certificate-key": "key",
	"ca-file": "ca", "ca-cert": "ca", "cacert": "ca", "ssl": "tls", "warning": "warn", "err": "error", "crit": "error", "notice": "info", "trace": "debug",
	"global": "engine", "nbthread": "loops", "threads": "loops", "worker-processes": "loops", "stats": "admin", "down": "drained",
}

// distance returns the number of changes, insertions, deletions and exchanges of neighbours that
// turn a into b, where no letter is touched twice (the optimal string alignment distance).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
