package console

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	if line, ok := os.LookupEnv(asProgram); ok {
		command, err := parse(strings.Split(line, "\n"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitUsage)
		}
		os.Exit(command.Run(os.Stdout, os.Stderr))
	}
	testnet.Main(m)
}

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s has changed (-update writes it):\n%s", path, got)
	}
}

const (
	token      = "full-token-0123456789"
	eventually = testwait.Patience
)

// rig is a real admin server on a real Unix socket and on loopback TCP, in front
// of a daemon that is not there.
type rig struct {
	*daemon
	t      testing.TB
	events *admin.Events
	server *admin.Server
	served chan error
	admin  string // URL of the Unix socket
	tcp    string // URL
}

func newRig(t testing.TB, d *daemon) *rig {
	t.Helper()
	r := &rig{daemon: d, t: t, events: new(admin.Events), admin: "unix://" + filepath.Join(t.TempDir(), "admin.sock")}
	r.start()
	t.Cleanup(r.stop)
	return r
}

// start serves; after stop once more.
func (r *rig) start() {
	r.t.Helper()
	r.server = admin.New(r.daemon, admin.Config{Token: token, Events: r.events, Started: time.Now().Add(-time.Hour)})
	r.served = make(chan error, 2)
	for _, at := range []spec.Endpoint{{Kind: spec.Unix, Path: strings.TrimPrefix(r.admin, "unix://")}, {Kind: spec.TCP, Host: "127.0.0.1"}} {
		l, err := admin.Listen(at, 0)
		if err != nil {
			r.t.Fatal(err)
		}
		if at.Kind == spec.TCP {
			r.tcp = "tcp://" + l.Addr().String()
		}
		go func(s *admin.Server, served chan error) { served <- s.Serve(l) }(r.server, r.served)
	}
}

func (r *rig) stop() {
	if r.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	r.server.Close(ctx)
	for range 2 {
		if err := <-r.served; err != nil {
			r.t.Error("Serve:", err)
		}
	}
	r.server = nil
}

// run is a command line on the Unix socket: exit code, stdout and stderr.
func (r *rig) run(args ...string) (int, string, string) {
	r.t.Helper()
	return run(r.t, append(args, "--admin", r.admin)...)
}

// good is a run that must succeed, and say nothing of errors.
func (r *rig) good(args ...string) string {
	r.t.Helper()
	code, stdout, stderr := r.run(args...)
	if code != exitOK {
		r.t.Fatalf("%q: exit code %d, %s", args, code, stderr)
	}
	return stdout
}

// run parses and runs as the program does. A wrong command line is exitUsage.
func run(t testing.TB, args ...string) (int, string, string) {
	t.Helper()
	command, err := parse(args)
	if err != nil {
		return exitUsage, "", err.Error()
	}
	stdout, said := capture(t)
	stderr, complained := capture(t)
	code := command.Run(stdout, stderr)
	return code, said(), complained()
}

func parse(args []string) (Command, error) {
	var c struct{ Commands }
	parser, err := kong.New(&c, kong.Name("penstock"), kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		return nil, err
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return nil, err
	}
	return ctx.Selected().Target.Addr().Interface().(Command), nil
}

// capture is a file that is no terminal, and what was written to it, once.
func capture(t testing.TB) (*os.File, func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		io.Copy(&b, r)
		r.Close()
		done <- b.String()
	}()
	return w, func() string {
		w.Close()
		return <-done
	}
}

// daemon is a source of plain values.
type daemon struct {
	mu      sync.Mutex
	status  api.Status
	groups  []api.Group
	parts   []api.Part // of the route default of the first listener
	flows   []api.FlowDetail
	changes []api.MemberChange
	bad     []api.ConfigError
	diff    api.Diff
	level   string
	// afterUpgrade are the states of the keeper after an upgrade, one for each question; upgraded is
	// what is left of them.
	afterUpgrade, upgraded []*api.Keeper
	looked                 func(*daemon) // called with mu when groups are asked for
}

