package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/confine"
	"github.com/penstock/penstock/cmd/penstock/internal/discover"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sandbox"
)

// confinement is the sandbox of this process: what it gives up when its first configuration is applied, after
// everything that needs privileges was opened, and before anything is read from clients, members or name servers. A nil
// *confinement has none, as in tests, which share their process.
//
//	(privileged) ──enter, or keeping.Link.EnterBefore──▶ confined ──a configuration that needs more──▶ another worker, or refused
type confinement struct {
	source    *config.Source // nil: there is none, and no reload
	paths     []string       // of the command line
	keeping   *keeping.Link
	inherited *systemd.Sockets
	// atRunTime returns the addresses of members that operators have added or moved, by group.
	atRunTime func([]*spec.Group) map[string][]spec.Endpoint
	held      *confine.Current
	looked    bool          // at the first configuration
	anyPort   string        // why all ports may be connected to; set before anybody asks
	members   confine.Needs // of members at run time
	lookups   []string      // the files of look-ups that may be read; set before anybody looks
}

// explain does the same.
func (c *confinement) explain(err error) error {
	if c == nil {
		return err
	}
	return c.held.Explain(err)
}

// current returns what this process holds of the sandbox, from when it has entered; nil: it gives up nothing.
func (c *confinement) current() *confine.Current {
	if c == nil {
		return nil
	}
	return c.held
}

// newConfinement returns the sandbox of a process that runs what is in source; nil: a configuration of the command line alone. The daemon
// is added by follow.
func newConfinement(source *config.Source, k *keeping.Link, held *confine.Current) *confinement {
	c := &confinement{source: source, keeping: k, held: held}
	if k.InSandboxBefore() {
		c.held.Store(k.Confined())
	}
	if source != nil {
		c.paths = source.Paths
	}
	return c
}

// follow adds what a daemon has inherited, and its members at run time.
func (c *confinement) follow(d *daemon) { c.inherited, c.atRunTime = d.inherited, d.set.AtRunTime }

// replaceable reports whether another worker can take over.
func (c *confinement) replaceable() bool { return c.keeping.Up() }

// input returns what the needs of a configuration are derived from.
func (c *confinement) input(cfg *spec.Config) confine.Input {
	in := confine.Input{
		Config: cfg, Credentials: discover.Credentials, FirstPort: host.FirstUnprivilegedPort(), DeviceNeedsRaw: host.KernelOlderThan(5, 7),
	}
	if c.inherited != nil {
		in.Inherited = func(name string) (k spec.Kind) {
			k.UnmarshalText([]byte(c.inherited.Kind(name)))
			return k
		}
	}
	if c.atRunTime != nil {
		in.Members = c.atRunTime(cfg.Groups)
	}
	if c.source != nil {
		in.Files, in.Folders = c.source.Inputs()
	}
	for _, path := range c.paths {
		if spec.IsRemote(path) {
			if r, _, err := spec.ParseRemote(path); err == nil {
				in.Remotes = append(in.Remotes, r)
			}
		}
	}
	return in
}

// needs returns what this process needs that begins with a configuration.
func (c *confinement) needs(cfg *spec.Config) confine.Needs {
	in := c.input(cfg)
	in.Reloads, in.Alone, in.PipesLimited = c.source != nil, !c.replaceable(), pipesLimited()
	if in.Alone {
		in.Notify = os.Getenv("NOTIFY_SOCKET")
	}
	return confine.Of(in)
}

// enter gives up what the first configuration does not need, and returns what holds; nil: nothing, or it was called before.
func (c *confinement) enter(cfg *spec.Config, more confine.Needs) (*confine.Held, error) {
	if c == nil || c.looked {
		return nil, nil
	}
	if h := c.held.Load(); h != nil {
		c.looked, c.anyPort, c.lookups = true, c.needs(cfg).First(confine.AnyPort), allowed(lookupFiles)
		return h, nil
	}
	if cfg.Sandbox.Mode == keeping.ModeOff || cfg.Sandbox.Mode == "" {
		c.looked = true
		return nil, c.tellKeeper(&earlykeeper.Policy{Mode: keeping.ModeOff})
	}
	user, err := lookUpUser(cfg.Sandbox.User)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	mode := sandbox.Enforce
	if cfg.Sandbox.Mode == "log" {
		mode = sandbox.Log
	}
	if state := cfg.Node.State; state != "" {
		makeStateFolder(state, user)
	}
	needs := append(c.needs(cfg), more...)
	c.anyPort, c.members = needs.First(confine.AnyPort), needs.AtRunTime()
	p := needs.Policy(mode, user)
	narrow(&p)
	h, err := keeping.EnterSandbox(p)
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, nil
		}
		return nil, err
	}
	c.looked, c.lookups = true, allowed(lookupFiles)
	c.held.Store(h)
	return h, c.tellKeeper(c.policy(cfg, h))
}

