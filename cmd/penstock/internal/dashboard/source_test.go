package dashboard_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay"
)

// house is what the admin server asks, without an engine behind it: what it says
// can be set, and what is asked of it is kept. That a daemon says it is tested
// with the daemon.
type house struct {
	mu          sync.Mutex
	status      api.Status
	listeners   []api.Listener
	groups      []api.Group
	lists       []api.List
	flows       []api.FlowDetail
	ended       []api.EndedFlow
	text        string   // of the configuration
	diff        api.Diff // what a reload would change
	bad         []api.ConfigError
	reloads     int
	differences []api.MemberDifference
	drained     bool
	changes     []string // GROUP/MEMBER STATE
	began       time.Time
	moves       bool // totals grow with time
}

// now is what the house says; the caller may change it while nobody asks.
func (h *house) now(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *house) Status() api.Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.status
	if h.moves {
		at := time.Since(h.began).Seconds()
		st.Totals, st.Loops, st.Latency = flowing(at), turning(at), latencyAt(at)
		st.Totals.Flows += int64(len(h.flows))
	}
	return st
}

// flowing is the totals of a busy daemon, seconds after some moment.
func flowing(at float64) api.Numbers {
	wave := func(mean, swing, period float64) int64 { // the integral of mean + swing*sin
		return int64(mean*at + swing*period*(1-math.Cos(at/period)) + swing/3*period/5*math.Sin(at/period*5))
	}
	return api.Numbers{Flows: int64(9 * math.Sin(at/37) * math.Cos(at/11)), Begun: 184_201 + wave(212, 40, 31), Refused: 1_032 + wave(3, 2, 17), Failed: 77 + wave(0.2, 0, 1),
		BytesUp: 912e9 + wave(41e6, 12e6, 23), BytesDown: 7.4e12 + wave(486e6, 95e6, 29),
		DatagramsUp: 5e8 + wave(18_400, 3_000, 19), DatagramsDown: 7e8 + wave(31_000, 6_000, 27)}
}

// latencyAt is how long connects took until then: most of them around half a millisecond.
func latencyAt(at float64) (l api.Latency) {
	bounds := []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1}
	n := 180_000 + 212*at
	for i, share := range []float64{0.05, 0.3, 0.4, 0.15, 0.06, 0.02, 0.01, 0.005, 0.004, 0.001, 0} {
		l.Connect.Counts = append(l.Connect.Counts, int64(n*share*(1+0.3*math.Sin(at/40+float64(i)))))
		l.FirstByte.Counts = append(l.FirstByte.Counts, int64(n*share*(1+0.5*math.Sin(at/60+2*float64(i)))))
	}
	l.Connect.Bounds, l.FirstByte.Bounds = bounds, bounds
	return l
}

const sampleConfig = `listeners:
  tls:
    listen: tcp://[::]:443
    sniff: {tls: true}
    limits: {flows: 20000}
    routes:
      - {name: api, sni: [api.example.com, "*.api.example.com"], alpn: [h2], to: api}
      - {name: office, from: [10.0.0.0/8, 2001:db8::/32], to: api}
    to: web
  dns:
    listen: udp://192.0.2.1:53
    to: resolvers
`

// endedFlow makes a flow that has ended, of which every value follows from its id.
func endedFlow(id uint64) api.EndedFlow {
	f := flow(id)
	e := api.EndedFlow{ID: id, Kind: f.Kind, Listener: f.Listener, Route: f.Route, Group: f.Group, Member: f.Member, Client: f.Client, Upstream: f.Upstream, SNI: f.SNI,
		End: time.Now().Add(-time.Duration(5000-id) * time.Second), Duration: 12.5, Attempts: 1, Connect: 0.00041, FirstByte: 0.0022, Up: f.Up, Down: f.Down, Cause: "end"}
	switch id % 10 {
	case 2:
		e.Cause, e.Reason, e.Problem, e.Upstream, e.Member, e.Attempts, e.Connect, e.FirstByte = "refused", "no-member", true, relay.Addr{}, "", 0, 0, 0
	case 5:
		e.Cause, e.Problem, e.Error, e.Attempts, e.FirstByte = "connect-timeout", true, "connect: connection timed out", 3, 0
	case 7:
		e.Cause = "idle"
	}
	return e
}