var epoch = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// newDaemon has one of each.
func newDaemon() *daemon {
	numbers := api.Numbers{Flows: 3, Begun: 12345, Refused: 10, Failed: 5, BytesUp: 3 << 30, BytesDown: 5 << 40, DatagramsUp: 1234, DatagramsDown: 4321}
	d := &daemon{level: "info", diff: api.Diff{Applied: true, Hash: strings.Repeat("cd", 32), Flows: 3, Restart: true, Changes: []api.Change{
		{Kind: "member", Name: "web/tcp://10.0.0.9:80", What: "removed", Flows: 3},
		{Kind: "setting", Name: "engine.loops", What: "changed", Fields: []string{"loops"}, Restart: true},
	}}}
	d.status = api.Status{Version: "v1.2.3", Started: epoch, PID: 4711,
		Config: api.ConfigInfo{Source: "/etc/penstock/penstock.yaml", Hash: strings.Repeat("ab", 32), Loaded: epoch, Remote: []api.RemoteConfig{
			{Source: "etcd://10.0.0.1:2379/penstock/edge", Version: "12", Published: epoch, Trial: true, Saved: "/var/lib/penstock/config-1234.yaml", Error: "connection refused", Since: epoch,
				Refused: &api.RefusedVersion{Version: "13", Error: "listeners.web: invalid port", Time: epoch.Add(time.Minute)}}}},
		Sample: api.Sample{Time: epoch.Add(25 * time.Hour), Uptime: 90000, State: "ready", Totals: numbers,
			Loops:     []api.Loop{{Flows: 2, Busy: 1200, LongestTurn: 0.002, Events: 3e6, Waits: 2e6, Wakeups: 1e6}, {Flows: 1, Busy: 600.5}},
			Resources: api.Resources{FDs: 42, MaxFDs: 1 << 20, PipesOpen: 4, PipesLeased: 2, PipesMax: 256, PipesRefused: 1, DatagramsLost: 3, DatagramsDropped: []api.DatagramDrop{{Reason: "full", Count: 2}, {Reason: "no-room", Count: 1_479}}, GSOFallbacks: 2, DatagramHeldBytes: 100, LogLinesDropped: 7, Goroutines: 20, HeapBytes: 9 << 20, CPU: 1850},
			Paths:     []api.PathCount{{Path: "copy", Why: "small reads", Directions: 4000}, {Path: "splice", Directions: 20000}, {Path: "copy", Why: "no pipe was free", Directions: 12}},
			Listeners: []api.ListenerSummary{{Name: "https", Numbers: numbers}, {Name: "dns", Numbers: api.Numbers{Flows: 1}}},
			Groups:    []api.GroupSummary{{Name: "web", Members: 4, Up: 2, Queued: 1, Numbers: numbers}, {Name: "resolvers", Members: 1, Up: 1}},
		}}
	d.groups = []api.Group{{Name: "web", Balance: "p2c", Panic: true, Queue: api.Queue{Size: 100, Flows: 1, QueuedTotal: 3, TimedOut: 1, Full: 2}, Retries: 4, DownKept: 12, Numbers: numbers, Members: []api.Member{
		{Name: "tcp://10.0.0.1:80", Address: "tcp://10.0.0.1:80", State: "up", Since: epoch, Available: true, Weight: 10, MaxFlows: 1000, Connects: 1000, Failures: 2, ConnectSeconds: 0.5, Answers: 800, FirstByteSeconds: 9.6, Numbers: numbers},
		{Name: "tcp://10.0.0.2:80", Address: "tcp://10.0.0.2:80", State: "down", Why: "connection refused", Since: epoch.Add(24 * time.Hour), Weight: 10, Connects: 10, Failures: 200},
		{Name: "tcp://[2001:db8:85a3:1111:2222:8a2e:370:7334]:8080", Address: "tcp://[2001:db8:85a3:1111:2222:8a2e:370:7334]:8080", State: "ejected", Since: epoch.Add(25*time.Hour - 20*time.Second), Until: epoch.Add(25*time.Hour + 10*time.Second), Weight: 1},
		{Name: "tcp://spare.example.com:80", Address: "tcp://10.0.0.7:80", State: "up", Since: epoch, Available: true, Weight: 10, Backup: true, Discovered: true},
	}}, {Name: "resolvers", Balance: "hash", Members: []api.Member{{Name: "udp://10.0.0.53:53", Address: "udp://10.0.0.53:53", State: "up", Since: epoch, Available: true, Weight: 1}}}}
	for i, client := range []string{"192.0.2.10:50000", "192.0.2.11:50001", "[2001:db8:85a3:1111:2222:8a2e:370:7334]:50002"} {
		d.flows = append(d.flows, newFlow(uint64(i+1), client))
	}
	d.flows[1].State, d.flows[1].Upstream, d.flows[1].SNI = "sniffing", relay.Addr{}, "\x1b[31mred"
	return d
}

