package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/destination"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// The admin server asks the daemon.
var _ admin.Source = (*daemon)(nil)

// Status returns the state of the daemon.
func (d *snapshot) Status() api.Status {
	f, stats := d.active.Load(), d.keeping.Values.ContinueEngine(d.engine.Stats())
	s := api.Status{Version: version(), PID: os.Getpid(), Started: d.started, Config: d.configStatus(f)}
	s.State, s.Hash = d.Draining().State, s.Config.Hash
	points := d.points()
	begun := int64(0)
	refused := refusals{}
	for i := range points {
		addNumbers(&s.Totals, &points[i])
		begun += points[i].Begun
		refused.add(&points[i])
		addLatency(&s.Latency, &points[i])
	}
	for _, r := range refused.list() {
		s.Refusals = append(s.Refusals, api.Refusal{Listener: r.listener, Reason: r.reason.String(), Count: refused[r]})
	}
	s.Totals.Begun = begun // never less than before: see Listeners
	s.Totals.Flows = stats.Flows()
	for i := range stats.Loops {
		l := &stats.Loops[i]
		s.Loops = append(s.Loops, api.Loop{Flows: l.Flows, Busy: l.Busy.Seconds(), Events: l.Events, Waits: l.Waits, Wakeups: l.Wakeups, LongestTurn: l.LongestTurn.Seconds()})
	}
	total := stats.Total()
	journal, access := d.hooks.Accounting.Dropped()
	s.Resources = api.Resources{
		MaxFDs:            host.MaxDescriptors(),
		CPU:               host.CPUTime().Seconds(),
		PipesOpen:         stats.PipesOpen,
		PipesLeased:       stats.PipesLeased,
		PipesMax:          stats.PipesMax,
		PipesRefused:      stats.PipesRefused,
		DatagramsLost:     total.Datagrams.Lost,
		DatagramsDropped:  drops(&total.Datagrams),
		GSOFallbacks:      total.Datagrams.Fallbacks,
		DatagramHeldBytes: total.Datagrams.BytesHeld,
		LogLinesDropped:   journal + access,
		TLSFlows:          d.hooks.TLS.Now(),
	}
	s.Names = d.names()
	s.QUIC = d.quic()
	s.Overload = d.overload(&stats)
	s.Paths = paths(points)
	s.Keeper = d.keeping.Status(&stats)
	s.Sandbox = d.sandboxed.Status()
	s.KernelTLS = d.kernelTLS.status()
	s.Fleet = d.fleet.status()
	return s
}

// names returns what the cache of names has; nil: no group has a destination, and none had.
func (d *daemon) names() *api.Names {
	n := d.hooks.Names.Counts()
	if n == (destination.Counts{}) && !slices.ContainsFunc(d.active.Load().Groups, func(g *spec.Group) bool { return g.Destination != nil }) {
		return nil
	}
	return &api.Names{
		Found: n.Found, NotFound: n.NotFound, Failed: n.Failed, Hits: n.Hits, Waits: n.Waits, Limited: n.Limited, Evicted: n.Evicted,
		Names: n.Names, Failures: n.Failures, Lookups: n.Lookups, Queued: n.Queued, Flows: n.Flows,
	}
}

// quic returns what is known of clients of QUIC that have moved; nil: there were none, and no IDs are known.
func (d *daemon) quic() *api.QUIC {
	q := api.QUIC{IDs: d.hooks.QUICIDs()}
	if q.ServerID, q.Learned, q.Unknown = d.hooks.QUICCounts.Load(); q == (api.QUIC{}) {
		return nil
	}
	return &q
}

// drops returns the numbers of dropped datagrams that are not 0.
func drops(d *stats.Datagrams) (list []api.DatagramDrop) {
	for reason, n := range d.Dropped.All() {
		if n > 0 {
			list = append(list, api.DatagramDrop{Reason: reason.String(), Count: n})
		}
	}
	return list
}

// A snapshot answers from one reading of the counters and of all open flows, which is expensive
// when there are many. It is not safe for concurrent use.
type snapshot struct {
	*daemon
	points func() []account.Point
}

// Snapshot returns an observer of the daemon's present state. It reads the counters when it first
// needs them.
func (d *daemon) Snapshot() admin.Observer { return d.snapshot() }

func (d *daemon) snapshot() *snapshot { return &snapshot{d, sync.OnceValue(d.readCounters)} }

// readCounters reads the counters, including what open flows have moved so far.
func (d *daemon) readCounters() []account.Point {
	return d.hooks.Accounting.Counters().Snapshot(nil, d.liveVolumes)
}

