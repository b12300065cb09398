package admin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// synthetic is a source that no engine is behind: so many flows, of which every
// number follows from the flow's id, and groups with so many members. It stands
// for what package app gives; that a real daemon gives it is tested there.
type synthetic struct {
	flows, members int

	mu      sync.Mutex
	killed  []uint64
	changes []api.MemberChange
	added   []api.NewMember
	level   string
	drained bool
	walked  func() // called for each slice
	bad     []api.ConfigError
	moves   bool         // each flow moves ten times its id in bytes between two listings
	moved   atomic.Int64 // bytes that flow 1 has moved in all listings
}

var epoch = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func (s *synthetic) Status() api.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := api.Status{Version: "v1.2.3", Config: api.ConfigInfo{Source: "/etc/penstock.yaml", Hash: strings.Repeat("ab", 32), Loaded: epoch}}
	st.Fleet = &api.Fleet{Source: "etcd://10.0.0.1:2379/penstock/edge", Node: "relay-1", Present: true, Since: epoch, Reported: epoch, Reports: 17, Failures: 2, SharedMembers: 12, CheckedMembers: 3}
	st.Config.Remote = []api.RemoteConfig{{Source: "etcd://10.0.0.1:2379/penstock/edge", Version: "12", Published: epoch, Trial: true, Saved: "/var/lib/penstock/config-1234.yaml", Error: "connection refused", Since: epoch,
		Refused: &api.RefusedVersion{Version: "13", Error: "listeners.web: invalid port", Time: epoch}}}
	if s.bad != nil {
		st.Config.Failed = &api.FailedReload{Time: epoch, Errors: s.bad}
	}
	st.Hash = st.Config.Hash
	st.State = api.StateReady
	if s.drained {
		st.State = api.StateDraining
	}
	st.Totals = s.numbers()
	st.Loops = []api.Loop{{Flows: int64(s.flows), Busy: 1.5, LongestTurn: 0.002, Events: 30, Waits: 20, Wakeups: 10}, {}}
	st.Resources = api.Resources{MaxFDs: 1 << 20, PipesOpen: 4, PipesLeased: 2, PipesMax: 256, PipesRefused: 1, DatagramsLost: 3, GSOFallbacks: 2, DatagramHeldBytes: 100, LogLinesDropped: 7, CPU: 12.5}
	st.QUIC = &api.QUIC{IDs: 9, ServerID: 5, Learned: 4, Unknown: 3}
	st.Names = &api.Names{Found: 40, NotFound: 3, Failed: 2, Hits: 900, Waits: 45, Limited: 1, Evicted: 1, Names: 12, Failures: 2, Lookups: 1, Queued: 1, Flows: 2}
	st.Overload = api.Overload{Resources: []api.OverloadResource{{Name: "memory", Limit: 96 << 20, Use: 90 << 20, Pressure: 0.94, Source: "/sys/fs/cgroup/memory.max"}},
		Actions: []api.OverloadAction{{Name: "no-new-streams", Resource: "memory", Threshold: 0.85, Active: true, Count: 12}}}
	st.Sandbox = &api.Sandbox{Mode: "on", Layers: []api.SandboxLayer{{Name: "seccomp", Held: true, Wanted: true}, {Name: "user", Why: "no user is named"}}}
	st.Resources.DatagramsDropped = []api.DatagramDrop{{Reason: "no-room", Count: 3}}
	st.Refusals = []api.Refusal{{Listener: "web", Reason: "denied", Count: 9}, {Listener: "web", Reason: "no-member", Count: 1}}
	st.Latency.Connect = api.Histogram{Bounds: []float64{0.001, 0.1}, Counts: []int64{5, 2, 1}, Sum: 0.5}
	st.Keeper = &api.Keeper{PID: 4700, Up: true, Since: epoch, Worker: 4711, WorkerSince: epoch, Healthy: true, Flows: 800, Errors: 2, Held: 830, Pause: 0.08,
		Starts: []api.StartCount{{Reason: "crash", Count: 1}},
		Last:   &api.WorkerStart{Number: 1, Time: epoch, Reason: "crash", Cause: "signal 9", Version: "v1.2.3", Pause: 0.08, RestoredFlows: api.RestoredFlows{Restored: 812}},
		Total:  api.RestoredFlows{Restored: 812, Holding: 5, Bytes: 70000, Lost: []api.LostFlows{{Reason: "unsettled", Count: 3}}}}
	st.Paths = []api.PathCount{{Path: "splice", Directions: 10}, {Path: "copy", Why: "small reads", Directions: 5}}
	return st
}

func (s *synthetic) numbers() api.Numbers {
	return api.Numbers{Flows: int64(s.flows), Begun: 1000, Refused: 10, Failed: 5, BytesUp: 1 << 40, BytesDown: 1 << 41, DatagramsUp: 7, DatagramsDown: 8}
}

