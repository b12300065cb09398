package app

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/admit"
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/cycle"
	"github.com/penstock/penstock/cmd/penstock/internal/destination"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/lists"
	"github.com/penstock/penstock/cmd/penstock/internal/liveflows"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxed"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A daemon is the engine and the packages around it, with a running configuration.
//
//	newDaemon ──▶ apply ──▶ apply (a reload) ... ──▶ drain ──▶ close
//
// Its fields are in groups by who may touch them.
type daemon struct {
	given
	parts
	changing
	stopping
}

// given is what a daemon is made with. It is set before the first configuration is applied, and anybody may read it.
type given struct {
	log       journal
	started   time.Time // the first worker of the service
	keeping   *keeping.Link
	sandboxed *sandboxed.Process // nil: this process gives up nothing
}

// parts are what the daemon is made of. They are made once, and each may be used by anybody at any time.
type parts struct {
	engine     *relay.Engine
	set        *upstream.Set
	clients    *certs.Clients   // TLS towards members
	hooks      *hooks.Hooks     // what is done with flows
	flows      *liveflows.Flows // which end, because of what has happened to their listener, route or member
	server     *admin.Server    // nil: there is no admin listener
	fleet      *fleetPart
	memory     memory
	reloads    reloads
	active     running
	splits     splits
	kernelTLS  kernelTLS
	bans       bans
	savedLists savedLists

	listsChanged chan struct{} // receives when there are other lists
}

// changing is what a change of the configuration changes beside the running configuration itself. Who holds mu may touch it.
type changing struct {
	mu        sync.Mutex // serializes changes
	listening listening
	nodeDrain nodeDrain
	shortfall shortfall

	listsAhead *lists.Table // what was read of lists before this worker took over; nil after the first configuration
}

// stopping is how the daemon ends: the goroutine of the lifecycle begins it, and everybody else waits for it.
type stopping struct {
	shutdown    shutdown
	background  background
	handingOver atomic.Bool // another worker takes over: what this one is asked for now is for that one
}

// running is the running configuration, which Load returns.
type running struct {
	atomic.Pointer[activeConfig]

	// switching is held while groups and listeners of one configuration give way to those of the next; daemon.mu may be held
	// before it. Who must not see some of both holds it for reading.
	switching sync.RWMutex
}

// An activeConfig is the running configuration and what was built from it.
type activeConfig struct {
	*spec.Config
	since        time.Time
	total        *admit.Total
	plans        map[string]*hooks.Plan // by listener
	ownListeners *cycle.Listeners
	lists        *lists.Table
}

// listening is what the listeners listen on.
type listening struct {
	inherited *systemd.Sockets // those of the service manager
	bound     map[bindKey]*hooks.Socket
}

// background are goroutines that end with the daemon.
type background struct {
	sync.WaitGroup
	closing chan struct{} // closed when they are to end
}

// end waits until all have ended.
func (b *background) end() {
	close(b.closing)
	b.Wait()
}

