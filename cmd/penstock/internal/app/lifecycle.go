package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxed"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
)

// runCmd is the command run.
type runCmd struct {
	Config []string `short:"c" required:"" sep:"none" placeholder:"FILE" help:"The configuration: a file, a folder, - for standard input, or what penstock publish has put into etcd: etcd://HOST:PORT/KEY. Several are layers: each one changes those before it."`
	Node   string   `env:"PENSTOCK_NODE" placeholder:"ID" help:"Who this relay is among others (default: the host's name)."`
	Zone   string   `env:"PENSTOCK_ZONE" placeholder:"ZONE" help:"The zone that this relay is in, for groups with zone: prefer."`
	State  string   `env:"PENSTOCK_STATE,STATE_DIRECTORY" placeholder:"DIR" help:"The folder for what a start needs while registries are away: the last good configuration from etcd, and members. It is created if it is not there (default: $$STATE_DIRECTORY, which systemd sets)."`
}

// Help returns the text that penstock run --help prints below the flags.
func (runCmd) Help() string {
	return "SIGHUP reloads the configuration, SIGUSR1 reopens log files, and with a keeper, SIGUSR2 upgrades to the file that is now at the path of the binary. The first SIGINT or SIGTERM stops listening and lets flows finish; a second one ends them all at once.\n\n" + cli.ExitCodeHelp
}

func (c *runCmd) run(stderr *os.File) int {
	k, ok := connectKeeper(stderr)
	if !ok {
		return cli.ExitFailed
	}
	remotes, err := sources.Open(c.Config, sources.Options{Node: c.node(), Folder: c.stateFolder(), Program: version()}, workerBefore{k})
	if err != nil {
		fmt.Fprintln(stderr, config.Message(err))
		k.GiveUp(err)
		return cli.ExitUsage
	}
	defer remotes.Close()
	if !awaitFirst(remotes, k, stderr) {
		k.Leaving()
		return cli.ExitOK
	}
	source := &config.Source{Paths: c.Config, Node: c.node(), Remote: remotes.Text, Open: k.Asker(earlykeeper.Read)}
	cfg, warnings, err := source.Load(rules.OnHost(false)...)
	if err != nil && !k.GoesOn() && remotes.FallBack(workerBefore{k}, err) {
		cfg, warnings, err = source.Load(rules.OnHost(false)...)
	}
	l := &lifecycle{source: source, remotes: remotes, warnings: warnings, keeping: k}
	if k.Unplanned() || err != nil && k.GoesOn() && !k.Replaced() { // the worker that is to be replaced goes on better than this one could
		cfg, err = l.resume(cfg, err)
	}
	if err != nil {
		fmt.Fprintln(stderr, config.Message(err))
		k.GiveUp(err)
		return cli.ExitUsage
	}
	return l.run(cfg, stderr)
}

// node returns who the relay is.
func (c *runCmd) node() spec.Node {
	n := spec.Node{ID: c.Node, Zone: c.Zone, State: c.stateFolder()}
	if n.ID == "" {
		n.ID, _ = os.Hostname()
	}
	return n
}

// stateFolder returns the folder for what outlives the process, as an absolute path. systemd may
// name several.
func (c *runCmd) stateFolder() string {
	folder, _, _ := strings.Cut(c.State, ":")
	if abs, err := filepath.Abs(folder); err == nil && folder != "" {
		return abs
	}
	return folder
}

// Validate is called by kong.
func (c *runCmd) Validate() error {
	for flag, text := range map[string]string{"--node": c.Node, "--zone": c.Zone} {
		if !spec.ValidNode(text) && text != "" {
			return fmt.Errorf("%s: invalid name %q; allowed: up to 253 letters, digits, _, . and -, not beginning with . or -", flag, text)
		}
	}
	return nil
}

func (c *relayCmd) run(stderr *os.File) int {
	k, ok := connectKeeper(stderr)
	if !ok {
		return cli.ExitFailed
	}
	return (&lifecycle{keeping: k}).run(c.config(), stderr)
}

