package haproxy

import (
	"net/netip"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/convert"
)

// serverAgent is what a server line says of the server's agent.
type serverAgent struct {
	check bool
	port  int
	addr  string // empty: the server's own
	send  string
	inter time.Duration // 0: two seconds
}

// agentOption reads an option of a server's agent, and reports whether it is one.
func (h *conversion) agentOption(a *serverAgent, l *line, word, value string) bool {
	switch word {
	case "agent-check":
		a.check = true
	case "no-agent-check":
		a.check = false
	case "agent-port":
		n, ok := convert.Count(value)
		if !ok || n < 1 || n > 65535 {
			h.Note(l.Place, "agent-port %s: not a port", convert.Quote(value))
			n = 0
		}
		a.port = n
	case "agent-addr":
		a.addr = value
	case "agent-send":
		a.send = value
	case "agent-inter":
		if d, ok := h.time(l, value); ok {
			a.inter = d
		}
	default:
		return false
	}
	return true
}

// groupAgent returns how the agents of a group are asked: as that of the first server that has one, with what is sent to all of them alike.
// It returns nil if there is none, or one that could not be asked.
func (h *conversion) groupAgent(x *proxy, servers []*server) *serverAgent {
	var group *serverAgent
	why := ""
	for _, s := range servers {
		a := &s.agent
		_, err := netip.ParseAddr(a.addr)
		switch {
		case !a.check:
			continue
		case a.port == 0:
			why = "it has no agent-port"
		case len(a.send) > 1024:
			why = "agent-send has more than 1024 bytes"
		case a.addr == "" && s.unix:
			why = "a Unix socket needs agent-addr"
		case a.addr != "" && a.addr != s.address && err != nil:
			why = "agent-addr " + a.addr + " has no counterpart, as it is not an address"
		case a.addr != "" && s.template > 0:
			why = "agent-addr of a server-template has no counterpart"
		case group == nil:
			first := *a
			group = &first
		case a.send != group.send:
			group.send = ""
		}
		if why != "" {
			h.Note(s.Place, "the agents of %s %s are left out: that of %s: %s; penstock weight and penstock drain set weight and state", x.kind, x.name, s.name, why)
			return nil
		}
		if a.inter != group.inter {
			h.Note(s.Place, "server %s: agent-inter is the group's: that of the first server with an agent is taken", s.name)
		}
	}
	if group == nil {
		return nil
	}
	switch {
	case slices.ContainsFunc(servers, func(s *server) bool { return s.agent.check && s.template > 0 && s.agent.send != group.send }):
		why = "members of a server-template have no agent-send of their own"
	case slices.ContainsFunc(servers, func(s *server) bool { return !s.agent.check && s.unix }):
		why = "a group asks the agents of all members, and a Unix socket has none without agent-addr"
	default:
		return group
	}
	h.Note(x.Place, "the agents of %s %s are left out: %s; penstock weight and penstock drain set weight and state", x.kind, x.name, why)
	return nil
}

// agentElsewhere sets the keys of a member whose agent is asked in another way than the group says.
func agentElsewhere(group *serverAgent, s *server, m *convert.Fields) {
	a := &s.agent
	if group == nil || !a.check {
		return
	}
	if a.port != group.port {
		m.Set("agent-port", convert.Number(a.port, 65535))
	}
	if addr, err := netip.ParseAddr(a.addr); err == nil && a.addr != s.address {
		m.Set("agent-address", addr.String())
	}
	if a.send != group.send {
		m.Set("agent-send", octets([]byte(a.send)))
	}
}

// setAgent sets the group's agent.
func setAgent(x *proxy, group *serverAgent, servers []*server, f *convert.Fields) {
	if group == nil {
		return
	}
	every := 2 * time.Second
	if group.inter > 0 {
		every = max(group.inter, 100*time.Millisecond)
	}
	var k convert.Fields
	k.Set("port", convert.Number(group.port, 65535))
	k.Set("every", convert.Duration(every))
	answerTime(x, every, &k)
	if group.send != "" {
		k.Set("send", octets([]byte(group.send)))
	}
	var comments []string
	if slices.ContainsFunc(servers, func(s *server) bool { return !s.agent.check }) {
		comments = []string{"HAProxy asked the agents of some of these servers only; here all members are asked, and one without an agent is as it would be without this key."}
	}
	f.Set("agent", k, comments...)
}
