package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
)

// FleetTopCmd shows all relays live.
type FleetTopCmd struct {
	FleetFlags
	NodeFilter
	Once bool `help:"Print what is measured in a few seconds, and exit. This is the default if stdin or stdout is not a terminal, or if TERM is dumb."`
}

// Help returns the text below the flags.
func (FleetTopCmd) Help() string {
	return "While it runs, relays report more often: each second where there are up to 100, and seldomer where there are more. Keys: q quits, f b d n sort by flows, bytes, trouble and name."
}

// fleetRates are numbers per second of a relay, between its last two reports.
type fleetRates struct {
	up, down, begun, failed, cpu float64
	known                        bool
}

func fleetRatesOf(before, after *fleet.Node) (r fleetRates) {
	seconds := after.At.Sub(before.At).Seconds()
	if seconds <= 0 || !after.Since.Equal(before.Since) {
		return r
	}
	per := func(a, b int64) float64 { return max(0, float64(b-a)) / seconds }
	return fleetRates{per(before.BytesUp, after.BytesUp), per(before.BytesDown, after.BytesDown), per(before.Begun, after.Begun), per(before.Failed, after.Failed),
		max(0, after.Host.CPU-before.Host.CPU) / seconds, true}
}

// A fleetModel is the live view.
type fleetModel struct {
	url, zone     string
	width, height int
	nodes         []fleet.Node
	rates         map[string]fleetRates
	sort          string
	broken        error
	have          bool
}

type (
	fleetNodesMsg  struct{ nodes []fleet.Node }
	fleetBrokenMsg struct{ err error }
	fleetTickMsg   struct{}
)

func newFleetModel(url, zone string) *fleetModel {
	url, _, _ = strings.Cut(url, "?")
	return &fleetModel{url: url, zone: zone, rates: map[string]fleetRates{}, sort: "b"}
}

// Init implements tea.Model.
func (m *fleetModel) Init() tea.Cmd { return fleetTick() }

func fleetTick() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return fleetTickMsg{} })
}

// Update implements tea.Model.
func (m *fleetModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch key := msg.String(); key {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "f", "b", "d", "n":
			m.sort = key
		}
	case fleetNodesMsg:
		m.set(msg.nodes)
	case fleetBrokenMsg:
		m.broken = msg.err
	case fleetTickMsg:
		return m, fleetTick()
	}
	return m, nil
}

// set takes other reports.
func (m *fleetModel) set(nodes []fleet.Node) {
	was := make(map[string]*fleet.Node, len(m.nodes))
	for i := range m.nodes {
		was[m.nodes[i].Node] = &m.nodes[i]
	}
	nodes = slices.DeleteFunc(nodes, func(n fleet.Node) bool { return m.zone != "" && n.Zone != m.zone })
	rates := make(map[string]fleetRates, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		rates[n.Node] = m.rates[n.Node]
		if b := was[n.Node]; b != nil && !b.At.Equal(n.At) {
			rates[n.Node] = fleetRatesOf(b, n)
		}
	}
	m.nodes, m.rates, m.have = nodes, rates, true
}

// View implements tea.Model.
func (m *fleetModel) View() tea.View {
	var out []string
	for _, l := range m.lines(m.width, m.height, time.Now()) {
		out = append(out, l.render(m.width))
	}
	v := tea.NewView(strings.Join(out, "\n"))
	v.AltScreen = true
	v.WindowTitle = "penstock fleet top"
	return v
}