const configText = "admin: {listen: tcp://127.0.0.1:0, token: " + token + "}\n"

func (s *synthetic) Config() api.Config {
	return api.Config{ConfigInfo: s.Status().Config, Text: configText}
}

func (s *synthetic) Listeners() []api.Listener {
	return []api.Listener{{Name: "web", Address: "tcp://127.0.0.1:8443", Kind: "stream", State: "open", Numbers: s.numbers(), Routes: []api.Route{
		{Name: "api", Group: "backends", From: []string{"10.0.0.0/8"}, SNI: []string{"api.example.com"}, ALPN: []string{"h2"}, Numbers: s.numbers()},
		{Name: "default", Group: "backends", Default: true, Numbers: s.numbers()},
		{Name: "canary", Parts: []api.Part{{Name: "backends", Weight: 95, FileWeight: 90, Numbers: s.numbers()}, {Name: "refuse", Refuse: true, Weight: 5, FileWeight: 5}}, Numbers: s.numbers()},
	}, Protocols: []api.ProtocolCount{{Protocol: "ssh", Count: 3}, {Protocol: "unknown", Count: 1}}, Certificates: []api.Certificate{{File: "/etc/a.pem", Names: []string{"a.example"}, Key: "ECDSA", Issuer: "CN=ca", Serial: "1f", NotBefore: time.Unix(1e9, 0), Expires: time.Unix(2e9, 0), Stapled: true, StapleExpires: time.Unix(2e9, 0)}},
		FailingFiles: []string{"/etc/b.pem"}, CertificateFailures: 2}, {Name: "dns", Address: "udp://127.0.0.1:5353", Kind: "datagram", State: "resting", ProxyProtocol: true}}
}

func (s *synthetic) Groups() []api.Group {
	g := api.Group{Name: "backends", Balance: "p2c", Queue: api.Queue{Size: 100, Flows: 1, QueuedTotal: 3, TimedOut: 1, Full: 2}, Retries: 4, DownKept: 12, Numbers: s.numbers(),
		Lookups: []api.Lookup{{Name: "tcp://app.test:80", Members: 2, Failures: 3, Time: epoch, GoodTime: epoch, Error: "no such host"}}}
	for i := range s.members {
		m := api.Member{Name: memberName(i), Address: memberName(i), State: "up", Since: epoch, Available: true, Weight: 10, Connects: 100, Failures: 2, ConnectSeconds: 0.5, Answers: 90, FirstByteSeconds: 1.5, Numbers: s.numbers()}
		if i%3 == 1 {
			m.State, m.Available, m.Why = "down", false, "connection refused"
			m.Check = &api.Check{Time: epoch, Took: 0.1, Error: "connection refused", Streak: 3, CertificateExpires: epoch.Add(90 * 24 * time.Hour)}
			m.Agent = &api.Agent{Time: epoch, Says: "75% up", Error: "connection refused"}
		}
		if i%3 == 2 {
			m.State, m.Available, m.Until = "ejected", false, epoch.Add(time.Minute)
		}
		g.Members = append(g.Members, m)
	}
	return []api.Group{g, {Name: "empty", Balance: "first"}}
}

func memberName(i int) string { return fmt.Sprintf("tcp://10.%d.%d.%d:80", i>>16, i>>8&255, i&255) }

func (s *synthetic) Counters() Counters {
	bounds := []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	h := account.Histogram{Bounds: bounds, Count: 15, Sum: 20 * time.Second}
	copy(h.Counts[:], []int64{1, 2, 3, 4, 5})
	c := Counters{
		Engine: stats.Engine{PipesOpen: 4, PipesLeased: 2, PipesMax: 256, PipesRefused: 1, Loops: []stats.Loop{{AcceptErrors: 2, AcceptPauses: 1, BytesSpliced: 1 << 39, BytesDropped: 3}}},
		Logs:   []LogCounters{{"log", 0, 5}, {"access", 7, 0}}, Reloads: 3, FailedReloads: 1,
	}
	c.Engine.Loops[0].Datagrams = stats.Datagrams{Lost: 3, Runs: 6, SuperPackets: 5, ICMPErrors: 4, Fallbacks: 2, BytesHeld: 100}
	c.Engine.Buffers.Classes = slices.Grow(c.Engine.Buffers.Classes, 1)[:1]
	for i := range s.members {
		p := account.Point{Key: account.Key{Listener: "web", Route: "default", Group: "backends", Member: memberName(i)}, Begun: 14}
		p.Ended[relay.CauseEnd], p.Ended[relay.CauseIdle], p.Ended[relay.CauseUpstreamReset] = 10, 1, 1
		p.Up.Volume, p.Down.Volume = account.Volume{Bytes: 1 << 30, Datagrams: 1}, account.Volume{Bytes: 1 << 31, Datagrams: 2}
		if i == 0 {
			p.Connect, p.FirstByte, p.Duration = h, h, h
		}
		c.Points = append(c.Points, p)
	}
	past := account.Point{Key: account.Key{Listener: "web", Route: "default", Group: "backends", Member: account.Gone}, Begun: 2}
	past.Ended[relay.CauseEnd] = 2
	past.Up.Volume, past.Connect = account.Volume{Bytes: 1 << 20, Datagrams: 1}, h
	c.Points = append(c.Points, past)
	return c
}

