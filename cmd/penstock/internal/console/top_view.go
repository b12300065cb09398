package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// The colors are those of the terminal, so they fit its background. They repeat what the
// text says, so that nothing is missing without them.
var (
	plain    = lipgloss.NewStyle()
	strong   = plain.Bold(true)
	faint    = plain.Faint(true)
	chosen   = plain.Reverse(true)
	good     = plain.Foreground(lipgloss.Green)
	warn     = plain.Foreground(lipgloss.Yellow)
	bad      = plain.Foreground(lipgloss.Red).Bold(true)
	upward   = plain.Foreground(lipgloss.Cyan)
	downward = plain.Foreground(lipgloss.Magenta)
)

// piece is text in one style. Each rune is one cell wide.
type piece struct {
	text  string
	style lipgloss.Style
}

// line is a line of the screen.
type line []piece

func text(s string) line                      { return line{{s, plain}} }
func styled(s string, st lipgloss.Style) line { return line{{s, st}} }

// render returns the line, cut at width.
func (l line) render(width int) string {
	var b strings.Builder
	for _, p := range l {
		r := []rune(p.text)
		r = r[:min(len(r), max(0, width))]
		width -= len(r)
		if len(r) > 0 {
			b.WriteString(p.style.Render(string(r)))
		}
	}
	return b.String()
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "penstock top"
	return v
}

// screen returns the lines of the screen, none longer than the terminal is wide.
func (m *model) screen() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	m.hidden = nil
	lines := []line{m.title(), m.tabs()}
	room := max(0, m.height-3)
	body := m.body(room)
	if len(m.hidden) > 0 && room > 2 {
		body = m.body(room - 1)
		body = body[:min(len(body), room-1)]
		for len(body) < room-1 {
			body = append(body, nil)
		}
		body = append(body, styled("hidden: "+strings.Join(m.hidden, ", "), faint))
	}
	body = body[:min(len(body), room)]
	lines = append(lines, body...)
	for len(lines) < m.height-1 {
		lines = append(lines, nil)
	}
	lines = append(lines[:min(len(lines), m.height-1)], m.foot())
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.render(m.width)
	}
	return out
}

func (m *model) title() line {
	s := &m.status
	state, style := printable(s.State), good
	switch {
	case m.disconnected != "":
		state, style = "not responding", bad
	case !m.haveStatus:
		state, style = "connecting", faint
	case s.State != api.StateReady:
		style = warn
	}
	l := line{{"penstock " + printable(s.Version), strong}, {" ", plain}, {state, style}}
	if m.haveStatus {
		l = append(l, piece{fmt.Sprintf("  up %s  pid %d  %s", age(s.Uptime), s.PID, clock(s.Time)), plain})
	}
	if m.paused {
		l = append(l, piece{"  PAUSED", warn.Bold(true)})
	}
	return append(l, piece{"  " + printable(m.flags.Admin), faint})
}

// allTabs is the width from which on every pane has its name in the list.
const allTabs = 56

func (m *model) tabs() line {
	var l line
	for i, name := range paneNames {
		style := faint
		if i == m.pane {
			style = chosen
		}
		if text := fmt.Sprintf(" %d %s ", i+1, name); i == m.pane || m.width >= allTabs {
			l = append(l, piece{text, style})
		} else {
			l = append(l, piece{fmt.Sprintf(" %d ", i+1), style})
		}
	}
	if f := filterLine(&m.filter); f != "" {
		l = append(l, piece{"  " + printable(f), warn})
	}
	return l
}

// lines returns the lines of a table, and notes the columns that do not fit.
func (m *model) lines(t *table) []string {
	for _, head := range t.hidden(m.width) {
		if !slices.Contains(m.hidden, head) {
			m.hidden = append(m.hidden, head)
		}
	}
	return t.lines(m.width)
}

// foot returns the last line: a prompt, an error, or the keys.
func (m *model) foot() line {
	switch {
	case m.prompt != nothing && m.notice != "":
		return line{{m.question(), strong}, {"  " + printable(m.notice), bad}}
	case m.prompt != nothing:
		return line{{m.question(), strong}, {" ", chosen}}
	case m.disconnected != "":
		return styled("reconnecting: "+m.disconnected, bad)
	case m.notice != "" && m.noticeIsError:
		return styled(printable(m.notice), bad)
	case m.notice != "":
		return styled(printable(m.notice), good)
	case m.detail != nil:
		return styled("esc back  K end flow  j/k scroll  q quit", faint)
	}
	keys := "? help  tab pane  / filter  s sort  enter details  K end flow  p pause  q quit"
	if m.pane == memberPane {
		keys = "? help  enter flows  d drain  D disable  e enable  r restore  w weight  q quit"
	}
	if m.width < allTabs {
		keys = "? help  tab pane  enter open  q quit"
	}
	return styled(keys, faint)
}

