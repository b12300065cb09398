package haproxy

import (
	"slices"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// The rules of tcp-request, in the order in which HAProxy asks them: by phase, and then by line.
const (
	phaseConnection = iota
	phaseSession
	phaseContent
)

var phaseOf = map[string]int{"connection": phaseConnection, "session": phaseSession, "content": phaseContent}

// order says when a rule is asked.
type order struct{ phase, line int }

func (o order) before(p order) bool {
	return o.phase < p.phase || o.phase == p.phase && o.line < p.line
}

// resolves reads do-resolve of a server name, and set-dst to what it finds: servers at 0.0.0.0 are then the hosts that clients name.
func (h *conversion) resolves(action string, rest []string) bool {
	if len(rest) != 1 {
		return false
	}
	if variable, ok := strings.CutPrefix(action, "do-resolve("); ok && (rest[0] == "req.ssl_sni" || strings.HasPrefix(rest[0], "req.ssl_sni,")) {
		h.resolved, _, _ = strings.Cut(variable, ",")
		return true
	}
	if action == "set-dst" && h.resolved != "" && rest[0] == "var("+h.resolved+")" {
		h.named = true
		return true
	}
	return false
}

// tcpRequest reads the rules that concern layer 4.
func (h *conversion) tcpRequest(x *proxy, l *line) {
	phase := l.next()
	if phase == "inspect-delay" {
		if d, ok := h.time(l, l.next()); ok {
			x.inspect = d
		}
		return
	}
	n, ok := phaseOf[phase]
	if !ok || !l.more() {
		l.rest()
		h.Note(l.Place, "%s: no counterpart", l.text())
		return
	}
	x.rules++
	when := order{n, x.rules}
	action, rest := l.next(), l.rest()
	if action == "expect-proxy" && len(rest) > 0 && rest[0] == "layer4" {
		rest = rest[1:]
	}
	fail := func(why string) {
		h.Note(l.Place, "%s %s left out: %s", phase, action, why)
	}
	if h.resolves(action, rest) {
		return
	}
	if strings.HasPrefix(action, "track-sc") {
		if why := x.track(when, l.Place, action, rest); why != "" {
			fail(why)
		}
		return
	}
	if list, ok := h.counters(x, rest); ok && action == "reject" {
		x.limits = append(x.limits, limitRule{when, l.Place, list})
		return
	}
	conds, negated, why := h.conditions(x, l.Place, rest, nil) // whatever use_backend says: rules of tcp-request come before
	from, simple := onlyAddresses(conds)
	simple = simple && why == ""
	if why == "" && len(conds) == 0 {
		fail("its condition never holds")
		return
	}
	known := why == ""
	if known {
		why = "no counterpart"
	}
	add := func(r convert.AccessRule) {
		if n == phaseConnection {
			x.access = append(x.access, r)
		} else {
			x.later = append(x.later, r)
		}
	}
	switch {
	case action == "accept" && n == phaseContent && len(from) == 0:
		// It ends the waiting for a ClientHello, which needs no rule here; and it exempts
		// clients from rules that follow.
		x.exempt = x.exempt || !simple || len(negated) > 0
		switch {
		case known && len(negated) == 0:
			x.accepted = append(x.accepted, conds...)
		case known:
			why = noNegation
			fallthrough
		default:
			x.skipped = append(x.skipped, skippedRule{l.Place, why})
		}
	case action == "accept" && simple && len(negated) == 0:
		x.exempted = append(x.exempted, when)
		if n == phaseContent {
			x.accepted = append(x.accepted, conds...)
		}
		add(convert.AccessRule{Allow: true, From: from, At: l.Place})
	case action == "reject" && n == phaseContent && x.kind != "backend" && h.gated(x, l, rest, conds, simple && from == nil && len(negated) == 0):
	case action == "reject" && simple && (len(negated) == 0 || from == nil):
		if x.exempt && n == phaseContent {
			h.Note(l.Place, "content reject: clients that an earlier content accept exempts are refused too")
		}
		if len(negated) > 0 {
			x.only = append(x.only, convert.AccessRule{Allow: true, From: negated, At: l.Place})
		} else {
			add(convert.AccessRule{Allow: false, From: from, At: l.Place})
		}
	case action == "expect-proxy" && simple && len(negated) == 0:
		if from == nil {
			from = convert.Everywhere
		}
		x.proxied = append(x.proxied, from...)
	default:
		fail(why)
	}
}

// gated reads a rule of content that refuses everybody but those who send what it asks for, or whom rules before have accepted for what
// they send. refused are its conditions; everybody says that it has none. It reports false if the rule is none of these.
func (h *conversion) gated(x *proxy, l *line, rest []string, refused []convert.Condition, everybody bool) bool {
	if everybody {
		if !slices.ContainsFunc(x.accepted, func(c convert.Condition) bool { return !c.Empty() && !onlyFrom(&c) }) {
			return false
		}
		h.gate(x, nil)
		return true
	}
	if len(refused) == 1 && refused[0].Content && len(refused[0].From) == 0 {
		h.gate(x, []convert.Condition{{Silent: true}})
		return true
	}
	in, ok := required(rest)
	if !ok {
		return false
	}
	conds, negated, why := h.conditions(x, l.Place, in, nil)
	if why != "" || len(negated) > 0 || !slices.ContainsFunc(conds, func(c convert.Condition) bool { return !onlyFrom(&c) }) {
		return false
	}
	h.gate(x, conds)
	return true
}

// onlyAddresses returns the ranges of which one must have the client; nil: it may come from
// anywhere. It reports false if something else is asked, too.
func onlyAddresses(conds []convert.Condition) (from []string, ok bool) {
	ok = true
	for _, c := range conds {
		if c.Ended || c.ByName() || c.ByFirst() || c.Content {
			ok = false
		}
		if c.Empty() {
			return nil, ok
		}
		from = append(from, c.From...)
	}
	return from, ok
}