func (s *synthetic) AddMember(_ context.Context, group string, m api.NewMember) (api.Members, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group != "backends" {
		return api.Members{}, api.NotFound("group", group, "backends, empty")
	}
	s.added = append(s.added, m)
	return api.Members{Members: []api.Member{{Name: m.Name, Address: m.Address, State: "up", Weight: 1, Available: true}}}, nil
}

func (s *synthetic) RemoveMember(group, member string) ([]api.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group != "backends" || member != memberName(0) {
		return nil, api.NotFound("member", member, "")
	}
	return s.Groups()[0].Members[:1], nil
}

func (s *synthetic) Bans() api.Bans { return api.Bans{} }
func (s *synthetic) Ban(_ context.Context, n api.NewBan) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n.Network))
}
func (s *synthetic) Capture(_ context.Context, n api.NewCapture, _ netip.Prefix, tell func(api.CaptureLine) error) error {
	if n.Flow == 1<<40 {
		return api.NotFound("open flow", "1099511627776", "an id of GET /v1/flows")
	}
	return tell(api.CaptureLine{At: time.Now(), Through: time.Now()})
}

func (s *synthetic) Unban(_ context.Context, n string) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n))
}

func (s *synthetic) Lists() api.Lists {
	return api.Lists{Lists: []api.List{{Name: "bad", Source: "/etc/penstock/bad.txt", Networks: 3, Bytes: 262171, Hits: 7, Loaded: time.Unix(1.7e9, 0).UTC(), Saved: true, BadLines: 1, FirstBad: []string{"line 2: x"}, Failures: 2}}}
}

func (s *synthetic) SetSplit(_ context.Context, listener, route string, change api.SplitChange) (api.Route, error) {
	r := s.Listeners()[0].Routes[2]
	if listener != "web" || route != r.Name {
		return api.Route{}, api.NotFound("route", route, "")
	}
	for i := range r.Parts {
		if w, ok := change.Weights[r.Parts[i].Name]; ok {
			r.Parts[i].Weight = w
		}
	}
	return r, nil
}

func (s *synthetic) MemberChanges() api.MemberChanges {
	return api.MemberChanges{YAML: "groups:\n", Splits: []api.SplitDifference{{Listener: "web", Route: "canary", Parts: []api.PartDifference{{Name: "backends", File: 90, Running: 95}}}}, Changes: []api.MemberDifference{
		{Group: "backends", Member: "new", What: "added", Fields: []api.FieldDifference{{Name: "to", Running: "tcp://10.0.0.9:80"}}},
	}}
}

func (s *synthetic) SetMember(_ context.Context, group, member string, change api.MemberChange) (api.Members, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group != "backends" {
		return api.Members{}, api.NotFound("group", group, "backends, empty")
	}
	for i := range s.members {
		if memberName(i) == member {
			s.changes = append(s.changes, change)
			m := s.Groups()[0].Members[i]
			if change.Weight != nil {
				m.Weight = *change.Weight
			}
			m.State = "drained"
			return api.Members{Members: []api.Member{m}}, nil
		}
	}
	return api.Members{}, api.NotFound("member", member, "those of GET /v1/groups/backends")
}

// flow makes flow number i, from 0; its id is i+1.
func (s *synthetic) flow(i int) api.Flow {
	id := uint64(i + 1)
	f := api.Flow{ID: id, Kind: "stream", State: "relaying", Listener: "web", Route: "default", Group: "backends", Member: memberName(i % max(1, s.members)),
		Client:   relay.Addr{Network: relay.TCP, AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 40000)},
		Upstream: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("10.0.0.1:80")},
		SNI:      "api.example.com", Start: epoch, Age: float64(id), Idle: 0.5,
		Up:   api.Transfer{Bytes: int64(id) * 100, Path: "copy", Why: "small reads"},
		Down: api.Transfer{Bytes: int64(id)*900 + int64(id)*s.moved.Load(), Spliced: int64(id), Path: "splice"},
	}
	if i%10 == 9 {
		f.Kind, f.Listener, f.State = "datagram", "dns", "relaying"
		f.Client.Network, f.Upstream.Network = relay.UDP, relay.UDP
		f.Up.Datagrams, f.Down.DatagramsDropped = 3, 1
	}
	return f
}