// Status, Listeners, Groups and Counters return the present state.
func (d *daemon) Status() api.Status        { return d.snapshot().Status() }
func (d *daemon) Listeners() []api.Listener { return d.snapshot().Listeners() }
func (d *daemon) Groups() []api.Group       { return d.snapshot().Groups() }
func (d *daemon) Counters() admin.Counters  { return d.snapshot().Counters() }

// addNumbers adds the numbers of a series to n.
func addNumbers(n *api.Numbers, p *account.Point) {
	n.Flows += p.Open()
	n.Begun += p.Begun + p.MovedIn
	for c, count := range p.Ended {
		switch cause := relay.Cause(c); {
		case cause == relay.CauseRefused:
			n.Refused += count
		case (&account.Entry{Record: relay.Record{Cause: cause}}).Failed():
			n.Failed += count
		}
	}
	n.BytesUp += p.Up.Bytes
	n.BytesDown += p.Down.Bytes
	n.DatagramsUp += p.Up.Datagrams
	n.DatagramsDown += p.Down.Datagrams
}

// paths adds up the data paths of the directions of ended flows.
func paths(points []account.Point) []api.PathCount {
	var sum account.Direction
	for i := range points {
		for _, w := range []*account.Direction{&points[i].Up, &points[i].Down} {
			for j, n := range w.Paths {
				sum.Paths[j] += n
			}
			for j, n := range w.Whys {
				sum.Whys[j] += n
			}
		}
	}
	list := []api.PathCount{}
	for i, n := range sum.Paths {
		path := datapath.Path(i)
		if n == 0 || path == datapath.None {
			continue
		}
		if path != datapath.Copy {
			list = append(list, api.PathCount{Path: path.String(), Directions: n})
			continue
		}
		for j, n := range sum.Whys {
			if n > 0 {
				list = append(list, api.PathCount{Path: path.String(), Why: datapath.Why(j).String(), Directions: n})
			}
		}
	}
	return list
}

// refusal is a reason of the daemon's at a listener.
type refusal struct {
	listener string
	reason   spec.Reason
}

// refusals count the flows that were refused, or ended, for a reason of the daemon's.
type refusals map[refusal]int64

func (r refusals) add(p *account.Point) {
	for reason, n := range p.Reasons {
		if n > 0 {
			r[refusal{p.Listener, spec.Reason(reason)}] += n
		}
	}
}

// list returns what is counted, in an order that stays.
func (r refusals) list() []refusal {
	return slices.SortedFunc(maps.Keys(r), func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.listener, b.listener), cmp.Compare(a.reason, b.reason))
	})
}

func addLatency(l *api.Latency, p *account.Point) {
	addTimes(&l.Connect, &p.Connect)
	addTimes(&l.FirstByte, &p.FirstByte)
}

// addTimes adds a histogram up, whose bounds are always the same.
func addTimes(sum *api.Histogram, h *account.Histogram) {
	if sum.Counts == nil {
		for _, b := range h.Bounds {
			sum.Bounds = append(sum.Bounds, b.Seconds())
		}
		sum.Counts = make([]int64, len(h.Bounds)+1)
	}
	for i := range sum.Counts {
		sum.Counts[i] += h.Counts[i]
	}
	sum.Sum += h.Sum.Seconds()
}

func (d *daemon) configStatus(f *activeConfig) api.ConfigInfo {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	return api.ConfigInfo{Source: f.Source, Hash: spec.HashOf(f.Text), Loaded: f.since, Failed: d.reloads.failed, Remote: d.reloads.remotes.Status()}
}

// Config returns the running configuration. Tokens are in files of their own and not part of it, and
// variables are shown as written: their values may be secrets.
func (d *daemon) Config() api.Config {
	f := d.active.Load()
	return api.Config{ConfigInfo: d.configStatus(f), Text: withoutKeys(string(f.Written), f.Groups)}
}

// withoutKeys returns the text of a configuration without the keys of connection IDs of QUIC, which may be in it.
func withoutKeys(text string, groups []*spec.Group) string {
	for _, g := range groups {
		if g.QUIC == nil {
			continue
		}
		for i := range g.QUIC.IDs {
			if key := g.QUIC.IDs[i].Key; key != "" {
				text = regexp.MustCompile(fmt.Sprintf("(?i)%x", key)).ReplaceAllString(text, "[secret]")
			}
		}
	}
	return text
}

