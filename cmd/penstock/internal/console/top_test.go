package console

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/internal/testnet"
)

// view is a model that no daemon answers: what it asks for is not asked.
type view struct {
	*model
	t *testing.T
}

func newView(t *testing.T, width, height int) view {
	t.Helper()
	v := view{newModel(context.Background(), nil, &ClientFlags{Admin: "unix:///run/penstock/admin.sock"}, api.Filter{}), t}
	v.glyphs = sparks
	return v.tell(tea.WindowSizeMsg{Width: width, Height: height})
}

func (v view) tell(msgs ...tea.Msg) view {
	for _, msg := range msgs {
		v.Update(msg)
	}
	return v
}

// press sends keys: names of those that have one, or text.
func (v view) press(keys ...string) view {
	special := map[string]rune{"enter": tea.KeyEnter, "tab": tea.KeyTab, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace,
		"down": tea.KeyDown, "up": tea.KeyUp, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp}
	for _, key := range keys {
		if code, ok := special[key]; ok {
			v.tell(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range key {
			v.tell(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
	return v
}

// shown is the screen without styles. It must fill the terminal and no more.
func (v view) shown() string {
	v.t.Helper()
	lines := v.screen()
	if len(lines) != v.height {
		v.t.Errorf("%d lines of %d", len(lines), v.height)
	}
	for i, l := range lines {
		if w := ansi.StringWidth(l); w > v.width {
			v.t.Errorf("line %d has %d cells of %d: %q", i, w, v.width, l)
		}
		lines[i] = strings.TrimRight(ansi.Strip(l), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// busy tells v of a minute of a daemon that does what d says.
func (v view) busy(d *daemon) view {
	s := d.status
	v.tell(startMsg{s})
	for i := range 60 {
		s.Uptime++
		s.Totals.BytesUp += int64(i) << 18
		s.Totals.BytesDown += int64(60-i) << 20
		s.Totals.Begun += int64(i % 7)
		s.Totals.Flows = int64(i % 11)
		s.Loops = append([]api.Loop(nil), s.Loops...)
		for j := range s.Loops {
			s.Loops[j].Busy += float64(j%5) / 4
		}
		s.Listeners = append([]api.ListenerSummary(nil), s.Listeners...)
		for j := range s.Listeners {
			s.Listeners[j].Begun += 3
			s.Listeners[j].BytesDown += 1 << 20
		}
		v.tell(sampleMsg{s.Sample})
	}
	list := api.Flows{Matched: int64(len(d.flows)), Total: int64(len(d.flows))}
	for i := range d.flows {
		f := d.flows[i].Flow
		f.Rate = float64(f.ID) * 1e6
		list.Flows = append(list.Flows, f)
	}
	events := api.Events{}
	for i := range 8 {
		events.Events = append(events.Events, api.Event{ID: uint64(i + 1), Time: epoch, Level: []string{"info", "warn", "error"}[i%3], Kind: "health",
			Subject: "web/tcp://[2001:db8:85a3:1111:2222:8a2e:370:7334]:8080", Message: "down: connection refused, for the " + fmt.Sprint(i+1) + "th time"})
	}
	return v.tell(flowsMsg{Flows: list}, groupsMsg{Groups: api.Groups{Groups: d.groups}}, eventsMsg{Events: events})
}

// huge has more of everything than any screen.
func huge() *daemon {
	d := newDaemon()
	s := &d.status
	s.Totals = api.Numbers{Flows: math.MaxInt64, Begun: math.MaxInt64 / 2, Refused: math.MaxInt64 / 2, Failed: math.MaxInt64 / 2, BytesUp: math.MaxInt64 / 2, BytesDown: math.MaxInt64 / 2}
	s.Version = strings.Repeat("v", 300)
	s.Resources = api.Resources{FDs: math.MaxInt64, MaxFDs: math.MaxInt64, PipesOpen: math.MaxInt64, PipesMax: math.MaxInt64, HeapBytes: math.MaxInt64, CPU: 1e9}
	s.LastEvent = math.MaxUint64
	for i := range 300 {
		name := fmt.Sprintf("listener-%d-%s", i, strings.Repeat("x", i))
		s.Loops = append(s.Loops, api.Loop{})
		s.Listeners = append(s.Listeners, api.ListenerSummary{Name: name, Numbers: s.Totals})
		s.Groups = append(s.Groups, api.GroupSummary{Name: name, Members: i, Numbers: s.Totals})
		s.Paths = append(s.Paths, api.PathCount{Path: "copy", Why: strings.Repeat("\u4e16\u754c ", i), Directions: math.MaxInt64 / 1000})
		d.groups = append(d.groups, d.groups[0])
		f := newFlow(math.MaxUint64-uint64(i), "[2001:db8:85a3:1111:2222:8a2e:370:7334]:50002")
		f.Age, f.Idle, f.Down.Bytes = 1e12, math.NaN(), math.MaxInt64
		f.SNI = strings.Repeat("\x1b[2J\u4e16", 100)
		d.flows = append(d.flows, f)
	}
	return d
}

var sizes = [][2]int{{80, 24}, {120, 40}, {40, 24}, {40, 10}, {300, 100}, {20, 5}, {1, 1}, {3, 2}, {0, 0}}

// Whatever the daemon says and whichever keys are pressed, the screen is filled
// and nothing is wider than it.
func TestScreenFits(t *testing.T) {
	testnet.OneGoroutine(t)
	failing := newDaemon()
	failing.status.State = ""
	for name, prepare := range map[string]func(view) view{
		"nothing": func(v view) view { return v },
		"empty":   func(v view) view { return v.tell(startMsg{}, sampleMsg{}, flowsMsg{}, groupsMsg{}, eventsMsg{}) },
		"busy":    func(v view) view { return v.busy(newDaemon()) },
		"huge":    func(v view) view { return v.busy(huge()) },
		"lost": func(v view) view {
			return v.busy(failing).tell(disconnectedMsg{errors.New(strings.Repeat("gone \x1b[2J", 50))})
		},
		"refused": func(v view) view {
			p := api.NewProblem(403, strings.Repeat("no\n", 100), "yes")
			return v.busy(newDaemon()).tell(flowsMsg{err: p}, groupsMsg{err: p}, eventsMsg{err: p}, killedMsg{err: p})
		},
	} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s/%dx%d", name, size[0], size[1]), func(t *testing.T) {
				v := prepare(newView(t, size[0], size[1]))
				for _, keys := range [][]string{{"1"}, {"2", "down", "pgdown", "up"}, {"enter"}, {"G", "g"}, {"K"}, {"n"}, {"esc", "?"}, {"x"}, {"3", "G"}, {"enter"}, {"esc"},
					{"4", "pgdown"}, {"enter"}, {"5", "G"}, {"/"}, {strings.Repeat("group=web ", 20)}, {"enter"}, {"backspace", "nonsense", "enter"}, {"esc"}, {"s", "s", "s", "p", "tab"}} {
					v.press(keys...)
					if got := v.shown(); strings.ContainsAny(got, "\x1b\t\r") {
						t.Fatalf("after %q something gets to the terminal that should not: %q", keys, got)
					}
				}
			})
		}
	}
}

// What an operator sees in a terminal of the least size.
func TestScreens(t *testing.T) {
	for name, keys := range map[string][]string{"overview": {"1"}, "flows": {"2", "j"}, "members": {"3"}, "listeners": {"4"}, "events": {"5"}, "help": {"?"}, "kill": {"2", "j", "K"}, "filter": {"/", "group=web ol"}} {
		v := newView(t, 80, 24).busy(newDaemon())
		golden(t, "top-"+name+".golden", v.press(keys...).shown())
	}
	golden(t, "top-wide.golden", newView(t, 120, 40).busy(newDaemon()).shown())
	golden(t, "top-narrow.golden", newView(t, 40, 24).busy(newDaemon()).shown())
	v := newView(t, 80, 24).busy(newDaemon()).press("2", "enter")
	d := newDaemon()
	golden(t, "top-detail.golden", v.tell(detailMsg{FlowDetail: d.flows[0]}).shown())
	v = newView(t, 80, 24).busy(newDaemon())
	golden(t, "top-disconnected.golden", v.tell(disconnectedMsg{errors.New("broken")}).shown())
}

// splitDaemon has a route with parts, whose weights the fleet has.
func splitDaemon() *daemon {
	d := newDaemon()
	d.parts = []api.Part{{Name: "blue", Weight: 90, FileWeight: 95, Numbers: api.Numbers{Flows: 812, Begun: 90_210, Refused: 3}},
		{Name: "green", Weight: 10, FileWeight: 5, Numbers: api.Numbers{Flows: 91, Begun: 5_012}}, {Name: "refuse", Refuse: true, Weight: 0, FileWeight: 0, Numbers: api.Numbers{Begun: 17, Refused: 17}}}
	return d
}

// The parts of routes are in the overview, below the listeners, and in what is printed once.
func TestTopShowsParts(t *testing.T) {
	d := splitDaemon()
	listeners := listenersMsg{Listeners: api.Listeners{Listeners: d.Listeners()}, hash: d.status.Hash}
	golden(t, "top-split.golden", newView(t, 80, 24).busy(d).tell(listeners).press("4").shown())
	golden(t, "top-split-wide.golden", newView(t, 120, 40).busy(d).tell(listeners).shown())
	r := newRig(t, d)
	contains(t, r.good("top", "--once"), "https/default  blue      90%      90    95           812  90,210        3")
	contains(t, r.good("top", "--once", "--json"), `"splits":`, `"file_weight":`)
}

// Listeners are requested once for each configuration, and with each sample only while a route has parts.
func TestTopRequestsListeners(t *testing.T) {
	d := splitDaemon()
	r := newRig(t, d)
	client, err := api.NewClient(r.admin, "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	v := newView(t, 80, 24).tell(startMsg{d.status})
	v.client, v.pending.listeners = client, false
	asked := func() (n int) {
		t.Helper()
		s := v.status.Sample
		s.Uptime++
		_, cmd := v.Update(sampleMsg{s})
		var run func(tea.Msg)
		run = func(msg tea.Msg) {
			switch msg := msg.(type) {
			case tea.BatchMsg:
				for _, cmd := range msg {
					run(cmd())
				}
			case listenersMsg:
				n++
				v.tell(msg)
			case flowsMsg:
				v.tell(msg)
			}
		}
		run(cmd())
		return n
	}
	v.pending.flows, v.pending.events = false, true
	if n := asked() + asked(); n != 2 || len(v.splits) != 1 {
		t.Errorf("with parts: %d requests for 2 samples, %d listeners have parts", n, len(v.splits))
	}
	d.parts = nil
	if n := asked(); n != 1 || len(v.splits) != 0 {
		t.Errorf("after the last part has gone: %d requests, %d listeners have parts", n, len(v.splits))
	}
	if n := asked() + asked(); n != 0 {
		t.Errorf("without parts: %d requests for 2 samples", n)
	}
	v.status.Hash = "another"
	if n := asked() + asked(); n != 1 {
		t.Errorf("of another configuration: %d requests for 2 samples", n)
	}
}

// The cursor stays with its flow while the order changes, and what is killed is
// what was shown when the key was pressed.
func TestKillChoosesWhatIsShown(t *testing.T) {
	d := newDaemon()
	v := newView(t, 80, 24).busy(d).press("2", "j")
	reversed := api.Flows{Flows: []api.Flow{d.flows[2].Flow, d.flows[1].Flow, d.flows[0].Flow}}
	v.tell(flowsMsg{Flows: reversed})
	if v.cursor[flowPane] != 1 || v.chosen != 2 {
		t.Errorf("cursor %d, flow %d", v.cursor[flowPane], v.chosen)
	}
	v.press("g", "K")
	contains(t, v.question(), "end flow 3 of")
	v.tell(flowsMsg{Flows: api.Flows{Flows: []api.Flow{d.flows[0].Flow}}})
	contains(t, v.question(), "end flow 3 of")
	if cmd := v.key(tea.KeyPressMsg{Code: 'n', Text: "n"}); cmd != nil {
		t.Error("no is taken for yes")
	}
	v.press("1", "K")
	if v.prompt != nothing {
		t.Error("a flow is killed that nobody sees")
	}
}

func TestFilterPrompt(t *testing.T) {
	v := newView(t, 120, 24).busy(newDaemon()).press("/", "grop=web", "enter")
	contains(t, v.shown(), `"grop"; allowed`)
	v.press("backspace", "backspace", "backspace", "backspace", "backspace", "backspace", "oup=web 10.0.0.0/8", "enter")
	if v.filter.Group != "web" || v.filter.Source.String() != "10.0.0.0/8" || v.prompt != nothing {
		t.Errorf("%+v, %q", v.filter, v.notice)
	}
	contains(t, v.shown(), "from=10.0.0.0/8 group=web")
	if v.press("esc"); !v.filter.Empty() {
		t.Error("esc keeps the filter")
	}
	// A member's flows.
	v.press("3", "down", "enter")
	if v.pane != flowPane || v.filter.Member != "tcp://10.0.0.2:80" || v.filter.Group != "web" {
		t.Errorf("pane %d, %+v", v.pane, v.filter)
	}
}

func TestPause(t *testing.T) {
	d := newDaemon()
	v := newView(t, 80, 24).busy(d).press("p")
	before := v.status.Uptime
	v.tell(sampleMsg{api.Sample{Uptime: before + 10}})
	if v.status.Uptime != before {
		t.Error("a sample is shown while paused")
	}
	contains(t, v.shown(), "PAUSED")
	v.press("p").tell(sampleMsg{api.Sample{Uptime: before + 10}})
	if v.status.Uptime == before {
		t.Error("it does not go on")
	}
}

// A detail that comes after it was closed does not open it again.
func TestLateDetail(t *testing.T) {
	d := newDaemon()
	v := newView(t, 80, 24).busy(d).press("2", "enter", "esc").tell(detailMsg{FlowDetail: d.flows[0]})
	if v.detail != nil {
		t.Error("it is open again")
	}
	v.press("enter").tell(detailMsg{err: api.NotFound("flow", "1", "")})
	contains(t, v.shown(), "the flow has ended")
}

func TestRates(t *testing.T) {
	a := api.Sample{Uptime: 10, Totals: api.Numbers{BytesUp: 100}, Loops: []api.Loop{{Busy: 1}}, Listeners: []api.ListenerSummary{{Name: "a"}, {Name: "b", Numbers: api.Numbers{Begun: 50}}}}
	b := api.Sample{Uptime: 12, Totals: api.Numbers{BytesUp: 300}, Loops: []api.Loop{{Busy: 2}, {Busy: 9}}, Listeners: []api.ListenerSummary{{Name: "b", Numbers: api.Numbers{Begun: 10}}, {Name: "a", Numbers: api.Numbers{Begun: 4}}, {Name: "c"}}}
	r, ok := ratesOf(&a, &b)
	if !ok || r.Totals.Up != 100 || r.Busy[0] != 0.5 || r.Busy[1] != 0 || r.Listeners["a"].Begun != 2 || r.Listeners["b"].Begun != 0 || len(r.Listeners) != 2 {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := ratesOf(&b, &a); ok {
		t.Error("rates of a daemon that was restarted")
	}
}

func TestSpark(t *testing.T) {
	for _, c := range []struct {
		h     history
		width int
		want  string
	}{{nil, 3, "   "}, {history{1, 2}, 4, "  ▄█"}, {history{0, 1, 1000}, 3, " ▁█"}, {history{9, 9, 0, 4}, 2, " █"}, {history{1}, 0, ""}, {history{1}, -1, ""}, {history{0, 0}, 2, "  "}} {
		if got := sparkline(c.h, c.width, sparks); got != c.want {
			t.Errorf("%v: %q, want %q", c.h, got, c.want)
		}
	}
	var h history
	for i := range 5 * maxHistory {
		h.add(float64(i))
	}
	if len(h) > 2*maxHistory || h[len(h)-1] != 5*maxHistory-1 {
		t.Error(len(h))
	}
}

// A key in the Members pane asks first, and names what the change does to whom.
func TestMemberActions(t *testing.T) {
	d := newDaemon()
	r := newRig(t, d)
	client, err := api.NewClient(r.admin, "")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	v := newView(t, 120, 24).busy(d)
	v.client = client
	v.press("d")
	contains(t, v.shown(), "no member selected")
	v.press("3", "d")
	contains(t, v.shown(), "y/n? drain tcp://10.0.0.1:80: no new flows, 3 open flows go on")
	if v.press("n"); v.prompt != nothing || len(r.changes) != 0 {
		t.Errorf("no is taken for yes: %+v", r.changes)
	}
	do := func(keys ...string) {
		t.Helper()
		before := len(r.changes)
		v.press(keys[:len(keys)-1]...)
		last := keys[len(keys)-1]
		code := []rune(last)[0]
		if last == "enter" {
			code = tea.KeyEnter
		}
		cmd := v.key(tea.KeyPressMsg{Code: code, Text: strings.TrimPrefix(last, "enter")})
		if cmd == nil {
			t.Fatalf("%q does nothing: %s", keys, v.shown())
		}
		v.tell(cmd())
		if len(r.changes) != before+1 {
			t.Fatalf("%q: %d changes", keys, len(r.changes)-before)
		}
	}
	do("d", "y")
	contains(t, v.shown(), "web/tcp://10.0.0.1:80: drained, weight 10, 3 flows")
	v.tell(groupsMsg{Groups: api.Groups{Groups: d.groups}}).press("D")
	contains(t, v.shown(), "y/n? disable tcp://10.0.0.1:80: ENDS 3 open flows, no new ones")
	do("y")
	do("e", "y")
	do("r", "y")
	if c := r.changes[3]; c.State != "file" || c.Weight == nil || *c.Weight != 0 {
		t.Errorf("restore: %+v", c)
	}
	v.press("w", "300")
	v.key(tea.KeyPressMsg{Code: tea.KeyEnter})
	contains(t, v.shown(), "allowed: 1 to 256")
	v.press("backspace")
	do("enter")
	if c := r.changes[4]; c.Weight == nil || *c.Weight != 30 || c.State != "" {
		t.Errorf("weight: %+v", c)
	}
	// The only member of a group.
	v.tell(groupsMsg{Groups: api.Groups{Groups: d.groups}}).press("G", "D")
	contains(t, v.shown(), "ENDS 0 open flows, no new ones; LAST available member of resolvers")
}

// A terminal that is too narrow for a table tells which columns are missing.
func TestNarrowTellsWhatIsHidden(t *testing.T) {
	v := newView(t, 50, 24).busy(newDaemon()).press("2")
	contains(t, v.shown(), "hidden: DOWN, UP, AGE, LISTENER, GROUP, IDLE", " 1  2 Flows  3 ")
	v.tell(tea.WindowSizeMsg{Width: 200, Height: 24})
	if shown := v.shown(); strings.Contains(shown, "hidden:") || !strings.Contains(shown, "LISTENER  GROUP  IDLE") {
		t.Error(shown)
	}
}