func (s *synthetic) Flows(ctx context.Context, yield func([]api.Flow) bool) error {
	slice := make([]api.Flow, 0, 256)
	for i := 0; i < s.flows; {
		for slice = slice[:0]; len(slice) < cap(slice) && i < s.flows; i++ {
			slice = append(slice, s.flow(s.flows-1-i)) // not in the order of ids, as an engine's are
		}
		if s.walked != nil {
			s.walked()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !yield(slice) {
			return nil
		}
	}
	if s.moves {
		s.moved.Add(10)
	}
	return nil
}

func (s *synthetic) Flow(_ context.Context, id uint64) (api.FlowDetail, bool) {
	if id == 0 || id > uint64(s.flows) {
		return api.FlowDetail{}, false
	}
	f := s.flow(int(id - 1))
	tcp := &api.TCPInfo{State: "established", RTT: 0.0001, RTTVar: 0.00005, MinRTT: 0.00008, Cwnd: 10, MSS: 1448, Congestion: "cubic"}
	return api.FlowDetail{Flow: f, ALPN: []string{"h2"}, Loop: 1, Local: f.Client, Peer: f.Client, Attempts: 1, Connect: 0.001, FirstByte: 0.002, ClientTCP: tcp, UpstreamTCP: tcp, RateLimit: 1 << 20,
		ClientTLS: &api.TLS{Version: "1.3", Cipher: "TLS_AES_128_GCM_SHA256", ServerName: "a.example", Protocol: "h2", Resumed: true, Handshake: 0.01, Received: 100, Sent: 200}, UpstreamTLS: &api.TLS{},
		Identity: &api.Identity{Subject: "CN=a", Names: "a.example", Serial: "1f"}}, true
}

func (s *synthetic) Kill(_ context.Context, ids []uint64) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if id > 0 && id <= uint64(s.flows) && !slices.Contains(s.killed, id) {
			s.killed = append(s.killed, id)
			n++
		}
	}
	return n
}

// forget brings the killed flows back.
func (s *synthetic) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = nil
}

func (s *synthetic) Reload(context.Context) (api.Diff, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad != nil {
		return api.Diff{}, api.BadConfig(s.bad)
	}
	return api.Diff{Applied: true, Hash: strings.Repeat("cd", 32)}, nil
}

func (s *synthetic) Diff(_ context.Context, text []byte) (api.Diff, error) {
	if strings.HasPrefix(string(text), "bad") {
		return api.Diff{}, api.BadConfig([]api.ConfigError{{Source: "body", Line: 1, Column: 1, Message: "unknown key bad", Allowed: "listeners, groups"}})
	}
	return api.Diff{Hash: strings.Repeat("cd", 32), Flows: 3, Restart: true, Changes: []api.Change{
		{Kind: "member", Name: "backends/" + memberName(0), What: "removed", Flows: 3},
		{Kind: "setting", Name: "engine.loops", What: "changed", Fields: []string{"loops"}, Restart: true},
	}}, nil
}

func (s *synthetic) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

func (s *synthetic) SetLevel(level string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

func (s *synthetic) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drained = true
}

func (s *synthetic) Draining() api.Drain {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.drained {
		return api.Drain{State: api.StateReady, Flows: int64(s.flows)}
	}
	return api.Drain{State: api.StateDraining, Since: epoch, Deadline: epoch.Add(time.Minute), AtStart: 10, Flows: int64(s.flows)}
}

func (s *synthetic) Ended(problems bool) (list []api.EndedFlow) {
	for i := range s.flows {
		f := s.flow(i)
		e := api.EndedFlow{ID: f.ID, Kind: f.Kind, Listener: f.Listener, Route: f.Route, Group: f.Group, Member: f.Member, Client: f.Client, Upstream: f.Upstream,
			SNI: f.SNI, Start: f.Start, End: f.Start.Add(time.Minute), Duration: 60, Attempts: 1, Up: f.Up, Down: f.Down, Cause: "end"}
		if i%10 == 3 {
			e.Cause, e.Reason, e.Problem = "refused", "no-member", true
		}
		if !problems || e.Problem {
			list = append(list, e)
		}
	}
	return list
}

func (s *synthetic) FileDiff(ctx context.Context) (api.Diff, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad != nil {
		return api.Diff{}, api.BadConfig(s.bad)
	}
	return s.Diff(ctx, nil)
}

// Upgrade makes two steps.
func (s *synthetic) Upgrade(_ context.Context, u api.Upgrade, step func(api.UpgradeStep)) error {
	step(api.UpgradeStep{Step: "checking " + u.Binary})
	step(api.UpgradeStep{Step: "good", Done: true})
	return nil
}
