package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// MaxSteps bounds the length of an explanation, and maxList that of the lists in it, so
// that it stays readable.
const (
	MaxSteps = 50
	maxList  = 3
)

// A Step is one route that was checked, and the result.
type Step struct {
	Route   *spec.Route
	Matched bool
	Why     string // one line
}

// An Explanation lists the routes checked, in the file's order, up to the one that matched. If
// none did, the default comes last.
type Explanation struct {
	Steps   []Step
	LeftOut int         // routes that did not match and were left out in the middle
	Route   *spec.Route // nil: refused
	Outcome string      // one line
}

// Explain explains the result of Find. It checks every route in turn, as the documentation
// describes, without the index that makes Find fast.
func (t *Table) Explain(m Meta) Explanation {
	var e Explanation
	m.Client = spec.CanonicalAddr(m.Client)
	for _, r := range t.routes {
		why, ok := t.matches(r, m)
		if len(e.Steps) == MaxSteps {
			e.Steps = slices.Delete(e.Steps, MaxSteps/2, MaxSteps/2+1)
			e.LeftOut++
		}
		e.Steps = append(e.Steps, Step{r, ok, why})
		if ok {
			e.Route, e.Outcome = r, fmt.Sprintf("route %s is the first that matches", r.Name)
			return e
		}
	}
	if e.Route = t.defaultRoute; e.Route != nil {
		e.Outcome = "no route matches; the default route is used"
		e.Steps = append(e.Steps, Step{e.Route, true, "default route: no other route matched"})
		return e
	}
	e.Outcome = "no route matches and the listener has no default: refused"
	return e
}

// matches is the definition of a match: every condition of the route holds.
func (t *Table) matches(r *spec.Route, m Meta) (why string, ok bool) {
	var yes []string
	if len(r.From) > 0 {
		in, ok := t.all.Find(r.From, m.Client)
		switch {
		case !m.Client.IsValid():
			return "the client has no IP address; the route requires " + list(r.From), false
		case !ok:
			return fmt.Sprintf("%v is not in %s", m.Client, list(r.From)), false
		}
		yes = append(yes, fmt.Sprintf("%v is in %s", m.Client, in))
	}
	if len(r.SNI) > 0 {
		i := slices.IndexFunc(r.SNI, func(pattern string) bool { return nameMatches(pattern, m.SNI) })
		switch {
		case m.SNI == "":
			return "the client sent no server name; the route requires " + list(r.SNI), false
		case i < 0:
			return fmt.Sprintf("%q is not %s", m.SNI, list(r.SNI)), false
		}
		yes = append(yes, fmt.Sprintf("%q is %s", m.SNI, r.SNI[i]))
	}
	switch {
	case len(r.ALPN) == 0:
	case t.byAgreement(r) && m.Protocol == "":
		return "the client and the listener agree on no protocol; the route requires " + list(r.ALPN), false
	case t.byAgreement(r) && !slices.Contains(r.ALPN, m.Protocol):
		return fmt.Sprintf("the client and the listener agree on %q; the route requires %s", m.Protocol, list(r.ALPN)), false
	case t.byAgreement(r):
		yes = append(yes, fmt.Sprintf("the client and the listener agree on %q", m.Protocol))
	default:
		i := slices.IndexFunc(m.ALPN, func(proto string) bool { return slices.Contains(r.ALPN, proto) })
		switch {
		case len(m.ALPN) == 0:
			return "the client offered no protocol by ALPN; the route requires " + list(r.ALPN), false
		case i < 0:
			return fmt.Sprintf("the client offers %q; the route requires %s", m.ALPN, list(r.ALPN)), false
		}
		yes = append(yes, fmt.Sprintf("the client offers %q", m.ALPN[i]))
	}
	why, ok = beginsAs(r, m.First, &yes)
	if !ok {
		return why, false
	}
	switch {
	case m.Secured && r.PassTLS:
		return "the route passes TLS through, and the client's TLS is terminated", false
	case !m.Secured || len(r.ClientNames) == 0:
	case m.Names == nil:
		return "the client has no certificate that was verified; the route requires " + list(r.ClientNames), false
	case !m.Names(r.ClientNames):
		return "no name of the client's certificate is " + list(r.ClientNames), false
	default:
		yes = append(yes, "the client's certificate has one of "+list(r.ClientNames))
	}
	if len(yes) == 0 {
		return "the route has no conditions", true
	}
	return strings.Join(yes, ", "), true
}

// beginsAs explains the conditions on first bytes.
func beginsAs(r *spec.Route, seen *firstbytes.Seen, yes *[]string) (why string, ok bool) {
	holds := func(c firstbytes.Conditions) bool { return seen.Holds(&c) == firstbytes.Yes }
	if len(r.Protocols) > 0 {
		name := seen.Protocol()
		switch {
		case name == "":
			return "the client speaks none of the known protocols; the route requires " + list(r.Protocols), false
		case !slices.Contains(r.Protocols, name):
			return "the client speaks " + name + "; the route requires " + list(r.Protocols), false
		}
		*yes = append(*yes, "the client speaks "+name)
	}
	if len(r.Prefixes) > 0 {
		if !holds(firstbytes.Conditions{Prefixes: r.Prefixes}) {
			return fmt.Sprintf("the client does not begin with %s", list(r.PrefixTexts())), false
		}
		*yes = append(*yes, fmt.Sprintf("the client begins with %s", list(r.PrefixTexts())))
	}
	if len(r.Hosts) > 0 {
		host := seen.Host()
		i := slices.IndexFunc(r.Hosts, func(pattern string) bool { return nameMatches(pattern, host) })
		switch {
		case host == "":
			return "the client asks for no host by HTTP; the route requires " + list(r.Hosts), false
		case i < 0:
			return fmt.Sprintf("the host %q is not %s", host, list(r.Hosts)), false
		}
		*yes = append(*yes, fmt.Sprintf("the host %q is %s", host, r.Hosts[i]))
	}
	if r.Silence > 0 {
		if !holds(firstbytes.Conditions{Silence: r.Silence}) {
			return fmt.Sprintf("the client has not been silent for %v", r.Silence), false
		}
		*yes = append(*yes, fmt.Sprintf("the client has sent nothing for %v", r.Silence))
	}
	return "", true
}

// nameMatches reports whether a pattern of a route matches a client's server name or host.
func nameMatches(pattern, name string) bool {
	if base, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(name, "."+base)
	}
	return pattern == name && name != ""
}

func list[T any](all []T) string {
	var b strings.Builder
	for i, v := range all[:min(len(all), maxList)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, v)
	}
	if left := len(all) - maxList; left > 0 {
		fmt.Fprintf(&b, " or %d others", left)
	}
	return b.String()
}
