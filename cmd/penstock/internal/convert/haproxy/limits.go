package haproxy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// Limits of one client: a stick-table counts connections, track-sc0 src says of whom, and a rule
// refuses by the count. That is limits.source of a listener.

// stickTable is what is counted, by which key.
type stickTable struct {
	convert.Place
	addresses bool // it has a type for addresses
	ipv4Only  bool
	stores    map[string]time.Duration // the period of rates
	used      bool
}

// tracked is a rule that makes a stick counter count the connections of the client's address.
type tracked struct {
	order
	convert.Place
	counter string // "0"
	table   string // empty: the proxy's own
	masked  bool   // IPv6 addresses count by their /64
	used    bool
}

// counter is a criterion: a client has more than so many connections, or begins them too often.
type counter struct {
	rate    bool
	of      string // which stick counter, "0"; empty: src_..., which looks the address up
	table   string // empty: that of the stick counter
	allowed int    // it holds for a count above this
}

// limitRule refuses clients for which one of the counters holds.
type limitRule struct {
	order
	convert.Place
	counters []counter
}

var countRE = convert.LazyRE(`^(?:sc([0-9]+)_|(sc)_|(src)_)conn_(cur|rate)(?:\(([^)]*)\))?$`)

// counterOf reads sc0_conn_cur ge 10, src_conn_rate(t) gt 100 and the like.
func counterOf(name, converters, method string, values []string) (*counter, bool) {
	m := countRE().FindStringSubmatch(strings.ToLower(name))
	if m == nil || converters != "" || method != "" && method != "int" {
		return nil, false
	}
	c := counter{of: m[1], rate: m[4] == "rate", table: m[5]}
	if m[2] != "" { // sc_conn_cur(0,t)
		c.of, c.table, _ = strings.Cut(m[5], ",")
	}
	switch {
	case len(values) == 2 && (values[0] == "gt" || values[0] == "ge"):
	case len(values) == 1 && strings.HasSuffix(values[0], ":"): // "10:" means "ge 10"
		values = []string{"ge", strings.TrimSuffix(values[0], ":")}
	default:
		return nil, false
	}
	n, ok := convert.Count(values[1])
	if c.allowed = n; values[0] == "ge" {
		c.allowed--
	}
	return &c, ok && c.allowed >= 0
}

func counterHint(c *counter) string {
	if c.rate {
		return " (limits.source.new-flows bounds the new flows of one client)"
	}
	return " (limits.source.flows bounds the flows of one client)"
}

// counters reads a condition that asks for counts only, of which one must hold.
func (h *conversion) counters(x *proxy, words []string) (list []counter, ok bool) {
	if len(words) < 2 || words[0] != "if" {
		return nil, false
	}
	var named []*acl
	for words = words[1:]; ; words = words[1:] {
		var tests []test
		if words[0] == "{" {
			end := 1
			for end < len(words) && words[end] != "}" {
				end++
			}
			if end < 2 || end == len(words) {
				return nil, false
			}
			tests, words = []test{h.test(x, convert.Place{}, words[1:end])}, words[end+1:]
		} else if a := x.acls[words[0]]; a != nil {
			tests, words = a.tests, words[1:]
			named = append(named, a)
		}
		for _, t := range tests {
			if t.counts == nil {
				return nil, false
			}
			list = append(list, *t.counts)
		}
		switch {
		case len(tests) == 0:
			return nil, false
		case len(words) == 0:
			for _, a := range named {
				a.used = true
			}
			return list, true
		case len(words) == 1 || words[0] != "||" && words[0] != "or" && words[0] != "OR":
			return nil, false
		}
	}
}

// stickTable reads a line stick-table.
func (h *conversion) stickTable(x *proxy, l *line) {
	t := &stickTable{Place: l.Place, stores: map[string]time.Duration{}}
	for l.more() {
		switch word := l.next(); word {
		case "type":
			kind := l.next()
			t.addresses, t.ipv4Only = kind == "ip" || kind == "ipv6", kind == "ip"
		case "store":
			for what := range strings.SplitSeq(l.next(), ",") {
				name, period, _ := strings.Cut(strings.TrimSuffix(what, ")"), "(")
				t.stores[name], _ = convert.TimeOf(period, units, time.Millisecond)
			}
		case "size", "expire", "srvkey":
			l.next() // the table of sources is bounded by itself
		case "nopurge", "recv-only":
		default:
			h.Note(l.Place, "stick-table ... %s: no counterpart", strings.TrimSpace(word+" "+l.next()))
		}
	}
	x.table = t
}

// track reads a rule track-scN, and returns why it has no counterpart.
func (x *proxy) track(when order, at convert.Place, action string, words []string) (why string) {
	t := tracked{order: when, Place: at, counter: strings.TrimPrefix(action, "track-sc")}
	if len(words) > 2 && words[1] == "table" {
		t.table = words[2]
		words = append(words[:1:1], words[3:]...)
	}
	switch {
	case len(words) > 1:
		return "limits.source of a listener has no conditions"
	case len(words) == 1 && words[0] == "src,ipmask(32,64)":
		t.masked = true
	case len(words) != 1 || words[0] != "src":
		return "limits.source of a listener counts by the client's address only"
	}
	x.tracked = append(x.tracked, t)
	return ""
}

