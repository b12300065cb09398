package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// TopCmd shows the daemon live.
type TopCmd struct {
	ClientFlags
	Filter
	Once bool `help:"Measure for one second, print the result and exit. This is the default if stdin or stdout is not a terminal, or if TERM is dumb."`
}

// Help returns the text below the flags of penstock top --help.
func (TopCmd) Help() string {
	return "The filter selects the flows that are shown. Press ? for the keys."
}

// maxTopFlows is the number of flows that are requested.
const maxTopFlows = 200

// rateWindow is the time over which the rates of flows are measured. It is short enough
// for the answer to arrive before the next sample.
const rateWindow = 700 * time.Millisecond

// Run executes the command.
func (c *TopCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, client *api.Client) error {
		if c.Once || c.JSON || os.Getenv("TERM") == "dumb" || !term.IsTerminal(stdout.Fd()) || !term.IsTerminal(os.Stdin.Fd()) {
			s, err := c.snapshot(ctx, client)
			switch {
			case err != nil:
				return err
			case c.JSON:
				return printJSON(stdout, s)
			}
			printSnapshot(newOut(stdout), s)
			return nil
		}
		return c.watch(ctx, client, stdout)
	})
}

// snapshot is the output of --once.
type snapshot struct {
	Status api.Status  `json:"status"`
	Rates  rates       `json:"rates"` // per second
	Groups []api.Group `json:"groups"`
	// Splits are the listeners with those of their routes that split their clients among groups.
	Splits []api.Listener `json:"splits"`
	Flows  api.Flows      `json:"flows"` // fastest first
	Events []api.Event    `json:"events"`
}

// snapshot takes two samples a second apart, and measures flows in between.
func (c *TopCmd) snapshot(ctx context.Context, client *api.Client) (s snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before, err := client.Status(ctx)
	if err != nil {
		return s, err
	}
	if s.Flows, err = client.Flows(ctx, c.api(), api.Page{Sort: "rate", Limit: 10, Window: time.Second}); err != nil {
		return s, err
	}
	if s.Status, err = client.Status(ctx); err != nil {
		return s, err
	}
	groups, err := client.Groups(ctx)
	if err != nil {
		return s, err
	}
	s.Groups = groups.Groups
	listeners, err := client.Listeners(ctx)
	if err != nil {
		return s, err
	}
	s.Splits = splitRoutes(listeners.Listeners, routeArg{})
	s.Rates, _ = ratesOf(&before.Sample, &s.Status.Sample)
	events, err := client.Events(ctx, s.Status.LastEvent-min(s.Status.LastEvent, 10))
	s.Events = events.Events
	return s, err
}

func printSnapshot(o out, s snapshot) {
	r := &s.Rates
	printPairs(o, append(statusPairs(&s.Status),
		[2]string{"now", fmt.Sprintf("%s up, %s down; %s new flows/s, %s refused/s, %s failed/s", rate(r.Totals.Up), rate(r.Totals.Down),
			perSecond(r.Totals.Begun), perSecond(r.Totals.Refused), perSecond(r.Totals.Failed))},
		[2]string{"busy", busyText(r.Busy)})...)
	for _, t := range []*table{listenerTable(&s.Status.Sample, r), groupTable(&s.Status.Sample, r), splitTable(s.Splits), pathTable(s.Status.Paths), flowTable(s.Flows.Flows, true), eventTable(s.Events)} {
		if len(t.rows) > 0 {
			fmt.Fprintln(o)
			t.print(o)
		}
	}
}

// busyText returns the busy share of each loop.
func busyText(busy []float64) string {
	var parts []string
	for _, b := range busy {
		parts = append(parts, percent(b))
	}
	return strings.Join(parts, " ")
}

func listenerTable(s *api.Sample, r *rates) *table {
	t := newTable("~LISTENER", ">FLOWS", ">NEW/s", ">UP", ">DOWN", ">REFUSED/s", "?>FAILED/s", "?>BEGUN")
	for _, l := range s.Listeners {
		f := r.Listeners[l.Name]
		t.add(l.Name, count(l.Flows), perSecond(f.Begun), fixedRate(f.Up), fixedRate(f.Down), perSecond(f.Refused), perSecond(f.Failed), count(l.Begun))
	}
	return t
}

func groupTable(s *api.Sample, r *rates) *table {
	t := newTable("~GROUP", ">MEMBERS", ">FLOWS", ">NEW/s", ">UP", ">DOWN", "?>QUEUED", "?>FAILED/s")
	for _, g := range s.Groups {
		f := r.Groups[g.Name]
		t.add(g.Name, fmt.Sprintf("%d/%d", g.Up, g.Members), count(g.Flows), perSecond(f.Begun), fixedRate(f.Up), fixedRate(f.Down), count(int64(g.Queued)), perSecond(f.Failed))
	}
	return t
}

// eventTable returns a table of events, latest first.
func eventTable(events []api.Event) *table {
	t := newTable("TIME", "LEVEL", "?KIND", "~SUBJECT", "~EVENT")
	for i := len(events) - 1; i >= 0; i-- {
		e := &events[i]
		t.add(clock(e.Time), e.Level, e.Kind, e.Subject, e.Message)
	}
	return t
}

// watch runs the live view. The daemon must answer at the start. Later it may disappear
// and return.
func (c *TopCmd) watch(ctx context.Context, client *api.Client, stdout *os.File) error {
	if _, err := call(ctx, client.Status); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := newModel(ctx, client, &c.ClientFlags, c.api())
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(os.Stdin), tea.WithOutput(stdout), tea.WithoutSignalHandler())
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		feed(ctx, client, p.Send)
	}()
	_, err := p.Run()
	cancel()
	<-fed
	if errors.Is(err, tea.ErrProgramKilled) {
		return nil // a signal
	}
	return err
}

// feed sends a startMsg for each connection, a sampleMsg per second, and a disconnectedMsg
// when the connection ends, after which it tries again. It blocks until ctx ends.
func feed(ctx context.Context, client *api.Client, send func(tea.Msg)) {
	for ctx.Err() == nil {
		s, err := call(ctx, client.Status)
		if err == nil {
			send(startMsg{s})
			err = client.Stream(ctx, func(s *api.Sample) error {
				send(sampleMsg{*s})
				return nil
			})
		}
		if ctx.Err() == nil {
			send(disconnectedMsg{err})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