func (m *model) body(room int) []line {
	switch {
	case m.help:
		return helpLines()
	case !m.haveStatus:
		return []line{text("waiting for the daemon ...")}
	case m.detail != nil:
		lines := m.detailLines()
		lines = lines[min(m.scroll, max(0, len(lines)-room)):]
		var body []line
		for _, l := range lines {
			body = append(body, text(l))
		}
		return body
	}
	switch m.pane {
	case flowPane:
		return m.list(room, flowTable(m.flows.Flows, m.sort == "rate"), fmt.Sprintf("%s of %s flows by %s", count(m.flows.Matched), count(m.flows.Total), m.sort), flowStyle)
	case memberPane:
		return m.list(room, m.memberTable(), "no members", memberStyle)
	case listenerPane:
		return m.listeners(room)
	case eventPane:
		return m.list(room, eventTable(m.events), "no events yet", eventStyle)
	}
	return m.overview(room)
}

// listeners returns the listeners, and below them as much as fits of the parts of routes, and of the data paths.
func (m *model) listeners(room int) []line {
	var sections []section
	var where []string
	below := 0
	add := func(t *table, command string) {
		if len(t.rows) > 0 {
			sections, where = append(sections, section{rows: m.lines(t)}), append(where, command)
			below += 2 + len(t.rows)
		}
	}
	add(splitTable(m.splits), "penstock split")
	add(pathTable(m.status.Paths), "penstock status")
	below = min(below, room/2)
	body := m.list(room-below, listenerTable(&m.status.Sample, &m.rates), "no listeners", nil)
	for i, n := range shareRows(sections, below-len(sections)) {
		if n > 0 {
			body = append(append(body, nil), sections[i].first(n, where[i])...)
		}
	}
	return body
}

func helpLines() []line {
	var lines []line
	for _, k := range keyHelp {
		lines = append(lines, line{{fmt.Sprintf("%-21s", k[0]), strong}, {k[1], plain}})
	}
	return append(lines, nil,
		line{{"up", upward}, {" is from clients to upstreams, ", plain}, {"down", downward}, {" is the other direction.", plain}},
		text("Press any key to close."))
}

func (m *model) detailLines() []string {
	var b strings.Builder
	printFlow(&b, m.detail, m.width)
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// list returns the part of a table around the selected row. The text sum is the last line
// of a list of flows, and the only line of an empty table.
func (m *model) list(room int, t *table, sum string, style func(string) lipgloss.Style) []line {
	if len(t.rows) == 0 {
		return []line{styled(sum, faint)}
	}
	rows := m.lines(t)
	shown := max(1, room-1)
	if m.pane == flowPane && room > 3 {
		shown--
	}
	at := min(m.cursor[m.pane], len(t.rows)-1)
	first := max(0, min(at-shown/2, len(t.rows)-shown))
	body := []line{styled(rows[0], strong)}
	for i := first; i < min(first+shown, len(t.rows)); i++ {
		row := rows[1+i]
		st := plain
		if style != nil {
			st = style(row)
		}
		if i == at {
			row, st = fmt.Sprintf("%-*s", m.width, row), chosen
		}
		body = append(body, styled(row, st))
	}
	if m.pane == flowPane && room > 3 {
		body = append(body, styled(sum, faint))
	}
	return body
}

// tableLines returns the lines of a table, including the head.
func tableLines(rows []string, style func(string) lipgloss.Style) []line {
	var lines []line
	for i, row := range rows {
		switch {
		case i == 0:
			lines = append(lines, styled(row, strong))
		case style != nil:
			lines = append(lines, styled(row, style(row)))
		default:
			lines = append(lines, text(row))
		}
	}
	return lines
}

func flowStyle(row string) lipgloss.Style {
	for _, state := range api.FlowStates {
		if state != "relaying" && strings.Contains(row, "  "+state) {
			return warn
		}
	}
	return plain
}

func memberStyle(row string) lipgloss.Style {
	has := func(word string) bool { return strings.Contains(row, "  "+word+"  ") }
	switch {
	case has("down"), has("ejected"):
		return bad
	case has("drained"), has("disabled"), has("checking"), has("slow-start"):
		return warn
	}
	return plain
}

func eventStyle(row string) lipgloss.Style {
	switch {
	case strings.Contains(row, "  error  "):
		return bad
	case strings.Contains(row, "  warn "):
		return warn
	}
	return plain
}

// groupMember is a member with the name of its group.
type groupMember struct {
	*api.Member
	group string
}

func (m groupMember) key() memberKey { return memberKey{m.group, m.Name, m.Address} }

// members returns the members of all groups.
func (m *model) members() []groupMember {
	var list []groupMember
	for i := range m.groups {
		for j := range m.groups[i].Members {
			list = append(list, groupMember{&m.groups[i].Members[j], m.groups[i].Name})
		}
	}
	return list
}

func (m *model) memberTable() *table {
	t := newTable("~GROUP", "~MEMBER", "STATE", ">FLOWS", "?>UP", "?>DOWN", "?>CONNECT", "?>FIRST BYTE", "?>FAILURES", "?>FOR", "~WHY")
	now := m.status.Time
	if now.IsZero() {
		now = time.Now()
	}
	for _, at := range m.members() {
		t.add(at.group, memberName(at.Member), at.State, count(at.Flows), volume(float64(at.BytesUp)), volume(float64(at.BytesDown)),
			span(at.ConnectSeconds/float64(max(1, at.Connects))), m.recentAnswers(at).mean(), count(at.Failures), since(at.Member, now), dash(why(at.Member, now)))
	}
	return t
}
