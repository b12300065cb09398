package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// What the view is told.
type (
	startMsg  struct{ api.Status }
	sampleMsg struct{ api.Sample }
	lostMsg   struct{ err error }
	groupsMsg struct {
		api.Groups
		err error
	}
	flowsMsg struct {
		api.Flows
		err error
	}
	eventsMsg struct {
		api.Events
		err error
	}
	detailMsg struct {
		api.FlowDetail
		err error
	}
	killedMsg struct {
		id  uint64
		err error
	}
)

// The panes.
const (
	overview = iota
	flowPane
	memberPane
	listenerPane
	eventPane
	panes
)

var paneNames = [panes]string{"Overview", "Flows", "Members", "Listeners", "Events"}

// prompt is what the last line asks.
type prompt uint8

const (
	nothing prompt = iota
	askFilter
	askKill
)

// keptEvents is how many events the view keeps.
const keptEvents = 512

// model is the state of the live view. Each sample is the tick by which it asks
// for what the pane shows, but never for a thing that it still waits for.
type model struct {
	ctx    context.Context
	client *api.Client
	ask    *Ask
	glyphs []rune

	width, height int

	status  api.Status // its sample is the youngest
	known   bool       // status has been told
	lost    string     // why the daemon does not answer; empty: it does
	rates   rates
	up      history
	down    history
	open    history
	begun   history
	groups  []api.Group
	flows   api.Flows
	events  []api.Event // oldest first
	waiting struct{ groups, flows, events, detail bool }

	pane    int
	cursor  [panes]int
	chosen  uint64 // the flow under the cursor
	help    bool
	paused  bool
	detail  *api.FlowDetail
	scroll  int // of the detail
	sort    string
	filter  api.Filter
	prompt  prompt
	input   string
	victim  api.Flow
	notice  string // until the next key
	trouble bool   // notice is an error
}

func newModel(ctx context.Context, client *api.Client, ask *Ask, filter api.Filter) *model {
	m := &model{ctx: ctx, client: client, ask: ask, glyphs: sparks, sort: "rate", filter: filter}
	if !speaksUTF8() {
		m.glyphs = asciiSparks
	}
	return m
}

// speaksUTF8 tells whether the locale is one of UTF-8, by the order of setlocale(3).
func speaksUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// Init is part of tea.Model.
func (m *model) Init() tea.Cmd { return nil }

// Update is part of tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.prompt == askFilter {
			m.input += clean(msg.Content)
		}
	case startMsg:
		m.status, m.known, m.lost = msg.Status, true, ""
		m.rates, m.events = rates{}, nil
		return m, m.refresh()
	case sampleMsg:
		return m, m.sample(&msg.Sample)
	case lostMsg:
		m.lost = m.ask.explain(msg.err)
	case groupsMsg:
		m.waiting.groups = false
		if !m.failed(msg.err) {
			m.groups = msg.Groups.Groups
		}
	case flowsMsg:
		m.waiting.flows = false
		if !m.failed(msg.err) {
			m.flows = msg.Flows
			// The cursor stays with its flow.
			if i := slices.IndexFunc(m.flows.Flows, func(f api.Flow) bool { return f.ID == m.chosen }); i >= 0 {
				m.cursor[flowPane] = i
			}
			m.move(0)
		}
	case eventsMsg:
		m.waiting.events = false
		if !m.failed(msg.err) {
			m.events = append(m.events, msg.Events.Events...)
			m.events = m.events[max(0, len(m.events)-keptEvents):]
		}
	case detailMsg:
		m.waiting.detail = false
		var gone *api.Problem
		switch {
		case m.detail == nil: // closed meanwhile
		case errors.As(msg.err, &gone):
			m.detail = nil
			m.say(true, "that flow has ended")
		case msg.err == nil && m.detail.ID == msg.ID:
			m.detail = &msg.FlowDetail
		}
	case killedMsg:
		if !m.failed(msg.err) {
			m.say(false, fmt.Sprintf("flow %d is ended", msg.id))
		}
	}
	return m, nil
}

// sample takes a second's numbers, and asks for the rest.
func (m *model) sample(s *api.Sample) tea.Cmd {
	if m.paused {
		return nil
	}
	if r, ok := ratesOf(&m.status.Sample, s); ok {
		m.rates = r
		m.up.add(r.Totals.Up)
		m.down.add(r.Totals.Down)
		m.begun.add(r.Totals.Begun)
		m.open.add(float64(s.Totals.Flows))
	}
	m.status.Sample, m.lost = *s, ""
	return m.refresh()
}

// failed tells whether there is an error. One of the daemon is shown; that it is
// gone is told by lostMsg.
func (m *model) failed(err error) bool {
	var problem *api.Problem
	if errors.As(err, &problem) {
		m.say(true, m.ask.explain(err))
	}
	return err != nil
}

func (m *model) say(trouble bool, text string) { m.trouble, m.notice = trouble, text }

// refresh asks for what the pane shows.
func (m *model) refresh() tea.Cmd {
	var cmds []tea.Cmd
	want := func(waiting *bool, cmd tea.Cmd) {
		if !*waiting {
			*waiting = true
			cmds = append(cmds, cmd)
		}
	}
	if m.pane == overview || m.pane == flowPane {
		page := api.Page{Sort: m.sort, Limit: talkers}
		if m.sort == "rate" {
			page.Window = rateWindow
		}
		filter := m.filter
		want(&m.waiting.flows, func() tea.Msg {
			f, err := get(m.ctx, func(ctx context.Context) (api.Flows, error) { return m.client.Flows(ctx, filter, page) })
			return flowsMsg{f, err}
		})
	}
	if m.pane == memberPane {
		want(&m.waiting.groups, func() tea.Msg {
			g, err := get(m.ctx, m.client.Groups)
			return groupsMsg{g, err}
		})
	}
	seen := uint64(0)
	if n := len(m.events); n > 0 {
		seen = m.events[n-1].ID
	}
	if m.status.LastEvent > seen {
		want(&m.waiting.events, func() tea.Msg {
			e, err := get(m.ctx, func(ctx context.Context) (api.Events, error) { return m.client.Events(ctx, seen) })
			return eventsMsg{e, err}
		})
	}
	if m.detail != nil {
		want(&m.waiting.detail, m.look(m.detail.ID))
	}
	return tea.Batch(cmds...)
}

// look asks for a flow's detail.
func (m *model) look(id uint64) tea.Cmd {
	return func() tea.Msg {
		f, err := get(m.ctx, func(ctx context.Context) (api.FlowDetail, error) { return m.client.Flow(ctx, id) })
		return detailMsg{f, err}
	}
}

// kill ends a flow.
func (m *model) kill(id uint64) tea.Cmd {
	return func() tea.Msg {
		_, err := get(m.ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, m.client.Kill(ctx, id) })
		return killedMsg{id, err}
	}
}