func turning(at float64) (list []api.Loop) {
	for i, share := range []float64{0.34, 0.31, 0.29, 0.41} {
		list = append(list, api.Loop{Flows: int64(31 + i), Busy: at * share, LongestTurn: 0.0012 + 0.0004*float64(i), Events: int64(at * 9000), Waits: int64(at * 4000), Wakeups: int64(at * 900)})
	}
	return list
}

func (h *house) Config() api.Config { return api.Config{ConfigInfo: h.Status().Config, Text: h.text} }

func (h *house) Listeners() []api.Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.listeners)
	for i := range list {
		list[i].Routes = slices.Clone(list[i].Routes)
		h.move(&list[i].Numbers)
		for j := range list[i].Routes {
			r := &list[i].Routes[j]
			h.move(&r.Numbers)
			r.Parts = slices.Clone(r.Parts)
			for k := range r.Parts {
				h.move(&r.Parts[k].Numbers)
			}
		}
	}
	return list
}

// move has a part of the traffic grow as the whole of it does.
func (h *house) move(n *api.Numbers) {
	if !h.moves || n.Flows == 0 {
		return
	}
	at := flowing(time.Since(h.began).Seconds())
	share := float64(n.BytesDown) / float64(flowing(0).BytesDown)
	n.Begun = int64(share * float64(at.Begun))
	n.BytesUp, n.BytesDown = int64(share*float64(at.BytesUp)), int64(share*float64(at.BytesDown))
}

func (h *house) Groups() []api.Group {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.groups)
	for i := range list {
		list[i].Members = slices.Clone(list[i].Members)
		h.move(&list[i].Numbers)
		for j := range list[i].Members {
			h.move(&list[i].Members[j].Numbers)
		}
	}
	return list
}

func (h *house) Counters() admin.Counters { return admin.Counters{} }

// group is called with the lock.
func (h *house) group(name string) (*api.Group, error) {
	for i := range h.groups {
		if h.groups[i].Name == name {
			return &h.groups[i], nil
		}
	}
	return nil, api.NotFound("group", name, "those of the house")
}

func (h *house) AddMember(_ context.Context, group string, m api.NewMember) (api.Members, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.group(group)
	if err != nil {
		return api.Members{}, err
	}
	if !strings.Contains(m.Address, "://") {
		return api.Members{}, api.NewProblem(400, "address: "+api.Quote(m.Address), "a URL, such as tcp://10.0.0.1:80")
	}
	member := api.Member{Name: cmp.Or(m.Name, m.Address), Address: m.Address, State: "up", Available: true, Weight: max(1, m.Weight), Backup: m.Backup, MaxFlows: m.MaxFlows}
	g.Members = append(slices.Clip(g.Members), member)
	g.Changed++
	h.differences = append(h.differences, api.MemberDifference{Group: group, Member: member.Name, What: "added", Fields: []api.FieldDifference{{Name: "to", Running: m.Address}}})
	return api.Members{Members: []api.Member{member}}, nil
}

func (h *house) RemoveMember(group, member string) ([]api.Member, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.group(group)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(g.Members, func(m api.Member) bool { return m.Name == member || m.Address == member })
	if i < 0 {
		return nil, api.NotFound("member", member, "those of the group")
	}
	removed := g.Members[i]
	g.Members = slices.Delete(slices.Clone(g.Members), i, i+1)
	was := len(h.differences)
	h.differences = slices.DeleteFunc(h.differences, func(d api.MemberDifference) bool { return d.Member == removed.Name })
	if len(h.differences) == was {
		h.differences = append(h.differences, api.MemberDifference{Group: group, Member: removed.Name, What: "removed"})
	}
	g.Changed = len(h.differences)
	return []api.Member{removed}, nil
}

func (h *house) Bans() api.Bans { return api.Bans{} }
func (h *house) Ban(_ context.Context, n api.NewBan) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n.Network))
}
func (h *house) Capture(_ context.Context, n api.NewCapture, _ netip.Prefix, tell func(api.CaptureLine) error) error {
	if n.Flow == 1<<40 {
		return api.NotFound("open flow", "1099511627776", "an id of GET /v1/flows")
	}
	return tell(api.CaptureLine{At: time.Now(), Through: time.Now()})
}

func (h *house) Unban(_ context.Context, n string) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n))
}

func (h *house) Lists() api.Lists {
	h.mu.Lock()
	defer h.mu.Unlock()
	return api.Lists{Lists: append([]api.List{}, h.lists...)}
}