// resume returns the configuration of a worker that comes after one that died: that of the worker before.
// The source may have changed since, and nobody has asked for a reload. loaded and failed are the result
// of reading it; it is used only if nothing else is left.
func (l *lifecycle) resume(loaded *spec.Config, failed error) (*spec.Config, error) {
	if err := l.keeping.EnterBefore(); errors.Is(err, keeping.ErrNotKnown) {
		return loaded, failed
	} else if err != nil {
		return nil, err
	}
	saved, err := l.keeping.SavedConfig()
	switch {
	case err != nil:
		return loaded, failed
	case failed != nil:
		l.stale = failed
	case !bytes.Equal(saved.Text, loaded.Text):
		l.stale = fmt.Errorf("%s has changed since; penstock reload applies it", loaded.Source)
	default:
		return loaded, nil
	}
	saved.Node = l.source.Node
	return saved, nil
}

// connectKeeper returns the link to the keeper. It reports whether all is well.
func connectKeeper(stderr *os.File) (*keeping.Link, bool) {
	k, err := keeping.Connect(version())
	if err != nil {
		fmt.Fprintln(stderr, "penstock: connect to the keeper:", err)
	}
	return k, err == nil
}

// awaitFirst waits for registries before there is a configuration that says how to log.
func awaitFirst(r *sources.Remotes, k *keeping.Link, stderr *os.File) bool {
	if r == nil {
		return true
	}
	log, lines, _ := logs.New(stderr, &spec.Log{Level: "info", Format: "auto"}, new(slog.LevelVar), new(sandboxneeds.Current).Explain)
	defer lines.Close()
	return r.Await(workerBefore{k}, log)
}

// before is what sources.Open is told of the worker before this one.
type workerBefore struct{ k *keeping.Link }

func (b workerBefore) Layers() map[string]spec.Layer { return b.k.LayersBefore() }

// Trusted does not hold for a planned restart, which may be for what the registry has now.
func (b workerBefore) Trusted() bool { return b.k.Trusts() && !b.k.Replaced() }

func (b workerBefore) Enter() error { return b.k.EnterBefore() }

func (b workerBefore) Status(text string) { b.k.Manager().Status(text) }

// A lifecycle runs a daemon from start to end, and handles signals.
//
//	serving ──signal──▶ draining ──no flow left──▶ closed (0)
//	                       ├──deadline──▶ closed (3)
//	                       └──signal──▶ closed (4)
type lifecycle struct {
	source   *config.Source   // of penstock run; nil: penstock relay
	remotes  *sources.Remotes // what of it is in registries
	warnings config.Warnings
	stale    error // why the configuration is that of the worker before, and not the source's; nil: it is the source's
	keeping  *keeping.Link

	level slog.LevelVar
	held  sandboxneeds.Current // by which the log explains errors
	log   *slog.Logger
	lines *logs.Writer
	// screen is nil unless a person watches. stopScreen removes its live line; it may be called
	// more than once.
	screen     *logs.Screen
	stopScreen func()
	d          *daemon
	lingers    time.Duration  // this worker has handed over, and goes on for so long; 0: it ends
	watch      *sources.Watch // of the source's files
}

func (l *lifecycle) run(cfg *spec.Config, stderr *os.File) int {
	if cfg.Keeper != nil && !l.keeping.Present() {
		fmt.Fprintln(stderr, "penstock:", keeping.Become(cfg.Keeper, &cfg.Log, l.source, stderr))
		return cli.ExitFailed
	}
	l.log, l.lines, l.screen = logs.New(stderr, &cfg.Log, &l.level, l.held.Explain)
	defer l.lines.Close()
	// From here on signals come to this function. A reader of the log or a
	// socket must not end the daemon by going away: without SIGPIPE, writing returns an error.
	signals := host.NotifySignals()
	defer signals.Close()
	signal.Ignore(syscall.SIGPIPE)

	if n, err := host.RaiseDescriptorLimit(); err != nil {
		l.log.Warn("cannot raise the descriptor limit", "limit", n, "error", err)
	} else {
		l.log.Debug("descriptor limit", "limit", n)
	}
	logWarnings(l.log, l.warnings)
	if l.source != nil {
		for _, path := range sources.Experimental(l.source.Paths) {
			l.log.Warn("experimental", "configuration", spec.RemoteName(path), "why", sources.ExperimentalWhy)
		}
	}
	for _, g := range cfg.Groups {
		if g.Zone == spec.ZonePrefer && cfg.Node.Zone == "" {
			l.log.Warn("zone: prefer has no effect, because the relay has no zone; see penstock run --zone", "group", g.Name)
		}
	}
	if l.stale != nil {
		for _, line := range strings.Split(config.Message(l.stale), "\n") {
			l.log.Error("the configuration is that of the worker before", "why", line)
		}
	}
	var err error
	if l.watch, err = sources.WatchFiles(l.source); err != nil {
		l.log.Warn("cannot watch the configuration files", "error", err)
	}
	defer l.watch.Close()
	// A signal also ends lookups; serve receives it from its channel again.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = l.start(ctx, cfg)
	stop()
	if err != nil {
		l.log.Error("cannot start", "error", err)
		return cli.ExitFailed
	}
	return l.serve(signals)
}