// lines returns the screen; height 0: as many lines as there are.
func (m *fleetModel) lines(width, height int, now time.Time) []line {
	state := styled("live", good)
	switch {
	case m.broken != nil:
		state = styled("no contact: "+printable(m.broken.Error()), bad)
	case !m.have:
		state = styled("connecting", faint)
	}
	view := newFleetView(m.nodes, now)
	var sum fleetRates
	var flows int64
	ready, looks := 0, 0
	for i := range m.nodes {
		n := &m.nodes[i]
		r := m.rates[n.Node]
		sum.up, sum.down, sum.begun, sum.failed = sum.up+r.up, sum.down+r.down, sum.begun+r.begun, sum.failed+r.failed
		flows += n.Flows
		if n.State == "ready" {
			ready++
		}
		if len(view.odd(n)) > 0 {
			looks++
		}
	}
	title := append(line{{"penstock fleet ", strong}, {printable(m.url) + "  ", plain}}, state...)
	lines := []line{title,
		text(fmt.Sprintf("%s, %d ready, %d to look at; %s open, %s/s new, %s/s failed; %s up, %s down", plural(int64(len(m.nodes)), "relay"), ready, looks,
			plural(flows, "flow"), perSecond(sum.begun), perSecond(sum.failed), rate(sum.up), rate(sum.down))),
		nil}
	t := m.table(view)
	for i, l := range t.lines(width) {
		style := plain
		if i == 0 {
			style = faint
		}
		lines = append(lines, styled(l, style))
	}
	foot := styled("q quit   sort by: f flows  b bytes  d trouble  n name", faint)
	if height <= 0 {
		return lines
	}
	if most := height - 1; len(lines) > most {
		left := len(lines) - most + 1
		lines = append(lines[:max(0, most-1)], styled(fmt.Sprintf("... %d more relays", left), faint))
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	return append(lines, foot)
}

func (m *fleetModel) table(view *fleetView) *table {
	nodes := slices.Clone(m.nodes)
	slices.SortStableFunc(nodes, func(a, b fleet.Node) int {
		x, y := m.rates[a.Node], m.rates[b.Node]
		switch m.sort {
		case "f":
			return cmp.Compare(b.Flows, a.Flows)
		case "d":
			return cmp.Compare(len(view.odd(&b)), len(view.odd(&a)))
		case "n":
			return 0
		}
		return cmp.Compare(y.up+y.down, x.up+x.down)
	})
	t := newTable("~NODE", ">RUNS", "STATE", ">FLOWS", ">NEW/s", ">UP", ">DOWN", ">CPU", ">MEMBERS", "?>FAILED/s", "?>LOAD", "?>AGE", "?~TO LOOK AT")
	for i := range nodes {
		n := &nodes[i]
		r := m.rates[n.Node]
		up, all := n.Members()
		cells := []string{"-", "-", "-", "-", "-"}
		if r.known {
			cells = []string{perSecond(r.begun), fixedRate(r.up), fixedRate(r.down), percent(r.cpu), perSecond(r.failed)}
		}
		t.add(n.Node, versionText(n), dash(n.State), count(n.Flows), cells[0], cells[1], cells[2], cells[3], fmt.Sprintf("%d/%d", up, all), cells[4],
			fmt.Sprintf("%.2f", n.Host.Load), age(view.now.Sub(n.At).Seconds()), strings.Join(view.odd(n), "; "))
	}
	return t
}

// Run executes the command.
func (c *FleetTopCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		nodes, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		list, err := c.pick(nodes, nil)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m := newFleetModel(c.Fleet, c.Zone)
		every := fleet.ReportEvery(len(list))
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			hurry(ctx, o, namesOf(list), every)
		}()
		defer func() {
			cancel()
			<-asked
		}()
		if c.Once || c.JSON || os.Getenv("TERM") == "dumb" || !term.IsTerminal(stdout.Fd()) || !term.IsTerminal(os.Stdin.Fd()) {
			return c.once(ctx, o, m, every, stdout)
		}
		p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(os.Stdin), tea.WithOutput(stdout), tea.WithoutSignalHandler())
		fed := make(chan struct{})
		go func() {
			defer close(fed)
			o.Watch(ctx, func(n []fleet.Node) { p.Send(fleetNodesMsg{n}) }, func(err error) { p.Send(fleetBrokenMsg{err}) })
		}()
		_, err = p.Run()
		cancel()
		<-fed
		if errors.Is(err, tea.ErrProgramKilled) {
			return nil // a signal
		}
		return err
	})
}

// hurry makes relays report more often until ctx ends.
func hurry(ctx context.Context, o *fleet.Operator, names []string, every int) {
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, 4*time.Minute)
		o.Hold(asked, names, fleet.Order{Kind: fleet.OrderReport, Every: every})
		cancel()
	}
}

// fleetTopOnce is the output of --json.
type fleetTopOnce struct {
	Node  string  `json:"node"`
	Flows int64   `json:"flows"`
	Begun float64 `json:"begun"` // per second, as the others
	Up    float64 `json:"bytes_up"`
	Down  float64 `json:"bytes_down"`
	Fail  float64 `json:"failed"`
	CPU   float64 `json:"cpu"`
}

// once measures until every relay has reported twice, or long enough for that has passed.
func (c *FleetTopCmd) once(ctx context.Context, o *fleet.Operator, m *fleetModel, every int, stdout *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(3*every+3)*time.Second)
	defer cancel()
	o.Watch(ctx, func(n []fleet.Node) {
		m.set(n)
		for _, r := range m.rates {
			if !r.known {
				return
			}
		}
		if len(m.rates) > 0 {
			cancel()
		}
	}, func(err error) { m.broken = err })
	if c.JSON {
		list := []fleetTopOnce{}
		for i := range m.nodes {
			n := &m.nodes[i]
			r := m.rates[n.Node]
			list = append(list, fleetTopOnce{n.Node, n.Flows, r.begun, r.up, r.down, r.failed, r.cpu})
		}
		return printJSON(stdout, map[string][]fleetTopOnce{"nodes": list})
	}
	out := newOut(stdout)
	for _, l := range m.lines(out.width, 0, time.Now()) {
		var b strings.Builder
		for _, p := range l {
			b.WriteString(p.text)
		}
		fmt.Fprintln(out, b.String())
	}
	return nil
}