// socketUser returns the user that the sockets of listeners belong to, because this process becomes that one when it enters; 0: it stays
// who it is. It is called before anything is bound. Neither inherited sockets nor members at run time matter: they need no capability.
func (c *confinement) socketUser(cfg *spec.Config) int {
	if c == nil || cfg.Sandbox.Mode == keeping.ModeOff || cfg.Sandbox.Mode == "" {
		return 0
	}
	user, err := lookUpUser(cfg.Sandbox.User)
	if err != nil || user == nil || !sandbox.CanBecome(c.needs(cfg).Policy(sandbox.Enforce, user)) {
		return 0
	}
	return user.UID
}

// policy returns what the keeper is to know.
func (c *confinement) policy(cfg *spec.Config, h *confine.Held) *earlykeeper.Policy {
	var files, folders []string
	if c.source != nil {
		files, folders = c.source.Inputs()
	}
	var logs []earlykeeper.Log
	if to := cfg.AccessLog.To; strings.HasPrefix(to, "/") {
		logs = []earlykeeper.Log{{Path: filepath.Clean(to), Mode: cmp.Or(cfg.AccessLog.Mode, account.DefaultMode)}}
	}
	files = append(files, cfg.Admin.TokenFiles[:]...)
	of, certificates := certificateFiles(cfg)
	return policyOf(cfg.Sandbox.Mode, h, append(files, of...), folders, certificates, logs)
}

// tellKeeper tells the keeper what this process may ask for, and the next one may do after a crash.
func (c *confinement) tellKeeper(p *earlykeeper.Policy) error {
	if !c.keeping.Present() || !c.keeping.MayAsk() {
		return nil
	}
	if err := c.keeping.SetPolicy(p.Text()); err != nil && !errors.Is(err, keeper.ErrLost) {
		return fmt.Errorf("sandbox: tell the keeper: %w", err)
	}
	return nil
}

// lookupFiles are files that package net reads at any time.
var lookupFiles = []string{confine.Resolver, "/etc/hosts"}

// allowed returns those of the files that this process may read, or that do not exist.
func allowed(files []string) (list []string) {
	for _, path := range files {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			list = append(list, path)
		}
	}
	return list
}

// lost returns the first file of look-ups that this process may not read any more, because it is another file now; empty: there is none.
func (c *confinement) lost() string {
	now := allowed(c.lookups)
	for _, path := range c.lookups {
		if !slices.Contains(now, path) {
			return path
		}
	}
	return ""
}

// lookInterval is how often the files of look-ups are opened.
const lookInterval = 2 * time.Second

// watchLookups hands over to another worker when the files of look-ups were replaced by others, until the daemon closes: without
// them, names are asked for at a name server that is not there.
func (d *daemon) watchLookups() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var told time.Time
	for {
		select {
		case <-d.closing:
			return
		case <-tick.C:
		}
		path := d.confined.lost()
		if path == "" || !d.keeping.Up() || time.Since(told) < time.Minute {
			continue
		}
		told = time.Now()
		const by = "the sandbox"
		before, err := d.replaceFor(by, fmt.Errorf("%s was replaced", path))
		if err == nil {
			d.background.Go(func() { d.watchReplacement(before, d.reloadNotReplaced(by)) })
		} else {
			d.log.Error("no other worker", "error", err)
		}
	}
}

// pipesLimited reports whether the pipes of a user are limited. pipe(7).
func pipesLimited() bool {
	text, err := os.ReadFile("/proc/sys/fs/pipe-user-pages-soft")
	return err == nil && strings.TrimSpace(string(text)) != "0"
}

// makeStateFolder makes the folder for what later processes need, because its parent cannot be written later. If it
// fails, whoever writes there tells.
func makeStateFolder(path string, u *sandbox.User) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if os.MkdirAll(path, 0o700) == nil && u != nil {
		os.Lchown(path, u.UID, u.GID)
	}
}

// lookUpUser returns the user of the configuration; nil: none.
func lookUpUser(name string) (*sandbox.User, error) {
	if name == "" {
		return nil, nil
	}
	if uid, gid, ok := strings.Cut(name, ":"); ok {
		u, err1 := strconv.Atoi(uid)
		g, err2 := strconv.Atoi(gid)
		return &sandbox.User{UID: u, GID: g}, errors.Join(err1, err2)
	}
	found, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("user: no user %q on this host; allowed: the name of one, or UID:GID", name)
	}
	u := &sandbox.User{}
	if u.UID, err = strconv.Atoi(found.Uid); err == nil {
		u.GID, err = strconv.Atoi(found.Gid)
	}
	if err != nil {
		return nil, err
	}
	groups, err := found.GroupIds()
	if err != nil {
		return nil, err
	}
	for _, text := range groups {
		if g, err := strconv.Atoi(text); err == nil && g != u.GID {
			u.Groups = append(u.Groups, g)
		}
	}
	return u, nil
}

