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

// The messages of the view.
type (
	startMsg        struct{ api.Status }
	sampleMsg       struct{ api.Sample }
	disconnectedMsg struct{ err error }
	groupsMsg       struct {
		api.Groups
		err error
	}
	listenersMsg struct {
		api.Listeners
		hash string // of the configuration when they were requested
		err  error
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
	memberMsg struct {
		api.Members
		group string
		err   error
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

// prompt is the question on the last line.
type prompt uint8

const (
	nothing prompt = iota
	askFilter
	askKill
	askMember
	askWeight
)

// keptEvents is the number of events that the view keeps.
const keptEvents = 512

// model is the state of the live view. With each sample it requests what the pane shows,
// unless the previous request is still pending.
type model struct {
	ctx    context.Context
	client *api.Client
	flags  *ClientFlags
	glyphs []rune

	width, height int

	status       api.Status // with the latest sample
	haveStatus   bool       // status is set
	disconnected string     // why the daemon does not answer; empty if it does
	rates        rates
	up           history
	down         history
	open         history
	begun        history
	groups       []api.Group
	looks        []answersLook  // oldest first
	splits       []api.Listener // with those of their routes that have parts; nil: not known yet
	splitsHash   string         // of the configuration that has these routes
	flows        api.Flows
	events       []api.Event // oldest first
	pending      struct{ groups, listeners, flows, events, detail bool }

	pane          int
	cursor        [panes]int
	chosen        uint64 // the selected flow
	help          bool
	paused        bool
	detail        *api.FlowDetail
	scroll        int // of the details
	sort          string
	filter        api.Filter
	prompt        prompt
	input         string
	killTarget    api.Flow
	action        memberAction
	hidden        []string // columns that do not fit, of what is shown
	notice        string   // shown until the next key
	noticeIsError bool
}

func newModel(ctx context.Context, client *api.Client, flags *ClientFlags, filter api.Filter) *model {
	m := &model{ctx: ctx, client: client, flags: flags, glyphs: sparks, sort: "rate", filter: filter}
	if !speaksUTF8() {
		m.glyphs = asciiSparks
	}
	return m
}

// speaksUTF8 reports whether the locale uses UTF-8, in the order of setlocale(3).
func speaksUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.prompt == askFilter {
			m.input += printable(msg.Content)
		}
	case startMsg:
		m.status, m.haveStatus, m.disconnected = msg.Status, true, ""
		m.rates, m.events = rates{}, nil
		return m, m.refresh()
	case sampleMsg:
		return m, m.sample(&msg.Sample)
	case disconnectedMsg:
		m.disconnected = m.flags.explain(msg.err)
	case groupsMsg:
		m.pending.groups = false
		if !m.failed(msg.err) {
			m.groups = msg.Groups.Groups
			m.lookAtAnswers(m.status.Time)
		}
	case listenersMsg:
		m.pending.listeners = false
		if !m.failed(msg.err) {
			m.splits, m.splitsHash = splitRoutes(msg.Listeners.Listeners, routeArg{}), msg.hash
		}
	case flowsMsg:
		m.pending.flows = false
		if !m.failed(msg.err) {
			m.flows = msg.Flows
			// Keep the cursor on its flow.
			if i := slices.IndexFunc(m.flows.Flows, func(f api.Flow) bool { return f.ID == m.chosen }); i >= 0 {
				m.cursor[flowPane] = i
			}
			m.move(0)
		}
	case eventsMsg:
		m.pending.events = false
		if !m.failed(msg.err) {
			m.events = append(m.events, msg.Events.Events...)
			m.events = m.events[max(0, len(m.events)-keptEvents):]
		}
	case detailMsg:
		m.pending.detail = false
		var gone *api.Problem
		switch {
		case m.detail == nil: // closed in the meantime
		case errors.As(msg.err, &gone):
			m.detail = nil
			m.notify(true, "the flow has ended")
		case msg.err == nil && m.detail.ID == msg.ID:
			m.detail = &msg.FlowDetail
		}
	case memberMsg:
		if !m.failed(msg.err) && len(msg.Members.Members) > 0 {
			at := &msg.Members.Members[0]
			m.notify(false, fmt.Sprintf("%s/%s: %s, weight %d, %s", msg.group, memberName(at), at.State, at.Weight, plural(at.Flows, "flow")))
			return m, m.refresh()
		}
	case killedMsg:
		if !m.failed(msg.err) {
			m.notify(false, fmt.Sprintf("ended flow %d", msg.id))
		}
	}
	return m, nil
}

// sample handles a sample, and requests what the pane shows.
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
	m.status.Sample, m.disconnected = *s, ""
	return m.refresh()
}

// failed reports whether err is not nil. It shows an error that the daemon returned; that
// the daemon is gone is shown by disconnectedMsg.
func (m *model) failed(err error) bool {
	var problem *api.Problem
	if errors.As(err, &problem) {
		m.notify(true, m.flags.explain(err))
	}
	return err != nil
}

func (m *model) notify(isError bool, text string) { m.noticeIsError, m.notice = isError, text }

// refresh requests what the pane shows.
func (m *model) refresh() tea.Cmd {
	var cmds []tea.Cmd
	want := func(pending *bool, cmd tea.Cmd) {
		if !*pending {
			*pending = true
			cmds = append(cmds, cmd)
		}
	}
	if m.pane == overview || m.pane == flowPane {
		page := api.Page{Sort: m.sort, Limit: maxTopFlows}
		if m.sort == "rate" {
			page.Window = rateWindow
		}
		filter := m.filter
		want(&m.pending.flows, func() tea.Msg {
			f, err := call(m.ctx, func(ctx context.Context) (api.Flows, error) { return m.client.Flows(ctx, filter, page) })
			return flowsMsg{f, err}
		})
	}
	if m.pane == memberPane {
		want(&m.pending.groups, func() tea.Msg {
			g, err := call(m.ctx, m.client.Groups)
			return groupsMsg{g, err}
		})
	}
	// Most configurations have no route with parts; then one request for each configuration is enough.
	if hash := m.status.Hash; (m.pane == overview || m.pane == listenerPane) && (m.splits == nil || len(m.splits) > 0 || hash != m.splitsHash) {
		want(&m.pending.listeners, func() tea.Msg {
			l, err := call(m.ctx, m.client.Listeners)
			return listenersMsg{l, hash, err}
		})
	}
	seen := uint64(0)
	if n := len(m.events); n > 0 {
		seen = m.events[n-1].ID
	}
	if m.status.LastEvent > seen {
		want(&m.pending.events, func() tea.Msg {
			e, err := call(m.ctx, func(ctx context.Context) (api.Events, error) { return m.client.Events(ctx, seen) })
			return eventsMsg{e, err}
		})
	}
	if m.detail != nil {
		want(&m.pending.detail, m.fetchFlow(m.detail.ID))
	}
	return tea.Batch(cmds...)
}

// fetchFlow requests the details of a flow.
func (m *model) fetchFlow(id uint64) tea.Cmd {
	return func() tea.Msg {
		f, err := call(m.ctx, func(ctx context.Context) (api.FlowDetail, error) { return m.client.Flow(ctx, id) })
		return detailMsg{f, err}
	}
}

// kill ends a flow.
func (m *model) kill(id uint64) tea.Cmd {
	return func() tea.Msg {
		_, err := call(m.ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, m.client.Kill(ctx, id) })
		return killedMsg{id, err}
	}
}