// Listeners returns the listeners in the order of the file.
func (d *snapshot) Listeners() []api.Listener {
	d.mu.Lock()
	f, bound := d.active.Load(), d.listening.bound
	d.mu.Unlock()
	byRoute := map[hooks.Names]api.Numbers{} // by group, too, and of all groups together
	// A flow that moves from one series to another during the reading is counted
	// in both or in none, but the flows begun in a listener's series only grow.
	begun := map[string]int64{}
	spoken := map[string]*[spec.NumProtocols + 1]int64{}
	points := d.points()
	for i := range points {
		k := points[i].Key
		begun[k.Listener] += points[i].Begun
		for protocol, n := range points[i].Protocols {
			if n == 0 {
				continue
			}
			if spoken[k.Listener] == nil {
				spoken[k.Listener] = new([spec.NumProtocols + 1]int64)
			}
			spoken[k.Listener][protocol] += n
		}
		for _, at := range [...]hooks.Names{{Listener: k.Listener, Route: k.Route, Group: everyGroup}, {Listener: k.Listener, Route: k.Route, Group: k.Group}} {
			n := byRoute[at]
			addNumbers(&n, &points[i])
			byRoute[at] = n
		}
	}
	state := "open"
	if d.Draining().State == api.StateDraining {
		state = "closed"
	}
	stats := d.engine.Stats()
	list := []api.Listener{}
	for _, l := range f.Listeners {
		out := api.Listener{Name: l.Name, Kind: "stream", State: state, Routes: []api.Route{}, ProxyProtocol: len(l.ProxyFrom) > 0}
		if l.Datagrams {
			out.Kind = "datagram"
		} else if state == "open" && stats.LoopsPaused > 0 {
			out.State = "resting"
		}
		if p := bound[bindKeyOf(l, 0)]; p != nil {
			out.Address = spec.URL(p.Addr(), l.Listen.Ports())
		} else { // this relay is drained
			out.Address, out.State = l.Listen.String(), "closed"
		}
		for k, n := range byRoute {
			if k.Listener == l.Name && k.Group == everyGroup {
				addTotals(&out.Numbers, &n)
			}
		}
		out.Begun = begun[l.Name]
		out.Protocols = protocolCounts(spoken[l.Name])
		for _, r := range l.AllRoutes() {
			to := api.Route{
				Name: r.Name, From: prefixTexts(r.From), SNI: r.SNI, ALPN: r.ALPN, ClientNames: r.ClientNames,
				Protocols: r.Protocols, Prefixes: r.PrefixTexts(), Hosts: r.Hosts, Silence: r.Silence.Seconds(), PassTLS: r.PassTLS, Default: r == l.Default,
				Numbers: byRoute[hooks.Names{Listener: l.Name, Route: r.Name, Group: everyGroup}],
			}
			to.Group, to.Parts = partsOf(f.plans[l.Name], r, func(group string) api.Numbers {
				return byRoute[hooks.Names{Listener: l.Name, Route: r.Name, Group: group}]
			})
			if to.Parts != nil {
				_, to.FleetWeights = d.splits.weights(l.Name, r)
			}
			out.Routes = append(out.Routes, to)
		}
		out.Certificates, out.FailingFiles, out.CertificateFailures = certificatesOf(f.plans[l.Name])
		list = append(list, out)
	}
	return list
}

// protocolCounts returns the protocols that clients have spoken.
func protocolCounts(counts *[spec.NumProtocols + 1]int64) (list []api.ProtocolCount) {
	if counts == nil {
		return nil
	}
	for i, n := range counts {
		switch {
		case n == 0:
		case i < spec.NumProtocols:
			list = append(list, api.ProtocolCount{Protocol: spec.Protocols[i], Count: n})
		default:
			list = append(list, api.ProtocolCount{Protocol: "unknown", Count: n})
		}
	}
	return list
}

func addTotals(n, m *api.Numbers) {
	n.Flows += m.Flows
	n.Begun += m.Begun
	n.Refused += m.Refused
	n.Failed += m.Failed
	n.BytesUp += m.BytesUp
	n.BytesDown += m.BytesDown
	n.DatagramsUp += m.DatagramsUp
	n.DatagramsDown += m.DatagramsDown
}

func prefixTexts(ps []spec.Network) []string {
	var list []string
	for _, p := range ps {
		list = append(list, p.String())
	}
	return list
}

// everyGroup stands for all groups of a route, and for its refused clients. No group can have this name.
const everyGroup = "(all)"

// partsOf returns where a route leads: a group, or its parts, with the numbers of each, and the weights that they have now.
func partsOf(plan *hooks.Plan, r *spec.Route, numbers func(group string) api.Numbers) (group string, parts []api.Part) {
	if len(r.To) == 1 && !r.To[0].Refuse {
		return r.To[0].Name(), nil
	}
	weights := plan.Weights(r)
	for i := range r.To {
		p := &r.To[i]
		group := p.Name()
		if p.Refuse {
			group = "" // its flows have none
		}
		parts = append(parts, api.Part{Name: p.Name(), Refuse: p.Refuse, Weight: weights[i], FileWeight: p.Weight, Numbers: numbers(group)})
	}
	return "", parts
}

