package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/fleet"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// FleetCmd has the commands about relays that are operated together.
type FleetCmd struct {
	Status  FleetStatusCmd `cmd:"" help:"Show all relays."`
	Top     FleetTopCmd    `cmd:"" help:"Watch all relays live."`
	Flows   FleetFlowsCmd  `cmd:"" help:"List the flows of all relays to a member."`
	Drain   FleetDrainCmd  `cmd:"" help:"Have relays take no new flows. Their open flows continue."`
	Undrain FleetServeCmd  `cmd:"" help:"Have relays take new flows again."`
	Reload  FleetReloadCmd `cmd:"" help:"Have relays read their configuration again."`
	Log     FleetLogCmd    `cmd:"" help:"Show who did what to the fleet."`
}

// FleetFlags are the flags of every command about a fleet.
type FleetFlags struct {
	Fleet string `env:"PENSTOCK_FLEET" required:"" placeholder:"URL" help:"The fleet: etcd://HOST:PORT[,HOST:PORT...]/KEY; with TLS etcds:// ($$${env})."`
	JSON  bool   `name:"json" help:"Print JSON."`
}

// Validate is called by kong.
func (f *FleetFlags) Validate() error {
	r, _, err := spec.ParseRemote(f.Fleet)
	if err == nil && r.Kind != "etcd" {
		err = errors.New("allowed: etcd://HOST:PORT/KEY")
	}
	if err != nil {
		return fmt.Errorf("--fleet: %w", err)
	}
	return nil
}