func newFlow(id uint64, client string) api.FlowDetail {
	at := netip.MustParseAddrPort(client)
	info := &api.TCPInfo{State: "established", RTT: 0.00042, RTTVar: 0.00011, MinRTT: 0.0003, Retransmits: 3, Cwnd: 10, MSS: 1448, Unsent: 4096, PacingRate: 1 << 30, DeliveryRate: 1 << 27, RecvSpace: 64 << 10, Congestion: "cubic"}
	return api.FlowDetail{
		Flow: api.Flow{ID: id, Kind: "stream", State: "relaying", Listener: "https", Route: "default", Group: "web", Member: "tcp://10.0.0.1:80",
			Client: relay.Addr{Network: relay.TCP, AddrPort: at}, Upstream: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("10.0.0.1:80")},
			SNI: "www.example.com", Start: epoch, Age: 192 * float64(id), Idle: 0.25,
			Up:   api.Transfer{Bytes: int64(id) << 20, Path: "copy", Why: "small reads"},
			Down: api.Transfer{Bytes: int64(id) << 30, Spliced: 1 << 30, Held: 4096, Path: "splice"}},
		ALPN: []string{"h2"}, Loop: 1, Local: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("198.51.100.1:443")},
		Peer: relay.Addr{Network: relay.TCP, AddrPort: netip.MustParseAddrPort("198.51.100.200:999")}, Attempts: 2, Connect: 0.0012, FirstByte: 0.034,
		ClientTCP: info, UpstreamTCP: info, IdleLimit: 300, RateLimit: 10 << 20,
		ClientTLS:   &api.TLS{Version: "1.3", Cipher: "TLS_AES_128_GCM_SHA256", ServerName: "www.example.com", Protocol: "h2", Resumed: true, Kernel: true, Handshake: 0.002},
		UpstreamTLS: &api.TLS{}, Identity: &api.Identity{Subject: "CN=\x1b[31mred", Names: "spiffe://example/ops", Serial: "1f"},
	}
}

func (d *daemon) Status() api.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Every sample finds that something has moved.
	if len(d.upgraded) > 0 {
		d.status.Keeper, d.upgraded = d.upgraded[0], d.upgraded[1:]
	}
	d.status.Totals.BytesDown += 1 << 30
	d.status.Totals.Begun += 100
	return d.status
}

func (d *daemon) Config() api.Config { return api.Config{ConfigInfo: d.status.Config} }

func (d *daemon) Listeners() []api.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []api.Listener
	for _, l := range d.status.Listeners {
		list = append(list, api.Listener{Name: l.Name, Kind: "stream", State: "open", Numbers: l.Numbers})
	}
	if d.parts != nil {
		list[0].Routes = []api.Route{{Name: "default", Default: true, Parts: slices.Clone(d.parts)}}
	}
	return list
}

