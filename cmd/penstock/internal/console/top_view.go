package console

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// The colors are those of the terminal, whatever its background; each says what
// the text says too, so that nothing is lost without them.
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

// piece is text in one style. Each of its runes is one cell wide.
type piece struct {
	text  string
	style lipgloss.Style
}

// line is a line of the screen.
type line []piece

func text(s string) line                      { return line{{s, plain}} }
func styled(s string, st lipgloss.Style) line { return line{{s, st}} }

// render cuts a line at width.
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

// View is part of tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.screen(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "penstock top"
	return v
}

// screen is as many lines as the terminal has, none longer than it is wide.
func (m *model) screen() []string {
	if m.width <= 0 || m.height <= 0 {
		return nil
	}
	lines := []line{m.title(), m.tabs()}
	room := max(0, m.height-3)
	body := m.body(room)
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
	state, style := clean(s.State), good
	switch {
	case m.lost != "":
		state, style = "gone", bad
	case !m.known:
		state, style = "asking", faint
	case s.State != api.StateReady:
		style = warn
	}
	l := line{{"penstock " + clean(s.Version), strong}, {" ", plain}, {state, style}}
	if m.known {
		l = append(l, piece{fmt.Sprintf("  up %s  pid %d  %s", age(s.Uptime), s.PID, clock(s.Time)), plain})
	}
	if m.paused {
		l = append(l, piece{"  PAUSED", warn.Bold(true)})
	}
	return append(l, piece{"  " + clean(m.ask.Admin), faint})
}

func (m *model) tabs() line {
	var l line
	for i, name := range paneNames {
		style := faint
		if i == m.pane {
			style = chosen
		}
		l = append(l, piece{fmt.Sprintf(" %d %s ", i+1, name), style})
	}
	if f := filterLine(&m.filter); f != "" {
		l = append(l, piece{"  " + clean(f), warn})
	}
	return l
}

// foot is the last line: what is asked, what is wrong, or which keys there are.
func (m *model) foot() line {
	switch {
	case m.prompt != nothing && m.notice != "":
		return line{{m.question(), strong}, {"  " + clean(m.notice), bad}}
	case m.prompt != nothing:
		return line{{m.question(), strong}, {" ", chosen}}
	case m.lost != "":
		return styled("trying again: "+m.lost, bad)
	case m.notice != "" && m.trouble:
		return styled(clean(m.notice), bad)
	case m.notice != "":
		return styled(clean(m.notice), good)
	case m.detail != nil:
		return styled("esc back  K end the flow  j/k scroll  q quit", faint)
	}
	return styled("? help  tab pane  / filter  s sort  enter detail  K end flow  p pause  q quit", faint)
}

func (m *model) body(room int) []line {
	switch {
	case m.help:
		return helpLines()
	case !m.known:
		return []line{text("asking the daemon ...")}
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
		return m.list(room, m.memberTable(), "no group", memberStyle)
	case listenerPane:
		table := listenerTable(&m.status.Sample, &m.rates)
		paths := pathTable(m.status.Paths).lines(m.width)
		below := min(len(paths)+1, room/2)
		body := m.list(room-below, table, "no listener", nil)
		if below > 1 {
			body = append(body, nil)
			body = append(body, tableLines(paths[:below-1], nil)...)
		}
		return body
	case eventPane:
		return m.list(room, eventTable(m.events), "no event yet", eventStyle)
	}
	return m.overview(room)
}

func helpLines() []line {
	var lines []line
	for _, k := range keyHelp {
		lines = append(lines, line{{fmt.Sprintf("%-21s", k[0]), strong}, {k[1], plain}})
	}
	return append(lines, nil,
		line{{"up", upward}, {" is from clients to upstreams, ", plain}, {"down", downward}, {" is the way back.", plain}},
		text("Any key closes this."))
}

func (m *model) detailLines() []string {
	var b strings.Builder
	printFlow(&b, m.detail, m.width)
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

// list is a table of which one row is under the cursor, and is shown. What there
// is of it stands at the end, or instead of nothing.
func (m *model) list(room int, t *table, sum string, style func(string) lipgloss.Style) []line {
	if len(t.rows) == 0 {
		return []line{styled(sum, faint)}
	}
	rows := t.lines(m.width)
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

// tableLines are lines of a table, the head among them.
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

// groupMember is a member and its group's name.
type groupMember struct {
	*api.Member
	group string
}

// members are those of all groups.
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
	t := newTable("~GROUP", "~MEMBER", "STATE", ">FLOWS", "?>UP", "?>DOWN", "?>CONNECT", "?>FAILURES", "?>FOR", "~WHY")
	now := m.status.Time
	if now.IsZero() {
		now = time.Now()
	}
	for _, at := range m.members() {
		t.add(at.group, memberName(at.Member), at.State, count(at.Flows), volume(float64(at.BytesUp)), volume(float64(at.BytesDown)),
			span(at.ConnectSeconds/float64(max(1, at.Connects))), count(at.Failures), since(at.Member, now), dash(why(at.Member, now)))
	}
	return t
}
