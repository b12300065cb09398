package console

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// keyHelp is the help that ? shows.
var keyHelp = [][2]string{
	{"tab, shift+tab, 1-5", "next pane, previous pane, or the pane of that number"},
	{"up, down, j, k", "move"},
	{"pgup, pgdown, g, G", "move by a page, to the first, to the last"},
	{"enter", "flow: show its details and TCP_INFO of both sides"},
	{"", "member or listener: show its flows"},
	{"esc", "close the details, or clear the filter"},
	{"K, delete", "end the flow (asks first)"},
	{"d, D, e, r", "member: drain, disable, enable, restore (asks first)"},
	{"w", "member: set its weight"},
	{"/", "filter flows: an address or network, group=, member=,"},
	{"", "listener=, route=, state=, kind=, path=, older=5m,"},
	{"", "younger=, idle=, min-bytes=1MiB"},
	{"s", "sort flows by rate, bytes or age"},
	{"p", "pause or resume"},
	{"q, ctrl+c", "quit"},
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.prompt != nothing {
		return m.answer(name, k.Text)
	}
	m.notice = ""
	if m.help {
		m.help = false
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
	case "tab", "right":
		return m.show((m.pane + 1) % panes)
	case "shift+tab", "left":
		return m.show((m.pane + panes - 1) % panes)
	case "1", "2", "3", "4", "5":
		return m.show(int(name[0] - '1'))
	case "down", "j":
		m.move(1)
	case "up", "k":
		m.move(-1)
	case "pgdown", "space", "ctrl+f":
		m.move(m.page())
	case "pgup", "ctrl+b":
		m.move(-m.page())
	case "home", "g":
		m.move(-1 << 30)
	case "end", "G":
		m.move(1 << 30)
	case "esc":
		if m.detail != nil {
			m.detail = nil
			return nil
		}
		m.filter = api.Filter{}
		return m.refresh()
	case "enter":
		return m.enter()
	case "K", "delete":
		m.confirm()
	case "d", "D", "e", "r", "w":
		m.memberPrompt(name)
	case "/":
		m.prompt, m.input = askFilter, filterLine(&m.filter)
		if m.input != "" {
			m.input += " "
		}
	case "s":
		m.sort = api.Sorts[(slices.Index(api.Sorts, m.sort)+1)%len(api.Sorts)]
		m.notify(false, "flows by "+m.sort)
		return m.refresh()
	case "p":
		m.paused = !m.paused
	}
	return nil
}

// answer handles a key at a prompt.
func (m *model) answer(name, text string) tea.Cmd {
	if m.prompt == askKill {
		m.prompt = nothing
		if name == "y" || name == "Y" {
			return m.kill(m.killTarget.ID)
		}
		m.notify(false, "no flow was ended")
		return nil
	}
	if m.prompt == askMember {
		return m.answerMember(name)
	}
	switch name {
	case "esc":
		m.prompt, m.notice = nothing, ""
	case "enter":
		if m.prompt == askWeight {
			return m.setWeight()
		}
		f, err := parseFilter(m.input)
		if err != nil {
			m.notify(true, err.Error())
			return nil
		}
		m.prompt, m.filter, m.notice = nothing, f, ""
		if m.pane != overview && m.pane != flowPane {
			return m.show(flowPane)
		}
		return m.refresh()
	case "backspace":
		m.input = m.input[:max(0, len(m.input)-1)]
		m.notice = ""
	case "ctrl+u":
		m.input, m.notice = "", ""
	default:
		m.input += printable(text)
		m.notice = ""
	}
	return nil
}

// show switches to a pane.
func (m *model) show(pane int) tea.Cmd {
	m.pane, m.detail = pane, nil
	return m.refresh()
}

// rows returns the number of rows of the pane that the cursor can select.
func (m *model) rows() int {
	switch m.pane {
	case flowPane:
		return len(m.flows.Flows)
	case memberPane:
		return len(m.members())
	case listenerPane:
		return len(m.status.Listeners)
	case eventPane:
		return len(m.events)
	}
	return 0
}

// page returns how far a page key moves.
func (m *model) page() int { return max(1, m.height-5) }

// move moves the cursor, or scrolls the details, within bounds.
func (m *model) move(by int) {
	if m.detail != nil {
		m.scroll = max(0, min(m.scroll+by, len(m.detailLines())-1))
		return
	}
	c := &m.cursor[m.pane]
	*c = max(0, min(*c+by, m.rows()-1))
	if m.pane == flowPane && *c < len(m.flows.Flows) {
		m.chosen = m.flows.Flows[*c].ID
	}
}

// enter opens the selected row.
func (m *model) enter() tea.Cmd {
	i := m.cursor[m.pane]
	switch {
	case m.detail != nil:
	case m.pane == overview:
		return m.show(flowPane)
	case i >= m.rows():
	case m.pane == flowPane:
		m.scroll = 0
		m.detail = &api.FlowDetail{Flow: m.flows.Flows[i]}
		m.pending.detail = true
		return m.fetchFlow(m.detail.ID)
	case m.pane == memberPane:
		at := m.members()[i]
		m.filter = api.Filter{Group: at.group, Member: at.Name}
		return m.show(flowPane)
	case m.pane == listenerPane:
		m.filter = api.Filter{Listener: m.status.Listeners[i].Name}
		return m.show(flowPane)
	}
	return nil
}

// confirm asks for confirmation before it ends the selected flow.
func (m *model) confirm() {
	i := m.cursor[flowPane]
	switch {
	case m.detail != nil:
		m.killTarget = m.detail.Flow
	case m.pane == flowPane && i < len(m.flows.Flows):
		m.killTarget = m.flows.Flows[i]
	default:
		m.notify(true, "no flow selected; select one in the Flows pane")
		return
	}
	m.prompt = askKill
}

// question returns the text of the prompt.
func (m *model) question() string {
	if m.prompt == askKill {
		return fmt.Sprintf("end flow %d of %s? y/n ", m.killTarget.ID, printable(address(m.killTarget.Client)))
	}
	switch m.prompt {
	case askMember:
		return m.action.question()
	case askWeight:
		return fmt.Sprintf("weight of %s (now %d; 1 to 256, 0: as configured): %s", printable(memberName(&m.action.member)), m.action.member.Weight, m.input)
	}
	return "filter: " + m.input
}