// Groups returns the groups in the order of the file.
func (d *snapshot) Groups() []api.Group {
	f := d.active.Load()
	type key struct{ group, member string }
	byMember := map[key]api.Numbers{}
	retries := map[string]int64{}
	ended := map[string]*[spec.NumReasons]int64{}
	latency := map[string]*api.Latency{}
	points := d.points()
	for i := range points {
		p := &points[i]
		k := key{p.Group, p.Member}
		n := byMember[k]
		addNumbers(&n, p)
		byMember[k] = n
		retries[p.Group] += p.Retries
		if latency[p.Group] == nil {
			latency[p.Group] = &api.Latency{}
		}
		addLatency(latency[p.Group], p)
		if ended[p.Group] == nil {
			ended[p.Group] = new([spec.NumReasons]int64)
		}
		for r, n := range p.Reasons {
			ended[p.Group][r] += n
		}
	}
	snaps := map[string]*upstream.GroupSnapshot{}
	all := d.set.Snapshot()
	for i := range all {
		snaps[all[i].Name] = &all[i]
	}
	list := []api.Group{}
	for _, g := range f.Groups {
		out := api.Group{Name: g.Name, Balance: g.Balance, Destination: g.Destination.String(), Retries: retries[g.Name], Members: []api.Member{}}
		out.Queue.Size = g.Queue.Size
		if l := latency[g.Name]; l != nil {
			out.Latency = *l
		}
		if e := ended[g.Name]; e != nil {
			out.Queue.TimedOut, out.Queue.Full = e[spec.ReasonQueueTimeout], e[spec.ReasonQueueFull]
		}
		for k, n := range byMember {
			if k.group == g.Name {
				addTotals(&out.Numbers, &n)
			}
		}
		if snap := snaps[g.Name]; snap != nil {
			out.Panic = snap.Panic
			out.Queue.Flows, out.Queue.QueuedTotal = snap.Queued, int64(snap.QueuedTotal)
			out.DownKept = int64(snap.DownKept)
			out.Changed = len(snap.Differences)
			for _, l := range snap.Lookups {
				out.Lookups = append(out.Lookups, api.Lookup{
					Name: l.Name, Registry: l.Registry, Members: l.Targets, LeftOut: l.LeftOut, Failures: int64(l.Failures), Time: l.At, GoodTime: l.GoodAt, Error: l.Err,
				})
			}
			for i := range snap.Members {
				m := &snap.Members[i]
				out.Members = append(out.Members, member(m, byMember[key{g.Name, m.Name}]))
			}
		}
		list = append(list, out)
	}
	return list
}

// member converts a member for the API.
func member(m *upstream.MemberSnapshot, n api.Numbers) api.Member {
	out := api.Member{
		Name: m.Name, Address: spec.URL(m.Addr, m.Ports), State: strings.ReplaceAll(m.State.String(), " ", "-"), Why: m.Why, Since: m.Since,
		Available: m.AcceptsFlows, Weight: m.Weight, Backup: m.Backup, Zone: m.Zone, Priority: m.Priority, Draining: m.Draining, Health: string(m.Health), Discovered: m.Discovered, MaxFlows: m.MaxFlows,
		Connects: int64(m.Connects), Failures: int64(m.Failures), ConnectSeconds: m.ConnectTime.Seconds(),
		Answers: int64(m.Answers), FirstByteSeconds: m.AnswerTime.Seconds(), Numbers: n,
	}
	out.Flows = int64(m.Active)
	if m.Metadata != "" && json.Valid([]byte(m.Metadata)) {
		out.Metadata = json.RawMessage(m.Metadata)
	}
	if m.State == upstream.Ejected {
		out.Until = m.Until
	}
	if !m.Checked.IsZero() {
		out.Check = &api.Check{Time: m.Checked, OK: m.CheckErr == "", Took: m.CheckTook.Seconds(), Error: m.CheckErr, Streak: m.Streak, CertificateExpires: m.Expires}
	}
	if !m.AgentAt.IsZero() || m.AgentSays+m.AgentErr != "" {
		out.Agent = &api.Agent{Time: m.AgentAt, Says: m.AgentSays, Error: m.AgentErr}
	}
	return out
}

// Counters returns the numbers for metrics.
func (d *snapshot) Counters() admin.Counters {
	engine, logs := d.reportValues(d.engine.Stats())
	c := admin.Counters{Points: d.points(), Engine: engine, Logs: logs}
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	c.Reloads, c.FailedReloads = d.keeping.Values.GoOn(reloadsGood, d.reloads.good), d.keeping.Values.GoOn(reloadsBad, d.reloads.bad)
	return c
}