// newDaemon returns a daemon without a configuration. The caller must close it. logDropped returns
// the number of log lines dropped; c is the sandbox that the process will enter.
func newDaemon(log *slog.Logger, level *slog.LevelVar, logDropped func() int64, cfg *spec.Config, k *keeping.Link, c *sandboxed.Process) (*daemon, error) {
	d := &daemon{
		given:    given{log: journal{log, level, &admin.Events{}}, started: time.Now(), keeping: k},
		changing: changing{listening: listening{bound: map[bindKey]*hooks.Socket{}}},
		stopping: stopping{shutdown: shutdown{requested: make(chan struct{})}, background: background{closing: make(chan struct{})}},
	}
	var err error
	if d.listening.inherited, err = systemd.Inherit(); err != nil {
		return nil, err
	}
	engine := engineConfig(&cfg.Engine)
	engine.Keep = k.KeepConfig(cfg.Keeper)
	engine.User = c.SocketUser(cfg)
	if d.engine, err = relay.New(engine); err != nil {
		d.listening.inherited.Close()
		return nil, err
	}
	if !k.Before().Started.IsZero() {
		d.started = d.keeping.Before().Started
	}
	// What the counters count begins then, and goes on in a worker that was killed before it had saved anything else.
	if w := k.Values.Word("started"); time.Unix(0, w.Load()).After(d.started) || w.Load() == 0 {
		w.Store(d.started.UnixNano()) // it is new, or the clock was set back
	} else {
		d.started = time.Unix(0, w.Load())
	}
	d.reloads.asked = k.Before().Reloads
	d.reloads.asked.Due, d.reloads.left = k.MissedReload(), k.Before().Reloads.Due
	d.splits.restore(k.Before().Splits, k.Before().Fleet)
	if err := d.bans.restore(cfg.Node.State, k.First(), k.Before().Bans); err != nil {
		log.Error("the bans of before cannot be had", "error", err)
	}
	d.savedLists.folder = cfg.Node.State
	d.nodeDrain.word = d.keeping.Values.Word("fleet.drained")
	d.nodeDrain.closed = d.nodeDrain.word.Load() == drainClosed
	d.fleet = newFleetPart(d, cfg.Node)
	d.log.events.Restore(d.keeping.Before().Events)
	if n := len(d.engine.Stats().Loops); n < engine.Loops {
		d.noteLack(fmt.Errorf("%d of %d event loops", n, engine.Loops))
	}
	if k.NoAdmin != nil {
		d.noteLack(k.NoAdmin)
	}
	d.memory.budget = d.startBudget(&cfg.Engine)
	d.hooks = &hooks.Hooks{
		Accounting: hooks.NewAccounting(log, logDropped, k.Counters(), d.keeping.Values, k.Records, account.Opening{Ask: k.Asker(earlykeeper.Append), Version: version()}),
		TLS:        hooks.NewTLSFlows(d.keeping.Values),
		Sandbox:    c.Current(),
	}
	d.flows = liveflows.New(d.engine, func() liveflows.Config { return d.active.Load() })
	answers := upstream.NewAnswersFile(cfg.Node.State, log)
	d.kernelTLS.log = d.log
	d.clients = certs.NewClients(d.certificateOptions(), d.tellFiles)
	d.set = upstream.NewSet(upstream.Options{Clients: d.clients, CertificateExpires: d.certificateExpires, MemberChanged: d.memberChanged, LookupChanged: d.lookupChanged, PanicChanged: d.panicChanged, Control: host.DialControl, MemberRemoved: d.flows.Look, FlowsEnd: d.flows.Look, FlowsKept: d.flowsKept, Joined: d.flows.Rebalance,
		Explain:    func(err error) error { return d.sandboxed.Explain(err) },
		Permit:     func(to spec.Endpoint) bool { return d.sandboxed.Permits(to) },
		Discoverer: newDiscoverers(log, cfg.Node), Zone: cfg.Node.Zone, LastGood: answers.Read(), Share: d.fleet.share, Counts: k.CountsMemory(), Saved: &d.keeping.Before().Members})
	d.hooks.Clients, d.hooks.Groups = d.clients, d.set
	d.hooks.Names = destination.NewCache(upstream.DNS{}.Addresses, cfg.Names, d.keeping.Values.Word)
	d.hooks.QUICCounts = hooks.NewQUICCounts(d.keeping.Values.Word)
	d.hooks.End = d.engine.Kill
	d.hooks.OwnListener = func(at relay.Addr) string { return d.active.Load().ownListeners.ListenerAt(at) }
	d.active.Store(&activeConfig{Config: &spec.Config{}, ownListeners: cycle.NewListeners(nil, nil)})
	d.background.Go(d.forgetMembers)
	d.background.Go(func() { d.flows.FollowMembers(d.background.closing) })
	d.background.Go(func() { d.flows.FollowBalance(d.background.closing) })
	d.background.Go(d.lookAtCertificates)
	d.listsChanged = make(chan struct{}, 1)
	d.background.Go(d.lookAtLists)
	d.background.Go(d.exportMetrics)
	d.background.Go(d.keepBans)
	d.background.Go(func() { answers.Follow(d.set, d.background.closing) })
	return d, nil
}

// engineConfig also sets GOMAXPROCS to one more than the number of loops, so that busy loops keep
// their threads.
func engineConfig(e *spec.Engine) relay.Config {
	loops := e.Loops
	if loops == 0 {
		loops = runtime.GOMAXPROCS(0)
	}
	runtime.GOMAXPROCS(loops + 1)
	return relay.Config{
		Loops: loops, Dedicated: true, MaxPipes: e.Pipes,
		NoGSO: e.NoGSO, NoGRO: e.NoGRO, MaxDatagramFlows: e.MaxFlows, MaxNewDatagramFlows: e.MaxNewFlows,
	}
}

// waitForLookups waits until every member's name has been looked up once, for at most the given
// time. The error lists the names that have no address.
func (d *daemon) waitForLookups(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return d.set.Wait(ctx)
}