// run calls do with the fleet, and with a context that ends with an interrupt. It returns the exit code.
func (f *FleetFlags) run(stderr *os.File, do func(context.Context, *fleet.Operator) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	registry, key, err := spec.ParseRemote(f.Fleet)
	var o *fleet.Operator
	if err == nil {
		o, err = fleet.Open(registry, key, operatorName())
	}
	if err == nil {
		defer o.Close()
		err = do(ctx, o)
	}
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(stderr, "penstock:", printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

// operatorName returns who runs the command, for the log of the fleet: USER@HOST, also behind sudo.
func operatorName() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	host, _ := os.Hostname()
	return dash(name) + "@" + dash(host)
}

// nodesOf returns all relays.
func nodesOf(ctx context.Context, o *fleet.Operator) ([]fleet.Node, error) {
	return call(ctx, o.Nodes)
}

// NodeFilter selects relays.
type NodeFilter struct {
	Zone string `placeholder:"ZONE" help:"Only relays in this zone."`
}

// pick returns the relays with these names that are present, or all that are. A name that no relay has is an error.
func (f *NodeFilter) pick(nodes []fleet.Node, names []string) ([]fleet.Node, error) {
	var list []fleet.Node
	for _, n := range nodes {
		if n.Present() && (f.Zone == "" || n.Zone == f.Zone) && (len(names) == 0 || slices.Contains(names, n.Node)) {
			list = append(list, n)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(list, func(n fleet.Node) bool { return n.Node == name }) {
			return nil, fmt.Errorf("no relay %s is present; penstock fleet status shows who is", api.Quote(name))
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no relay is present")
	}
	return list, nil
}

func namesOf(nodes []fleet.Node) []string {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Node
	}
	return names
}

// FleetStatusCmd shows all relays.
type FleetStatusCmd struct {
	FleetFlags
	NodeFilter
	Version string   `placeholder:"VERSION" help:"Only relays that run this version of the configuration, or one whose hash begins so."`
	Refused bool     `help:"Only relays that have refused a configuration."`
	Odd     bool     `help:"Only relays with something to look at."`
	Nodes   []string `arg:"" optional:"" name:"NODE" help:"Only these relays."`
}

// Run executes the command.
func (c *FleetStatusCmd) Run(stdout, stderr *os.File) int {
	return c.run(stderr, func(ctx context.Context, o *fleet.Operator) error {
		all, err := nodesOf(ctx, o)
		if err != nil {
			return err
		}
		v := newFleetView(all, time.Now())
		state, err := call(ctx, o.State)
		if err != nil {
			return err
		}
		v.setPublished(&state)
		list := slices.DeleteFunc(slices.Clone(all), func(n fleet.Node) bool {
			return c.Zone != "" && n.Zone != c.Zone || c.Refused && n.Refused == nil || c.Odd && len(v.odd(&n)) == 0 ||
				len(c.Nodes) > 0 && !slices.Contains(c.Nodes, n.Node) ||
				c.Version != "" && versionText(&n) != c.Version && !(len(c.Version) >= 4 && strings.HasPrefix(n.Hash, c.Version))
		})
		if c.JSON {
			return printJSON(stdout, struct {
				Nodes []fleet.Node `json:"nodes"`
			}{append([]fleet.Node{}, list...)})
		}
		out := newOut(stdout)
		printPairs(out, v.pairs(c.Fleet)...)
		if len(list) > 0 {
			fmt.Fprintln(out)
			v.table(list).print(out)
		}
		return nil
	})
}

// A fleetView is what is shown of a fleet at one moment.
type fleetView struct {
	nodes   []fleet.Node
	now     time.Time
	version int64  // the newest that a relay runs, or that is published for all; 0: there is none
	canary  int64  // the version that some relays try; 0: none
	trial   string // who makes them try it; empty: nobody
	problem string // why what is published cannot be read
	hash    string // that most relays run
}

func newFleetView(nodes []fleet.Node, now time.Time) *fleetView {
	v := &fleetView{nodes: nodes, now: now}
	counts := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		v.version = max(v.version, n.Version)
		counts[n.Hash]++
		if n.Hash != "" && (counts[n.Hash] > counts[v.hash] || v.hash == "") {
			v.hash = n.Hash
		}
	}
	return v
}

// setPublished says which version relays should run.
func (v *fleetView) setPublished(s *fleet.State) {
	if s.Current.Version != 0 {
		v.version = s.Current.Version
	}
	if s.Problem != nil {
		v.problem = s.Problem.Error()
	}
	if c := s.Canary; c != nil {
		v.canary = c.Version
		v.trial = fmt.Sprintf("version %d by %s, with %s", c.Version, c.By, plural(int64(c.Relays), "relay"))
		if c.Version == 0 {
			v.trial = "by " + c.By
		}
	}
}

// versionText returns the version that a relay runs, or the beginning of the hash of its configuration.
func versionText(n *fleet.Node) string {
	if n.Version != 0 {
		return fmt.Sprint(n.Version)
	}
	return fmt.Sprintf("%.8s", n.Hash)
}

// odd returns what there is to look at; nothing: all is well.
func (v *fleetView) odd(n *fleet.Node) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if n.Error != "" {
		add("report cannot be read: %s", n.Error)
	}
	if n.Conflicts > 0 {
		add("another relay has the same id")
	}
	if !n.Present() {
		add("absent")
	}
	if n.Refused != nil {
		what := "the last configuration"
		if n.Refused.Version != 0 {
			what = fmt.Sprintf("version %d", n.Refused.Version)
		}
		add("refused %s: %s", what, n.Refused.Error)
	}
	switch {
	case v.canary != 0 && n.Version == v.canary:
		add("tries the canary")
	case n.Version != 0 && n.Version < v.version:
		add("behind")
	case n.Version > v.version:
		add("ahead")
	case n.Version == 0 && n.Hash != "" && n.Hash != v.hash:
		add("another configuration than most")
	}
	if n.Drain != nil {
		text := "drained by " + n.Drain.By
		if n.Drain.Why != "" {
			text += ": " + n.Drain.Why
		}
		add("%s", text)
	}
	if n.Drain == nil && n.State == "drained" {
		add("drained")
	}
	if names, more := downMembers(n); len(names) > 0 {
		text := "down: " + strings.Join(names, ", ")
		if more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		add("%s", text)
	}
	for _, s := range n.Sources {
		if s.Error != "" {
			add("%s: %s", s.Name, s.Error)
			break
		}
	}
	return list
}