func (d *daemon) Groups() []api.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looked != nil {
		d.looked(d)
	}
	groups := slices.Clone(d.groups)
	for i := range groups {
		groups[i].Members = slices.Clone(groups[i].Members)
	}
	return groups
}

func (d *daemon) Counters() admin.Counters { return admin.Counters{} }

func (d *daemon) AddMember(_ context.Context, group string, m api.NewMember) (api.Members, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.groups {
		if d.groups[i].Name == group {
			added := api.Member{Name: m.Name, Address: m.Address, State: "up", Weight: m.Weight, Backup: m.Backup, MaxFlows: m.MaxFlows}
			d.groups[i].Members = append(d.groups[i].Members, added)
			return api.Members{Members: []api.Member{added}}, nil
		}
	}
	return api.Members{}, api.NotFound("group", group, "those of penstock groups")
}

func (d *daemon) RemoveMember(group, member string) ([]api.Member, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.groups {
		for j, m := range d.groups[i].Members {
			if d.groups[i].Name == group && (m.Name == member || m.Address == member) {
				d.groups[i].Members = slices.Delete(slices.Clone(d.groups[i].Members), j, j+1)
				return []api.Member{m}, nil
			}
		}
	}
	return nil, api.NotFound("member", group+"/"+member, "those of penstock groups")
}

func (d *daemon) Bans() api.Bans { return api.Bans{} }
func (d *daemon) Ban(_ context.Context, n api.NewBan) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n.Network))
}
func (d *daemon) Capture(_ context.Context, n api.NewCapture, _ netip.Prefix, tell func(api.CaptureLine) error) error {
	if n.Flow == 1<<40 {
		return api.NotFound("open flow", "1099511627776", "an id of GET /v1/flows")
	}
	return tell(api.CaptureLine{At: time.Now(), Through: time.Now()})
}

func (d *daemon) Unban(_ context.Context, n string) (b api.Ban, err error) {
	return b, b.Network.UnmarshalText([]byte(n))
}

func (d *daemon) Lists() api.Lists { return api.Lists{Lists: []api.List{}} }

func (d *daemon) SetSplit(_ context.Context, listener, route string, change api.SplitChange) (api.Route, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if listener != d.status.Listeners[0].Name || route != "default" {
		return api.Route{}, api.NotFound("route", route, "those of listener "+listener)
	}
	for i := range d.parts {
		p := &d.parts[i]
		if w, ok := change.Weights[p.Name]; ok {
			p.Weight = w
		}
		if change.State == "file" {
			p.Weight = p.FileWeight
		}
	}
	return api.Route{Name: route, Parts: d.parts}, nil
}

func (d *daemon) MemberChanges() api.MemberChanges {
	return api.MemberChanges{YAML: "groups:\n  \"web\":\n", Splits: []api.SplitDifference{{Listener: "http", Route: "default", Parts: []api.PartDifference{{Name: "green", File: 5, Running: 50}}}}, Changes: []api.MemberDifference{
		{Group: "web", Member: "new", What: "added", Fields: []api.FieldDifference{{Name: "to", Running: "tcp://10.0.0.9:80"}, {Name: "weight", File: "1", Running: "5"}}},
	}}
}

func (d *daemon) SetMember(_ context.Context, group, member string, change api.MemberChange) (got api.Members, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.groups {
		for j := range d.groups[i].Members {
			m := &d.groups[i].Members[j]
			if d.groups[i].Name != group || m.Name != member && m.Address != member {
				continue
			}
			if change.Weight != nil {
				m.Weight = *change.Weight
			}
			m.State = map[string]string{"drain": "drained", "disable": "disabled", "enable": "up", "file": "up", "": m.State}[change.State]
			m.Available = m.State == "up"
			got.Members = append(got.Members, *m)
			got.NoneAvailable = !slices.ContainsFunc(d.groups[i].Members, func(m api.Member) bool { return m.Available })
		}
	}
	if got.Members == nil {
		return got, api.NotFound("member", group+"/"+member, "those of penstock groups")
	}
	d.changes = append(d.changes, change)
	return got, nil
}