// confine has this process enter its sandbox. It is called once everything is open that the first configuration needs;
// nothing that fails afterwards can be tried with another configuration that needs more.
func (d *daemon) confine(cfg *spec.Config, bound map[bindKey]*hooks.Socket) error {
	var more confine.Needs
	for _, l := range bound {
		if a := l.Addr(); a.Network == relay.TCP { // a port that was any free one, too: see nodeDrain
			more = append(more, confine.Need{Kind: confine.Bind, Port: a.AddrPort.Port()})
		}
	}
	h, err := d.confined.enter(cfg, more)
	if h == nil || err != nil {
		return err
	}
	if d.keeping.Present() && h.Policy.Mode == sandbox.Enforce && h.Report.Held(sandbox.Files) {
		d.background.Go(d.watchLookups)
	}
	var held, not []string
	for _, l := range d.confined.status().Layers {
		text := l.Name
		if l.Why != "" {
			text += " (" + l.Why + ")"
		}
		if l.Held {
			held = append(held, text)
		} else {
			not = append(not, text)
		}
	}
	attrs := []any{"mode", cfg.Sandbox.Mode, "held", strings.Join(held, ", ")}
	if len(not) > 0 {
		attrs = append(attrs, "not_held", strings.Join(not, ", "))
	}
	if len(d.confined.members) > 0 {
		attrs = append(attrs, "members_at_run_time", d.confined.members.String())
	}
	if len(h.Report.Absent) > 0 {
		d.log.Debug("sandbox", "absent", strings.Join(h.Report.Absent, ", "))
	}
	d.log.Info("sandbox", attrs...)
	return nil
}

// needsMore is the error of a configuration, or of a member at run time, that needs what this process has given up.
type needsMore struct {
	who     string
	missing confine.Needs
}

func (e *needsMore) Error() string {
	return e.who + " needs what this process gave up when it started (sandbox): " + e.missing.String()
}

// checkNeeds returns a *needsMore if this process cannot do what a configuration needs.
func (d *daemon) checkNeeds(cfg *spec.Config) error {
	c := d.confined
	if c == nil || c.held.Load() == nil || d.active.Load().since.IsZero() {
		return nil // or the first one, which ran before in this sandbox: its sockets are held
	}
	ports := map[uint16]bool{}
	for key, l := range d.bound {
		if key.addr.Path == "" {
			ports[l.Addr().AddrPort.Port()] = true
		}
	}
	missing := c.held.Load().Missing(confine.Of(c.input(cfg)), func(n confine.Need) bool {
		switch n.Kind {
		case confine.LowPort:
			return ports[n.Port]
		case confine.Bind:
			return ports[n.Port] || slices.Contains(adminPorts(d), n.Port)
		}
		return false
	})
	missing = append(missing, d.otherModes(cfg)...)
	if len(missing) > 0 {
		return &needsMore{"the configuration", missing}
	}
	return nil
}

// otherModes returns the Unix sockets of listeners whose permissions a configuration changes, if they belong to the user that this process was.
func (d *daemon) otherModes(cfg *spec.Config) (n confine.Needs) {
	h := d.confined.held.Load()
	if h.Policy.Mode != sandbox.Enforce || h.Policy.User == nil || !h.Report.Held(sandbox.Credentials) {
		return nil
	}
	modes := map[bindKey]uint32{}
	for _, l := range d.active.Load().Listeners {
		modes[bindKeyOf(l, 0)] = l.Mode
	}
	for _, l := range cfg.Listeners {
		if was, ok := modes[bindKeyOf(l, 0)]; ok && strings.HasPrefix(l.Listen.Path, "/") && l.Mode != 0 && l.Mode != was {
			n = append(n, confine.Need{Kind: confine.Modes, For: "listeners." + l.Name + ".mode"})
		}
	}
	return n
}

// missingFiles returns the files of the configuration that this process cannot read any more.
func (c *confinement) missingFiles() confine.Needs {
	if c == nil || c.held.Load() == nil || c.source == nil {
		return nil
	}
	files, folders := c.source.Inputs()
	n := confine.Of(confine.Input{Config: &spec.Config{}, Files: files, Folders: folders})
	return c.held.Load().Missing(n, func(n confine.Need) bool { return n.Kind != confine.Read })
}

