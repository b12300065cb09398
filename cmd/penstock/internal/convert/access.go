package convert

import (
	"slices"
	"strings"
)

// An AccessRule admits or refuses clients of some addresses; the first rule that
// matches decides.
type AccessRule struct {
	Allow bool
	From  []string // nil: everybody
	At    Place
}

// access turns rules into the lists allow and deny of a listener, where deny
// counts more. It returns a rule that the lists cannot express, if there is one.
func access(rules []AccessRule) (allow, deny []string, bad *AccessRule) {
	closed := false
	for i, r := range rules {
		if closed {
			break // no client gets here
		}
		switch {
		case r.From == nil && r.Allow:
			return nil, deny, nil // everybody else
		case r.From == nil:
			closed = true
		case r.Allow:
			// A refused range inside an admitted one came first and still counts; an
			// admitted one inside a refused one has been refused.
			allow = append(allow, r.From...)
		default:
			for _, s := range r.From {
				if slices.ContainsFunc(allow, func(t string) bool { return t != s && (isList(s) || isList(t)) }) {
					return nil, nil, &rules[i] // a part may have been admitted
				}
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

// SetAccess sets allow and deny of a listener by rules. It reports false if the listener cannot be
// had.
func (p *Plan) SetAccess(l *Listener, rules []AccessRule) bool {
	if strings.HasPrefix(l.URL, "unix") {
		return p.unixAccess(l, rules)
	}
	allow, deny, bad := access(rules)
	switch {
	case bad != nil && bad.From == nil:
		p.refusesAll(l, bad)
		return false
	case bad != nil:
		p.Note(bad.At, "the order of these rules has no counterpart: allow and deny of a listener are two lists, and deny counts more; the listener %s is left out", l.Name)
		return false
	}
	for i, r := range rules {
		l.ordered = l.ordered || !r.Allow && r.From != nil && slices.ContainsFunc(rules[:i], func(r AccessRule) bool { return r.Allow && r.From != nil })
	}
	if len(allow) > 0 {
		l.Fields.Set("allow", allow)
	}
	if len(deny) > 0 {
		l.Fields.Set("deny", deny)
	}
	return true
}

// unixAccess reports whether a Unix socket admits its clients. They have no address, so no rule
// with a range matches any of them, and one that matches everybody decides for all.
func (p *Plan) unixAccess(l *Listener, rules []AccessRule) bool {
	for i, r := range rules {
		switch {
		case r.From != nil:
			p.Note(r.At, "clients of the Unix socket of %s have no address: allow and deny with addresses are left out", l.Name)
		case r.Allow:
			return true
		default:
			p.refusesAll(l, &rules[i])
			return false
		}
	}
	return true
}

func (p *Plan) refusesAll(l *Listener, r *AccessRule) {
	p.Note(r.At, "the listener %s refuses everybody, and is left out", l.Name)
}