func (d *daemon) Flows(ctx context.Context, yield func([]api.Flow) bool) error {
	d.mu.Lock()
	var flows []api.Flow
	for i := range d.flows {
		flows = append(flows, d.flows[i].Flow)
		d.flows[i].Down.Bytes += int64(d.flows[i].ID) << 20
	}
	d.mu.Unlock()
	yield(flows)
	return ctx.Err()
}

func (d *daemon) Flow(_ context.Context, id uint64) (api.FlowDetail, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.flows {
		if f.ID == id {
			return f, true
		}
	}
	return api.FlowDetail{}, false
}

func (d *daemon) Kill(_ context.Context, ids []uint64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.flows)
	d.flows = slices.DeleteFunc(d.flows, func(f api.FlowDetail) bool { return slices.Contains(ids, f.ID) })
	return int64(before - len(d.flows))
}

func (d *daemon) Reload(context.Context) (api.Diff, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bad != nil {
		return api.Diff{}, api.BadConfig(d.bad)
	}
	return d.diff, nil
}

func (d *daemon) Diff(context.Context, []byte) (api.Diff, error) {
	return api.Diff{}, fmt.Errorf("nobody asks for that")
}

func (d *daemon) FileDiff(context.Context) (api.Diff, error) {
	return api.Diff{}, nil
}

func (d *daemon) Ended(problems bool) (list []api.EndedFlow) {
	for _, e := range endedFlows() {
		if e.Problem || !problems {
			list = append(list, e)
		}
	}
	return list
}

// endedFlows are a flow that its client ended, one that no upstream took, and one that was refused.
func endedFlows() []api.EndedFlow {
	var list []api.EndedFlow
	for i, client := range []string{"192.0.2.10:50000", "192.0.2.11:50001", "[2001:db8:85a3:1111:2222:8a2e:370:7334]:50002"} {
		f := newFlow(uint64(i+1), client).Flow
		list = append(list, api.EndedFlow{ID: f.ID, Kind: f.Kind, Listener: f.Listener, Route: f.Route, Group: f.Group, Member: f.Member, Client: f.Client, Upstream: f.Upstream,
			Start: f.Start, End: f.Start.Add(time.Duration(f.Age * 1e9)), Duration: f.Age, Attempts: 1, Up: f.Up, Down: f.Down, Cause: "end"})
	}
	list[1].Cause, list[1].Error, list[1].Problem, list[1].Duration = "upstream-refused", "connect: connection refused", true, 0.0012
	refused := &list[2]
	refused.Cause, refused.Reason, refused.Problem, refused.Duration = "refused", "no-member", true, 0.000085
	refused.Upstream, refused.Member, refused.Up, refused.Down = relay.Addr{}, "", api.Transfer{Path: "none"}, api.Transfer{Path: "none"}
	return list
}

func (d *daemon) Level() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.level
}

func (d *daemon) SetLevel(level string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.level = level
}

func (d *daemon) Drain()              {}
func (d *daemon) Draining() api.Drain { return api.Drain{State: api.StateReady} }

// Upgrade is good for a dry run, refuses the binary /bad, and otherwise ends in the middle, as if the daemon
// had handed over: the status then has d.afterUpgrade.
func (d *daemon) Upgrade(_ context.Context, u api.Upgrade, step func(api.UpgradeStep)) error {
	step(api.UpgradeStep{Step: "checking " + u.Binary})
	switch {
	case u.DryRun:
		step(api.UpgradeStep{Step: "penstock v2", Done: true})
	case u.Binary == "/bad":
		step(api.UpgradeStep{Step: "refused", Error: "it exited with code 1"})
	default:
		step(api.UpgradeStep{Step: "handing over"})
		d.mu.Lock()
		defer d.mu.Unlock()
		d.upgraded = d.afterUpgrade
	}
	return nil
}