// status returns what this process has given up; nil: nothing.
func (c *confinement) status() *api.Sandbox {
	if c == nil || c.held.Load() == nil {
		return nil
	}
	h := c.held.Load()
	s := &api.Sandbox{Mode: "on", Layers: []api.SandboxLayer{}}
	if h.Policy.Mode == sandbox.Log {
		s.Mode = "log"
	}
	for _, l := range h.Report.Layers {
		why := l.Why
		if l.Layer == sandbox.Network && h.Policy.AnyConnect && h.Policy.AnyBind {
			why = "not wanted: " + c.anyPort
		}
		if l.Layer == sandbox.Capabilities && l.Held {
			why = keeps(h.Policy.Keep, h.Had)
		}
		s.Layers = append(s.Layers, api.SandboxLayer{Name: l.Layer.String(), Held: l.Held, Wanted: l.Wanted, Why: why})
	}
	return s
}

// keeps names the capabilities that a process has kept.
func keeps(list []sandbox.Capability, had uint64) string {
	names := map[sandbox.Capability]string{sandbox.NetBindService: "CAP_NET_BIND_SERVICE", sandbox.NetAdmin: "CAP_NET_ADMIN", sandbox.NetRaw: "CAP_NET_RAW", confine.SysResource: "CAP_SYS_RESOURCE"}
	var kept []string
	for _, c := range list {
		if had>>c&1 != 0 {
			kept = append(kept, names[c])
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return "keeps " + strings.Join(kept, ", ")
}

// adminPorts returns the ports of the admin listener, which stays as it is until another process runs.
func adminPorts(d *daemon) (list []uint16) {
	for _, at := range d.active.Load().Admin.Listen {
		list = append(list, at.Port)
	}
	return list
}

// refusedBySandbox reports whether a reload failed for lack of what the sandbox took, as far as that can be seen.
func (d *daemon) refusedBySandbox(err error) bool {
	var more *needsMore
	if errors.As(err, &more) {
		return true
	}
	return d.confined != nil && d.confined.held.Load() != nil && errors.Is(err, fs.ErrPermission)
}

// replacedInVain reports whether this worker has taken over a moment ago with an older version than a registry has: it did not answer
// in time, and one worker after the other would be started.
func (d *daemon) replacedInVain() bool {
	return d.remotes != nil && d.keeping.Replaced() && time.Since(d.keeping.Began) < time.Minute
}

// withoutReplacement returns the error of a reload that needs more, where no other worker can take over.
func withoutReplacement(err error) error {
	var more *needsMore
	if !errors.As(err, &more) {
		return err
	}
	return api.NewProblem(http.StatusConflict, more.Error(),
		"a restart of the service; or keeper: {}, with which another worker takes over when a reload needs more; or sandbox: {mode: off}")
}

// reloadFailed remembers and tells that a reload failed.
func (d *daemon) reloadFailed(by string, problem *api.Problem) {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	d.reloads.bad++
	d.keeping.Values.GoOn(reloadsBad, d.reloads.bad)
	d.reloads.failed = &api.FailedReload{Time: time.Now(), Errors: problem.Errors}
	for _, e := range problem.Errors {
		d.log.Error("configuration rejected; nothing changed", "by", by, "error", e.Message)
	}
	d.eventBy(by, slog.LevelError, "reload", d.active.Load().Source, problem.Error())
}

// maxAsked bounds the files that the keeper may be asked for.
const maxAsked = 512

// policyOf returns what the keeper is to know of a process in a sandbox. files and folders are what it was configured by, certificates
// folders of these; its paths are absolute.
func policyOf(mode string, h *confine.Held, files, folders, certificates []string, logs []earlykeeper.Log) *earlykeeper.Policy {
	absolute := func(list []string) (out []string) {
		for _, path := range list {
			if abs, err := filepath.Abs(path); path != "" && err == nil && len(out) < maxAsked && !slices.Contains(out, abs) {
				out = append(out, abs)
			}
		}
		return out
	}
	p := &earlykeeper.Policy{Mode: mode, Files: absolute(files), Folders: absolute(folders), Certificates: absolute(certificates), Logs: logs,
		Confined: h.Report.Held(sandbox.Files), Write: slices.Clone(h.Policy.Write)}
	for _, path := range h.Policy.Write { // the keeper compares where things really are
		if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(p.Write, real) {
			p.Write = append(p.Write, real)
		}
	}
	if u := h.Policy.User; u != nil && h.Report.Held(sandbox.Credentials) {
		p.Becomes, p.UID = true, u.UID
	}
	p.Sandbox, _ = json.Marshal(h.Policy) // paths and numbers
	return p
}