func logWarnings(log *slog.Logger, warnings config.Warnings) {
	for _, w := range warnings {
		log.Warn("configuration", "warning", w.Error())
	}
}

// start starts a daemon. The end of ctx ends lookups of names.
func (l *lifecycle) start(ctx context.Context, cfg *spec.Config) (err error) {
	ahead := readAhead(ctx, cfg)
	if err = l.keeping.Prepare(cfg, l.log); err == nil {
		process := sandboxed.New(l.source, l.keeping, &l.held)
		if l.d, err = newDaemon(l.log, &l.level, l.lines.DroppedLines, cfg, l.keeping, process); err == nil {
			process.Follow(l.d.listening.inherited, l.d.set.AtRunTime)
			l.d.sandboxed, l.d.listsAhead = process, ahead
		}
	}
	if err != nil {
		l.keeping.GiveUp(err)
		l.keeping.Close()
		return err
	}
	if l.keeping.Before().Drain {
		l.d.Drain()
	}
	if l.source != nil {
		l.d.reloads.load = l.load
	}
	l.d.reloads.remotes = l.remotes
	l.d.fleet.setRegistry(l.source)
	if l.keeping.Unplanned() || l.stale != nil { // the configuration is not a new one, so that this still holds
		l.d.reloads.failed = l.d.keeping.Before().Failed
	}
	if l.stale != nil {
		l.d.log.event(slog.LevelError, "reload", cfg.Source, "the configuration is that of the worker before: "+strings.ReplaceAll(strings.TrimPrefix(config.Message(l.stale), "penstock: "), "\n", "; "))
	}
	err = l.applyFirst(ctx, cfg)
	if err != nil && !l.keeping.First() {
		// What the keeper holds, listeners and flows, is for the next worker: nothing is closed but by the end of this process.
		l.keeping.GiveUp(err)
		return err
	}
	if err == nil {
		err = l.d.restore()
		l.d.goOnDraining()
	}
	switch {
	case err != nil:
	case !l.keeping.First(): // clients wait
	case l.source == nil:
		err = l.d.waitForLookups(ctx, lookupTimeout) // a wrong name on the command line stays wrong
	default:
		l.d.waitForLookups(ctx, startLookups) // failures are logged, and looked up again
	}
	if err == nil {
		l.d.serveAdmin()
		l.d.background.Go(l.d.saveChanges)
	}
	if err != nil {
		l.keeping.GiveUp(err)
		l.d.close()
	}
	return err
}

// applyFirst applies the first configuration. If that fails, it applies the last good one from disk, if there is one.
func (l *lifecycle) applyFirst(ctx context.Context, cfg *spec.Config) error {
	err := l.d.apply(ctx, cfg)
	if err != nil && ctx.Err() == nil && l.stale == nil && !l.keeping.GoesOn() && l.remotes.FallBack(workerBefore{l.keeping}, err) {
		if saved, _, failed := l.load(); failed == nil {
			err = l.d.apply(ctx, keepUntilRestart(cfg, saved)) // the engine and the admin listener are there already
		}
	}
	if err != nil && ctx.Err() == nil && l.keeping.InSandboxBefore() && errors.Is(err, fs.ErrPermission) {
		err = l.applyOlder(ctx, cfg, err)
	}
	if err != nil && ctx.Err() == nil && l.keeping.Unplanned() {
		err = l.d.applyWithout(ctx, cfg, err)
	}
	if err == nil {
		l.d.settleRemotes(nil)
	}
	return err
}

// applyOlder applies the configuration before cfg. In the sandbox of the worker before, cfg may ask for too much: it may be that of a
// worker that died before it was ready.
func (l *lifecycle) applyOlder(ctx context.Context, cfg *spec.Config, why error) error {
	for _, older := range l.keeping.SavedConfigs() {
		if bytes.Equal(older.Text, cfg.Text) {
			continue
		}
		older.Node = cfg.Node
		if l.d.apply(ctx, keepUntilRestart(cfg, older)) == nil {
			l.stale = why
			l.log.Error("the configuration is an older one of the worker before", "why", why.Error())
			return nil
		}
	}
	return why
}