// sourceLimits sets limits.source of a listener as the rules say that refuse by counts.
func (h *conversion) sourceLimits(x *proxy, l *convert.Listener) {
	least := map[string]int{}
	for _, r := range x.limits {
		for _, c := range r.counters {
			limit, why := h.sourceLimit(x, r, c)
			if why != "" {
				h.Note(r.Place, "reject left out: %s", why)
				continue
			}
			if strings.HasPrefix(l.URL, "unix") {
				h.Note(r.Place, "clients of the Unix socket of %s have no address: limits by it are left out", l.Name)
				continue
			}
			if old, ok := least[limit.key]; ok && old <= limit.most {
				continue
			}
			least[limit.key] = limit.most
			l.Fields.Sub("limits", "source", limit.set(l))
			h.comment(l, "limits", limit.comments(l))
		}
	}
}

// A sourceLimit is a limit of one client.
type sourceLimit struct {
	key            string // flows or new-flows
	most           int
	period         time.Duration
	masked, v4Only bool
}

// sourceLimit returns the limit that a counter means, or why there is none.
func (h *conversion) sourceLimit(x *proxy, r limitRule, c counter) (l sourceLimit, why string) {
	var by *tracked
	for i := range x.tracked {
		if t := &x.tracked[i]; (c.of == "" && t.table == c.table || c.of == t.counter && (c.table == "" || c.table == t.table)) && (by == nil || t.before(by.order)) {
			by = t
		}
	}
	if by == nil {
		return l, "nothing here tracks the client's address for it"
	}
	table := x.table
	if by.table != "" && by.table != x.name {
		other := h.tables[by.table]
		if other == nil {
			return l, "there is no stick-table " + convert.Quote(by.table)
		}
		table = other
	}
	name := map[bool]string{false: "conn_cur", true: "conn_rate"}[c.rate]
	period, stored := time.Duration(0), false
	if table != nil {
		period, stored = table.stores[name]
	}
	switch {
	case table == nil || !stored || c.rate && period <= 0:
		return l, "the stick-table does not store " + name
	case !table.addresses:
		return l, "the stick-table is not one of addresses"
	}
	for _, e := range x.exempted {
		if e.phase == r.phase && e.before(r.order) {
			return l, "an earlier accept exempts clients, and limits.source has no exceptions"
		}
	}
	most := c.allowed
	if !by.before(r.order) {
		most++ // the connection that is asked about does not count yet
	}
	if most == 0 {
		return l, "it refuses everybody"
	}
	by.used, table.used = true, true
	return sourceLimit{map[bool]string{false: "flows", true: "new-flows"}[c.rate], most, period, by.masked, table.ipv4Only}, ""
}

// set returns the value of limits.source with the limit.
func (s sourceLimit) set(l *convert.Listener) convert.Fields {
	limits, _ := l.Fields.Get("limits").(convert.Fields)
	source, _ := limits.Get("source").(convert.Fields)
	source = append(convert.Fields(nil), source...)
	if s.key == "flows" {
		source.Set("flows", convert.Number(s.most, convert.Many))
		return source
	}
	source.Set("new-flows", rateOf(s.most, s.period))
	source.Set("burst", convert.Number(s.most, convert.Many))
	return source
}

// comments say what differs.
func (s sourceLimit) comments(l *convert.Listener) (list []string) {
	switch {
	case s.v4Only:
		list = append(list, "source: of one IPv4 address or one IPv6 /64, at this listener alone. HAProxy's table has type ip: it did not limit IPv6.")
	case s.masked:
		list = append(list, "source: of one IPv4 address or one IPv6 /64, at this listener alone.")
	default:
		list = append(list, "source: of one IPv4 address or one IPv6 /64, at this listener alone. HAProxy counted each IPv6 address by itself.")
	}
	if s.key == "new-flows" {
		list = append(list, fmt.Sprintf("conn_rate(%s): a client may begin %d flows at once, and as many again within %s. HAProxy counted refused connections, too.", convert.Duration(s.period), s.most, convert.Duration(s.period)))
	}
	return list
}

// rateOf writes n in a period as a rate, exactly if that is a whole number per second, minute or
// hour.
func rateOf(n int, period time.Duration) convert.Raw {
	for _, unit := range []struct {
		name string
		time.Duration
	}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}} {
		if total := float64(n) * float64(unit.Duration) / float64(period); total == float64(int64(total)) && total <= 1e9 {
			return convert.Raw(strconv.FormatInt(int64(total), 10) + "/" + unit.name)
		}
	}
	return convert.Raw(strconv.FormatFloat(max(float64(n)*float64(time.Hour)/float64(period), 0.001), 'f', 3, 64) + "/h")
}