// someLists has a list in each state.
func someLists() []api.List {
	return []api.List{
		{Name: "drop", Source: "/etc/penstock/drop.txt", Networks: 1_042, Bytes: 271_528, Hits: 31_337, Loaded: time.Now().Add(-4 * time.Hour)},
		{Name: "partners", Source: "https://lists.example.org/partners.txt", Networks: 12, Bytes: 262_260, Hits: 7, Loaded: time.Now().Add(-40 * time.Hour), Saved: true, Error: "connect: connection refused", Since: time.Now().Add(-5 * time.Minute), Failures: 2},
		{Name: "scanners", Source: "https://lists.example.org/scanners.txt", Networks: 998_877, Bytes: 9_252_041, Hits: 812_345, Loaded: time.Now().Add(-90 * time.Second), BadLines: 2, FirstBad: []string{`line 7: "x" is neither an address nor a network`}},
		{Name: "crowdsec", Source: "http://127.0.0.1:8080", Error: "403 Forbidden", Since: time.Now().Add(-time.Minute), Failures: 6},
		{Name: "office", Source: "etcd /lists/office/"},
	}
}

func (h *house) SetSplit(_ context.Context, listener, route string, change api.SplitChange) (api.Route, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.listeners {
		for i := range l.Routes {
			r := &l.Routes[i]
			if l.Name != listener || r.Name != route {
				continue
			}
			r.Parts = slices.Clone(r.Parts)
			for j := range r.Parts {
				p := &r.Parts[j]
				if w, ok := change.Weights[p.Name]; ok {
					p.Weight = w
				}
				if change.State == "file" {
					p.Weight = p.FileWeight
				}
			}
			h.changes = append(h.changes, fmt.Sprintf("%s/%s %s%v", listener, route, change.State, map[string]int(change.Weights)))
			return *r, nil
		}
	}
	return api.Route{}, api.NotFound("route", route, "those of the house")
}

func (h *house) MemberChanges() api.MemberChanges {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := api.MemberChanges{Changes: append([]api.MemberDifference{}, h.differences...), Splits: []api.SplitDifference{}, YAML: "groups:\n  api: {}\n"}
	for _, l := range h.listeners {
		for _, r := range l.Routes {
			d := api.SplitDifference{Listener: l.Name, Route: r.Name, Fleet: r.FleetWeights}
			for _, p := range r.Parts {
				if p.Weight != p.FileWeight {
					d.Parts = append(d.Parts, api.PartDifference{Name: p.Name, File: p.FileWeight, Running: p.Weight})
				}
			}
			if d.Parts != nil {
				c.Splits = append(c.Splits, d)
			}
		}
	}
	return c
}

func (h *house) SetMember(_ context.Context, group, member string, change api.MemberChange) (changed api.Members, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.groups {
		for i := range g.Members {
			m := &g.Members[i]
			if g.Name != group || m.Name != member && m.Address != member {
				continue
			}
			if change.Weight != nil {
				m.Weight = *change.Weight
			}
			switch change.State {
			case "drain":
				m.State, m.Available = "drained", false
			case "disable":
				m.State, m.Available = "disabled", false
			case "enable", "file":
				m.State, m.Available = "up", true
			}
			h.changes = append(h.changes, fmt.Sprintf("%s/%s %s %d", group, member, change.State, m.Weight))
			changed.Members = append(changed.Members, *m)
		}
	}
	if changed.Members == nil {
		return changed, api.NotFound("member", member, "those of the group")
	}
	return changed, nil
}

func (h *house) Flows(_ context.Context, yield func([]api.Flow) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]api.Flow, len(h.flows))
	for i, f := range h.flows {
		list[i] = f.Flow
	}
	yield(list)
	return nil
}

func (h *house) Flow(_ context.Context, id uint64) (api.FlowDetail, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.flows {
		if f.ID == id {
			return f, true
		}
	}
	return api.FlowDetail{}, false
}

func (h *house) Kill(_ context.Context, ids []uint64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.flows)
	h.flows = slices.DeleteFunc(h.flows, func(f api.FlowDetail) bool { return slices.Contains(ids, f.ID) })
	return int64(before - len(h.flows))
}

func (h *house) Reload(ctx context.Context) (api.Diff, error) {
	d, err := h.FileDiff(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		d.Applied, h.diff = true, api.Diff{}
		h.reloads++
	}
	return d, err
}

func (h *house) FileDiff(context.Context) (api.Diff, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bad != nil {
		return api.Diff{}, api.BadConfig(h.bad)
	}
	return h.diff, nil
}

