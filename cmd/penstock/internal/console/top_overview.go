package console

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
)

// section is a table of the overview, which may be shortened.
type section struct {
	rows  []string
	style func(string) lipgloss.Style
	pane  int // the pane that shows all rows; overview if there is none
}

// overview returns the overview in room lines: graphs, loops, and as many rows of each
// table as fit.
func (m *model) overview(room int) []line {
	body := append(m.graphs(), m.resources()...)
	body = append(body, m.loops()...)
	if l := keeperLine(m.status.Keeper); l != nil {
		body = append(body, l)
	}
	if l := overloadLine(&m.status.Overload); l != nil {
		body = append(body, l)
	}
	var sections []section
	for _, s := range []struct {
		*table
		style func(string) lipgloss.Style
		pane  int
	}{
		{listenerTable(&m.status.Sample, &m.rates), nil, listenerPane},
		{groupTable(&m.status.Sample, &m.rates), nil, memberPane},
		{splitTable(m.splits), nil, listenerPane},
		{flowTable(m.flows.Flows, m.sort == "rate"), flowStyle, flowPane},
		{pathTable(m.status.Paths), nil, listenerPane},
		{eventTable(m.events), eventStyle, eventPane},
	} {
		if len(s.rows) > 0 {
			sections = append(sections, section{m.lines(s.table), s.style, s.pane})
		}
	}
	share := shareRows(sections, room-len(body))
	used := len(body)
	for _, n := range share {
		used += n
	}
	spaced := used+len(sections) <= room
	for i, s := range sections {
		if spaced {
			body = append(body, nil)
		}
		if share[i] == 0 {
			continue
		}
		body = append(body, s.first(share[i], fmt.Sprintf("key %d", s.pane+1))...)
	}
	return body
}

// first returns n lines of a section, which say where the others are.
func (s *section) first(n int, where string) []line {
	lines := tableLines(s.rows[:n], s.style)
	if left := len(s.rows) - n; left > 0 {
		lines[0] = append(lines[0], piece{fmt.Sprintf("  +%s more: %s", count(int64(left)), where), faint})
	}
	return lines
}

// shareRows returns the number of lines of each section: the head and one row as long as
// there is room, and then one more row for each in turn.
func shareRows(sections []section, room int) []int {
	share := make([]int, len(sections))
	for i, s := range sections {
		if n := min(2, len(s.rows)); n <= room {
			share[i] = n
			room -= n
		}
	}
	for given := true; given && room > 0; {
		given = false
		for i, s := range sections {
			if share[i] > 0 && share[i] < len(s.rows) && room > 0 {
				share[i]++
				room--
				given = true
			}
		}
	}
	return share
}

// graphs returns sparklines of the most important numbers.
func (m *model) graphs() []line {
	n, r := &m.status.Totals, &m.rates.Totals
	var lines []line
	for _, c := range []struct {
		name, value string
		h           history
		style       lipgloss.Style
	}{
		{"up", rate(r.Up), m.up, upward},
		{"down", rate(r.Down), m.down, downward},
		{"flows", count(n.Flows), m.open, plain},
		{"new/s", perSecond(r.Begun), m.begun, plain},
	} {
		head := fmt.Sprintf("%-6s%12s  ", c.name, c.value)
		lines = append(lines, line{{head, strong}, {sparkline(c.h, min(maxHistory, m.width-len(head)), m.glyphs), c.style}})
	}
	return lines
}

// resources returns the resources that may run out, and the rates of failures.
func (m *model) resources() []line {
	r, f := &m.status.Resources, &m.rates.Totals
	alarm := func(on bool) lipgloss.Style {
		if on {
			return warn
		}
		return plain
	}
	return []line{{
		{"refused/s ", faint}, {perSecond(f.Refused), alarm(f.Refused > 0)}, {"  failed/s ", faint}, {perSecond(f.Failed), alarm(f.Failed > 0)},
		{"  fds ", faint}, {part(r.FDs, r.MaxFDs), alarm(r.MaxFDs > 0 && r.FDs > r.MaxFDs*8/10)},
		{"  pipes ", faint}, {part(r.PipesOpen, r.PipesMax), alarm(r.PipesRefused > 0)},
		{"  heap ", faint}, {volume(float64(r.HeapBytes)), plain}, {"  cpu ", faint}, {percent(m.rates.CPU), plain},
	}}
}

// part returns a gauge with its bound, if that is known.
func part(n, most int64) string {
	if most == 0 {
		return count(n)
	}
	return count(n) + "/" + count(most)
}

// loops returns the busy share of each loop, with bars if there are few, in at most three
// lines.
func (m *model) loops() []line {
	const head, bare, bar, most = 6, 8, 10, 3
	busy := m.rates.Busy
	cell := bare
	if len(busy)*(bare+bar) <= m.width-head {
		cell += bar
	}
	each := max(1, (m.width-head)/cell)
	var lines []line
	for i, b := range busy {
		if i%each == 0 {
			if len(lines) == most {
				last := &lines[most-1]
				*last = append((*last)[:len(*last)-1], piece{fmt.Sprintf("+%d", len(busy)-i+1), faint})
				break
			}
			name := ""
			if i == 0 {
				name = "loops"
			}
			lines = append(lines, line{{fmt.Sprintf("%-*s", head, name), strong}})
		}
		style := good
		switch {
		case b >= 0.95:
			style = bad
		case b >= 0.75:
			style = warn
		}
		text := fmt.Sprintf("%2d %4s ", i, percent(b))
		if cell > bare {
			full := int(b*(bar-3) + 0.5)
			text += "[" + strings.Repeat("#", full) + strings.Repeat(" ", bar-3-full) + "] "
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], piece{text, style})
	}
	return lines
}