// IsRemoved reports whether a flow's listener, route or member was removed. It also returns what
// its route said, when the flow took it, about such flows.
func (f *activeConfig) IsRemoved(p *hooks.State) (spec.LiveFlows, bool) {
	w, m := p.Target(), p.Member()
	if w == nil {
		return spec.LiveFlows{}, false
	}
	gone := m != nil && m.Removed() || !p.NameIn(f.Groups)
	if s := f.planOf(p.Listener()); s == nil {
		gone = true
	} else if r := s.RouteNamed(w.Route.Name); r == nil || !w.In(r) {
		gone = true
	}
	return w.Route.Removed, gone
}

// planOf returns the plan of the listener that has taken over the sockets of another one, which may
// have had another name; nil: there is none.
func (f *activeConfig) planOf(l *spec.Listener) *hooks.Plan {
	if s := f.plans[l.Name]; s != nil {
		return s
	}
	key := bindKeyOf(l, 0)
	for _, s := range f.plans {
		if bindKeyOf(s.Spec, 0) == key {
			return s
		}
	}
	return nil
}

// memberChanged logs a change of a member's state.
func (d *daemon) memberChanged(e upstream.MemberEvent) {
	d.fleet.changed()
	comesOrGoes := e.From == upstream.New || e.To == upstream.Removed
	if comesOrGoes && d.active.Load().ownListeners.ListenerAt(e.Addr) != "" {
		d.updateCycles()
	}
	level := slog.LevelInfo
	switch {
	case e.To == upstream.Down, e.To == upstream.Ejected:
		level = slog.LevelWarn
	case e.To == upstream.Checking, comesOrGoes && strings.HasPrefix(e.Why, "configured"):
		level = slog.LevelDebug // logged by the reload, or soon by the check
	}
	d.log.Log(context.Background(), level, "member", "group", e.Group, "member", e.Member,
		"from", e.From.String(), "to", e.To.String(), "why", e.Why)
	if level > slog.LevelDebug {
		d.log.event(level, "health", e.Group+"/"+e.Member, e.From.String()+" to "+e.To.String()+": "+e.Why)
	}
}

// lookupChanged logs the failure or recovery of a lookup.
func (d *daemon) lookupChanged(e upstream.LookupEvent) {
	d.fleet.changed()
	groups := strings.Join(e.Groups, ", ")
	tell := func(level slog.Level, message string, attrs ...any) {
		d.log.Log(context.Background(), level, message, append([]any{"group", groups, "name", e.Name, "members", e.Members}, attrs...)...)
		d.log.event(level, "lookup", e.Name, message)
	}
	switch {
	case e.Removed && e.Vanished > 0:
		tell(slog.LevelWarn, "members removed, because the answers have been without them for lookups.keep", "vanished", e.Vanished)
	case e.Vanished > 0:
		tell(slog.LevelWarn, "the answer lacks too many members at once (lookups.vanish); they stay", "vanished", e.Vanished)
	case e.Removed:
		tell(slog.LevelWarn, "members removed, because their name does not exist", "error", e.Err.Error())
	case e.Err != nil && e.Missing:
		tell(slog.LevelWarn, "name does not exist or has no address", "error", e.Err.Error())
	case e.Err != nil:
		tell(slog.LevelWarn, "lookup failed; its members stay", "error", e.Err.Error())
	case e.LeftOut > 0:
		tell(slog.LevelWarn, "name has more members than lookups.max-members; the rest is left out", "left_out", e.LeftOut)
	default:
		tell(slog.LevelInfo, "lookup works again")
	}
}

// panicChanged logs that a group begins or stops sending flows to members that are down.
func (d *daemon) panicChanged(group string, panics bool, up, all int) {
	level, message := slog.LevelWarn, "too few members are up: all get flows"
	if !panics {
		level, message = slog.LevelInfo, "enough members are up again"
	}
	d.log.Log(context.Background(), level, message, "group", group, "up", up, "members", all)
	d.log.event(level, "health", group, message)
}

// flowsKept logs that flows of members that have failed continue.
func (d *daemon) flowsKept(group, member string, failed, all int) {
	const message = "most members have failed at once: their flows continue, whatever down says"
	d.log.Log(context.Background(), slog.LevelWarn, message, "group", group, "member", member, "failed", failed, "members", all)
	d.log.event(slog.LevelWarn, "health", group, message)
}

// reopen reopens log files after they were moved away.
func (d *daemon) reopen() {
	d.hooks.Accounting.Reopen()
	d.log.Info("log files reopened")
}

// close closes everything, flows too. It may be called in any state, once.
func (d *daemon) close() {
	d.closeAdmin(time.Second)
	d.keeping.Close()
	d.memory.budget.Close()
	d.stopNodeDrain()
	d.background.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Close()
	d.flows.Close()
	d.set.Close()
	d.hooks.Names.Close()
	d.hooks.Accounting.Close()
	d.listening.inherited.Close()
}