func (h *house) Ended(problems bool) (list []api.EndedFlow) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.ended {
		if !problems || f.Problem {
			list = append(list, f)
		}
	}
	return list
}

func (h *house) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drained, h.status.State = true, api.StateDraining
}

func (h *house) Diff(context.Context, []byte) (api.Diff, error) { return api.Diff{}, nil }
func (h *house) Level() string                                  { return "info" }
func (h *house) SetLevel(string)                                {}
func (h *house) Draining() api.Drain                            { return api.Drain{State: api.StateReady} }

// Three houses, as they are looked at in the pictures.

func emptyHouse() *house {
	none := api.Histogram{Bounds: []float64{0.001}, Counts: []int64{0, 0}}
	return &house{began: time.Now(), status: api.Status{Version: "v1.2.3", Config: runningConfig(), Sample: api.Sample{State: api.StateReady, Hash: runningConfig().Hash,
		Loops: []api.Loop{{}, {}}, Latency: api.Latency{Connect: none, FirstByte: none}, Resources: api.Resources{MaxFDs: 1 << 19, PipesMax: 4096}, Overload: api.Overload{Resources: []api.OverloadResource{}, Actions: []api.OverloadAction{}}}}}
}

func runningConfig() api.ConfigInfo {
	return api.ConfigInfo{Source: "/etc/penstock/penstock.yaml", Hash: strings.Repeat("9f3c51e07ab2d864", 4), Loaded: time.Now().Add(-26 * time.Hour)}
}

func busyHouse() *house {
	h := emptyHouse()
	h.moves = true
	h.status.Resources = api.Resources{MaxFDs: 1 << 19, PipesOpen: 412, PipesLeased: 57, PipesMax: 4096, HeapBytes: 31 << 20, DatagramHeldBytes: 18_400, CPU: 91_220}
	h.status.Paths = []api.PathCount{{Path: "splice", Directions: 231_400}, {Path: "copy", Why: "small reads", Directions: 118_230}, {Path: "gso", Directions: 40_120},
		{Path: "copy", Why: "one datagram at a time", Directions: 9_014}, {Path: "none", Why: "nothing was sent", Directions: 1_204}}
	part := func(share float64) api.Numbers {
		n := flowing(0)
		for _, v := range []*int64{&n.Begun, &n.Refused, &n.Failed, &n.BytesUp, &n.BytesDown} {
			*v = int64(float64(*v) * share)
		}
		n.Flows = int64(1286 * share)
		return n
	}
	h.listeners = []api.Listener{
		{Name: "tls", Address: "tcp://[::]:443", Kind: "stream", State: "open", Numbers: part(0.8), Routes: []api.Route{
			{Name: "api", Group: "api", SNI: []string{"api.example.com", "*.api.example.com"}, ALPN: []string{"h2"}, Numbers: part(0.5)},
			{Name: "office", Group: "api", From: []string{"10.0.0.0/8", "2001:db8::/32"}, Numbers: part(0.1)},
			{Name: "default", Group: "web", Default: true, Numbers: part(0.2)}}},
		{Name: "dns", Address: "udp://192.0.2.1:53", Kind: "datagram", State: "open", Numbers: part(0.2), Routes: []api.Route{{Name: "default", Group: "resolvers", Default: true, Numbers: part(0.2)}}},
	}
	since := time.Now().Add(-3 * time.Hour)
	member := func(name, at string, share float64) api.Member {
		return api.Member{Name: name, Address: at, State: "up", Since: since, Available: true, Weight: 10, Connects: int64(80_000 * share), Failures: int64(9 * share), ConnectSeconds: 80_000 * share * 0.00041,
			Answers: int64(79_000 * share), FirstByteSeconds: 79_000 * share * 0.0123,
			Check: &api.Check{Time: time.Now(), OK: true, Took: 0.0007, Streak: 5400}, Numbers: part(share)}
	}
	h.text = sampleConfig
	h.diff = api.Diff{Flows: 412, Changes: []api.Change{
		{Kind: "member", Name: "api/api-2", What: "removed", Flows: 412}, {Kind: "listener", Name: "tls", What: "changed", Fields: []string{"limits.flows"}}}}
	h.status.Refusals = []api.Refusal{{Listener: "tls", Reason: "no-member", Count: 12}, {Listener: "tls", Reason: "denied", Count: 1_020}}
	h.status.Latency = latencyAt(0)
	for i := range 40 {
		h.ended = append(h.ended, endedFlow(uint64(5000-i)))
	}
	drained := member("api-3", "tcp://10.20.0.13:8443", 0.05)
	drained.State, drained.Available, drained.Why = "drained", false, "an operator asked for it"
	h.groups = []api.Group{
		{Name: "api", Balance: "p2c", Retries: 31, Queue: api.Queue{Size: 256, QueuedTotal: 210, TimedOut: 2}, Numbers: part(0.6), Members: []api.Member{
			member("api-1", "tcp://10.20.0.11:8443", 0.3), member("api-2", "tcp://10.20.0.12:8443", 0.25), drained}},
		{Name: "web", Balance: "round-robin", Numbers: part(0.2), Members: []api.Member{member("unix:///run/web.sock", "unix:///run/web.sock", 0.2)}},
		{Name: "resolvers", Balance: "hash", Numbers: part(0.2), Members: []api.Member{member("udp://10.20.1.53:53", "udp://10.20.1.53:53", 0.12), member("udp://10.20.2.53:53", "udp://10.20.2.53:53", 0.08)}},
	}
	for i := range 130 {
		h.flows = append(h.flows, flow(uint64(1+i)))
	}
	return h
}