// startLookups bounds how long the start of penstock run waits for the first DNS answers, so that
// the first clients find members.
const startLookups = time.Second

// serve runs a daemon that has started, and closes it.
func (l *lifecycle) serve(signals host.Signals) int {
	handOver := l.d.serveKeeper()
	l.keeping.DropOthers()
	if l.d.reloads.ready() {
		l.d.saveState(savedSources)
	}
	l.greet() // whoever is told that this worker is ready can have it upgraded
	defer l.stopScreen()
	l.d.leaveMembers()
	attack(l)
	l.d.notifyManager()
	l.dueReload()
	l.d.background.Go(host.LeaveStart)
	watchdog, err := systemd.Watchdog(func() bool { l.d.engine.Stats(); return true })
	if err != nil {
		l.log.Warn("no watchdog", "error", err)
	} else {
		defer watchdog()
	}
	for {
		select { // the end comes before what else there is to do
		case s := <-signals.End:
			return l.drain(s, signals)
		case <-l.d.shutdown.requested:
			return l.drain(nil, signals)
		default:
		}
		select {
		case s := <-signals.End:
			return l.drain(s, signals)
		case <-signals.Reload:
			l.reload("signal")
		case <-signals.Reopen:
			l.d.reopen()
		case <-signals.Upgrade:
			if !l.keeping.Present() {
				l.log.Warn("SIGUSR2 has no effect: an upgrade needs a keeper (keeper: {} in the configuration)")
			}
		case <-l.watch.Changed:
			if l.d.active.Load().Reload.Watch {
				l.reload("the configuration files have changed")
			}
		case <-l.remotes.Changes():
			l.remotes.Tell(l.d.tellRemote)
			l.d.tellNotKept(l.remotes.Keep())
			if why := l.remotes.Pending(); why != "" {
				l.reload(why)
			}
		case <-l.d.shutdown.requested:
			return l.drain(nil, signals)
		case <-handOver:
			if l.handOver(signals) {
				if l.lingers > 0 {
					l.linger(signals, handOver)
				}
				return cli.ExitOK // the engine keeps its descriptors: closing them would end flows
			}
		}
	}
}

// greet announces that the daemon is ready: to a person with a greeting and a live line, to
// others with log lines.
func (l *lifecycle) greet() {
	l.stopScreen = func() {}
	first := l.keeping.First() // the next ones have told what continues
	l.d.setReady(l.screen == nil && first)
	if l.screen == nil {
		return
	}
	var files []string
	if l.source != nil {
		files = l.source.Paths
	}
	if first {
		l.lines.Write([]byte(l.d.greeting(files)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.screen.Run(ctx, l.d.liveLine())
	}()
	l.stopScreen = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(logs.CloseWait): // the terminal was stopped
		}
	}
}

// load reads the configuration.
func (l *lifecycle) load() (*spec.Config, config.Warnings, error) {
	cfg, warnings, err := l.source.Load(rules.OnHost(l.d.gaveUp())...)
	l.watch.Follow(l.source.Inputs()) // also after an error, which a change of these files may fix
	return cfg, warnings, err
}

// reload makes the file the running configuration. If it is invalid nothing changes, and the log
// says why.
func (l *lifecycle) reload(why string) {
	l.logNotifyError(l.keeping.Manager().Reloading("reloading"))
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	l.d.reload(ctx, why) // also tells the manager that the reload is over
}

// dueReload carries out the reload that was left to this worker. One for which another worker could not take over has failed: that one
// would be asked for again and again.
func (l *lifecycle) dueReload() {
	const by = "the worker before"
	switch u := l.keeping.NotReplaced(); {
	case !l.d.reloads.all().Due:
	case u != nil:
		l.d.reloadNotReplaced(by)(u)
		l.d.notifyManager()
		l.d.saveState(savedSources)
	default:
		l.reload(by + " was asked for it while it handed over")
	}
}

// reloadTimeout bounds the lookups of a reload's new listeners.
const reloadTimeout = 20 * time.Second

func (l *lifecycle) logNotifyError(err error) {
	if err != nil {
		l.log.Warn("cannot notify the service manager", "error", err)
	}
}