// downMembers returns the names of a few members that are down, as GROUP/MEMBER, and of groups that have none, and how many
// there are besides.
func downMembers(n *fleet.Node) (names []string, more int) {
	groups := make([]string, 0, len(n.Groups))
	for g := range n.Groups {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	for _, g := range groups {
		for _, m := range n.Groups[g].Down {
			names = append(names, g+"/"+m)
		}
		if n.Groups[g].All == 0 {
			names = append(names, g+" (no members)")
		}
	}
	most := min(len(names), 2)
	return names[:most], len(names) - most
}

// pairs returns the fleet in a few lines.
func (v *fleetView) pairs(url string) [][2]string {
	states, versions := map[string]int{}, map[string]int{}
	var flows, refused, up, all int64
	for i := range v.nodes {
		n := &v.nodes[i]
		if !n.Present() {
			states["absent"]++
			continue
		}
		if n.Error != "" {
			states["unreadable"]++
			continue
		}
		states[dash(n.State)]++
		versions[versionText(n)]++
		flows += n.Flows
		if n.Refused != nil {
			refused++
		}
		some, of := n.Members()
		up, all = up+int64(some), all+int64(of)
	}
	url, _, _ = strings.Cut(url, "?")
	list := [][2]string{
		{"fleet", url},
		{"relays", plural(int64(len(v.nodes)), "relay") + countsOf(states)},
	}
	if v.problem != "" {
		list = append(list, [2]string{"published", "cannot be read: " + v.problem})
	}
	if v.trial != "" {
		list = append(list, [2]string{"tried", v.trial})
	}
	if len(versions) > 0 {
		text := strings.TrimPrefix(v.countsRun(versions), ": ")
		if refused > 0 {
			text += "; " + count(refused) + " have refused one"
			if refused == 1 {
				text = strings.TrimSuffix(text, "have refused one") + "has refused one"
			}
		}
		list = append(list, [2]string{"run", text})
	}
	return append(list,
		[2]string{"flows", count(flows) + " open"},
		[2]string{"members", fmt.Sprintf("%s of %s up, as all relays see them together", count(up), count(all))})
}

// countsOf returns ": 3 ready, 1 drained", the most frequent first.
func countsOf(counts map[string]int) string {
	return listCounts(counts, func(name string, n int) string { return fmt.Sprintf("%d %s", n, name) })
}

// countsRun returns ": 20 relays run version 13, 1 relay runs version 12".
func (v *fleetView) countsRun(counts map[string]int) string {
	what := "version"
	if v.version == 0 {
		what = "configuration"
	}
	return listCounts(counts, func(name string, n int) string {
		verb := "run"
		if n == 1 {
			verb = "runs"
		}
		return fmt.Sprintf("%s %s %s %s", plural(int64(n), "relay"), verb, what, dash(name))
	})
}

func listCounts(counts map[string]int, text func(string, int) string) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if n := counts[b] - counts[a]; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	const most = 6
	var parts []string
	for i, name := range names {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d others", len(names)-most))
			break
		}
		parts = append(parts, text(name, counts[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// table returns a table of relays.
func (v *fleetView) table(nodes []fleet.Node) *table {
	t := newTable("~NODE", "?ZONE", ">RUNS", "STATE", ">FLOWS", ">MEMBERS", ">AGE", "?>LOAD", "?>MEMORY", "?>UP FOR", "?PENSTOCK", "~TO LOOK AT")
	for i := range nodes {
		n := &nodes[i]
		if !n.Present() {
			t.add(n.Node, "", "", "absent", "", "", "", "", "", "", "", strings.Join(v.odd(n), "; "))
			continue
		}
		if n.Error != "" {
			t.add(n.Node, "", "", "unreadable", "", "", "", "", "", "", "", strings.Join(v.odd(n), "; "))
			continue
		}
		up, all := n.Members()
		t.add(n.Node, n.Zone, versionText(n), dash(n.State), count(n.Flows), fmt.Sprintf("%d/%d", up, all), age(v.now.Sub(n.At).Seconds()),
			fmt.Sprintf("%.2f", n.Host.Load), volume(float64(n.Host.Memory)), age(v.now.Sub(n.Since).Seconds()), n.Penstock, strings.Join(v.odd(n), "; "))
	}
	return t
}

// fleetPairs returns the part of a relay in its fleet, for penstock status.
func fleetPairs(f *api.Fleet, now time.Time) [][2]string {
	line := fmt.Sprintf("%s, as %s, ", f.Source, f.Node)
	switch {
	case f.Present:
		line += "present for " + age(now.Sub(f.Since).Seconds())
	case f.Conflict != "":
		line += "not present: the id is taken by " + f.Conflict
	default:
		line += "not present: " + dash(f.Error)
	}
	if f.SharedMembers > 0 {
		line += fmt.Sprintf("; checks %d of %s whose checks are shared", f.CheckedMembers, plural(int64(f.SharedMembers), "member"))
	}
	return [][2]string{{"fleet", printable(line)}}
}