// splitHouse has a route whose clients are split among groups, with weights that the fleet has, and one with the weights of the file.
func splitHouse() *house {
	h := busyHouse()
	share := func(of int64) api.Numbers {
		return api.Numbers{Flows: 9 * of, Begun: 1840 * of, Refused: of / 30, Failed: of / 40, BytesUp: 9e9 * of, BytesDown: 7e10 * of}
	}
	h.listeners = append(h.listeners, api.Listener{Name: "shop", Address: "tcp://[::]:8443", Kind: "stream", State: "open", Numbers: share(100), Routes: []api.Route{
		{Name: "partners", From: []string{"203.0.113.0/24"}, Numbers: share(10), Parts: []api.Part{
			{Name: "blue", Weight: 1, FileWeight: 1, Numbers: share(7)}, {Name: "green", Weight: 1, FileWeight: 1, Numbers: share(3)}}},
		{Name: "default", Default: true, FleetWeights: true, Numbers: share(90), Parts: []api.Part{
			{Name: "blue", Weight: 90, FileWeight: 95, Numbers: share(80)}, {Name: "green", Weight: 10, FileWeight: 5, Numbers: share(10)},
			{Name: "refuse", Refuse: true, FileWeight: 0, Numbers: api.Numbers{Begun: 17, Refused: 17}}}}}})
	for i, name := range []string{"blue", "green"} {
		g := api.Group{Name: name, Balance: "least-flows", Numbers: share([]int64{87, 13}[i])}
		for j := range 2 {
			m := h.groups[1].Members[0]
			m.Name = fmt.Sprintf("%s-%d", name, j+1)
			m.Address = fmt.Sprintf("tcp://10.20.%d.%d:8443", i+2, j+1)
			g.Members = append(g.Members, m)
		}
		h.groups = append(h.groups, g)
	}
	return h
}

func failingHouse() *house {
	h := busyHouse()
	h.status.State = api.StateDraining
	h.status.Config.Failed = &api.FailedReload{Time: time.Now().Add(-time.Minute), Errors: []api.ConfigError{
		{Source: "/etc/penstock/penstock.yaml", Line: 14, Column: 7, Message: `unknown group "bakends"`, Allowed: "api, resolvers, web"},
		{Source: "/etc/penstock/penstock.yaml", Line: 31, Column: 12, Message: `idle_timeout: "5x" is no duration`, Allowed: "a number with its unit such as 30s"}}}
	h.status.Resources = api.Resources{MaxFDs: 1024, FDs: 1011, PipesOpen: 250, PipesMax: 256, PipesRefused: 4_118, DatagramsLost: 90_441, GSOFallbacks: 12, LogLinesDropped: 811, DatagramHeldBytes: 31 << 20, HeapBytes: 212 << 20, CPU: 4000}
	h.lists = someLists()
	h.listeners[0].State = "resting"
	for i := range h.groups[0].Members {
		m := &h.groups[0].Members[i]
		m.State, m.Available, m.Why, m.Flows = "down", false, "connection refused", 0
		m.Failures = 3_120
		m.Check = &api.Check{Time: time.Now(), Took: 0.0002, Error: "connect: connection refused", Streak: 41}
		m.Agent = &api.Agent{Time: time.Now(), Says: "75% up", Error: "connect: connection refused"}
	}
	e := &h.groups[2].Members[0]
	e.State, e.Available, e.Why, e.Until = "ejected", false, "5 of the last 5 flows failed", time.Now().Add(30*time.Second)
	h.groups[0].Queue.Flows, h.groups[0].Queue.Full = 256, 3_310
	return h
}

// flow makes a flow of which every number follows from its id.
func flow(id uint64) api.FlowDetail {
	tcp := func(ip string) relay.Addr {
		return relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort(ip)}
	}
	f := api.FlowDetail{Flow: api.Flow{ID: id, Kind: "stream", State: "relaying", Listener: "tls", Route: "api", Group: "api", Member: fmt.Sprintf("api-%d", 1+id%2),
		Client: tcp(fmt.Sprintf("198.51.100.%d:%d", id%250, 40000+id)), Upstream: tcp(fmt.Sprintf("10.20.0.%d:8443", 11+id%2)), SNI: "api.example.com",
		Start: time.Now().Add(-time.Duration(id) * time.Second), Age: float64(id), Idle: float64(id % 7),
		Up:   api.Transfer{Bytes: int64(id * id * 1000), Path: "copy", Why: "small reads"},
		Down: api.Transfer{Bytes: int64(id * id * 90_000), Spliced: int64(id * id * 80_000), Path: "splice"}},
		ALPN: []string{"h2", "http/1.1"}, Loop: int(id % 4), Local: tcp("192.0.2.1:443"), Peer: tcp("198.51.100.1:40001"), Attempts: 1, Connect: 0.00043, FirstByte: 0.0021,
		IdleLimit: 300, RateLimit: 50_000_000,
		ClientTCP:   &api.TCPInfo{State: "established", RTT: 0.0241, RTTVar: 0.0032, MinRTT: 0.0228, Retransmits: 17, Cwnd: 84, MSS: 1448, Unacked: 12, Unsent: 48_211, PacingRate: 9_100_000, DeliveryRate: 4_900_000, RecvSpace: 65_483, Congestion: "bbr"},
		UpstreamTCP: &api.TCPInfo{State: "established", RTT: 0.00021, RTTVar: 0.00004, MinRTT: 0.00015, Cwnd: 10, MSS: 8948, PacingRate: 410_000_000, DeliveryRate: 212_000_000, RecvSpace: 131_072, Congestion: "cubic"}}
	if id%10 == 9 {
		f.Kind, f.Listener, f.Route, f.Group, f.Member, f.SNI, f.ALPN = "datagram", "dns", "default", "resolvers", "udp://10.20.1.53:53", "", nil
		f.Client.Network, f.Upstream = relay.UDP, relay.Addr{Network: relay.UDP, AddrPort: netip.MustParseAddrPort("10.20.1.53:53")}
		f.Up, f.Down = api.Transfer{Bytes: 512, Datagrams: 8, Path: "copy", Why: "one datagram at a time"}, api.Transfer{Bytes: 4096, Datagrams: 8, DatagramsDropped: 1, Path: "gso"}
		f.ClientTCP, f.UpstreamTCP = nil, nil
	}
	return f
}

// biggest are the ids of flows that a filter chooses, in the order of bytes.
func (h *house) biggest(f api.Filter) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.flows)
	slices.SortFunc(list, func(a, b api.FlowDetail) int {
		return cmp.Or(cmp.Compare(b.Bytes(), a.Bytes()), cmp.Compare(a.ID, b.ID))
	})
	for _, d := range list {
		if f.Match(&d.Flow) {
			ids = append(ids, fmt.Sprint(d.ID))
		}
	}
	return ids
}

// crowdedHouse has a group with a thousand members, of which each fortieth is down.
func crowdedHouse() *house {
	h := busyHouse()
	h.moves = false
	g := &h.groups[0]
	one := g.Members[0]
	g.Members = nil
	for i := range 1000 {
		m := one
		m.Name, m.Address = fmt.Sprintf("api-%d", i+1), fmt.Sprintf("tcp://10.20.%d.%d:8443", i/250, i%250+1)
		m.Flows = int64(i * 7 % 1000)
		if i%40 == 39 {
			m.State, m.Available, m.Why = "down", false, "connection refused"
		}
		g.Members = append(g.Members, m)
	}
	return h
}

// Upgrade makes two steps.
func (h *house) Upgrade(_ context.Context, u api.Upgrade, step func(api.UpgradeStep)) error {
	step(api.UpgradeStep{Step: "checking " + u.Binary})
	step(api.UpgradeStep{Step: "good", Done: true})
	return nil
}
