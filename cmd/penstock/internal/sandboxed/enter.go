package sandboxed

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/discover"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/keeper"
	"github.com/penstock/penstock/sandbox"
)

// Input returns what the needs of a configuration are derived from.
func (c *Process) Input(cfg *spec.Config) sandboxneeds.Input {
	in := sandboxneeds.Input{
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
func (c *Process) needs(cfg *spec.Config) sandboxneeds.Needs {
	in := c.Input(cfg)
	in.Reloads, in.Alone, in.PipesLimited = c.source != nil, !c.replaceable(), pipesLimited()
	if in.Alone {
		in.Notify = os.Getenv("NOTIFY_SOCKET")
	}
	return sandboxneeds.Of(in)
}

// Enter gives up what the first configuration does not need, and returns what holds; nil: nothing, or it was called before.
// more is needed beside what the configuration says; narrow takes something out, in binaries for tests.
func (c *Process) Enter(cfg *spec.Config, more sandboxneeds.Needs, narrow func(*sandbox.Policy)) (*sandboxneeds.Held, error) {
	if c == nil || c.looked {
		return nil, nil
	}
	if h := c.held.Load(); h != nil {
		c.looked, c.anyPort, c.lookups = true, c.needs(cfg).First(sandboxneeds.AnyPort), readableFiles(lookupFiles)
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
	c.anyPort, c.members = needs.First(sandboxneeds.AnyPort), needs.AtRunTime()
	p := needs.Policy(mode, user)
	narrow(&p)
	h, err := keeping.EnterSandbox(p)
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) { // not Linux; a kernel that lacks a layer is no error, and in the report
			return nil, nil
		}
		return nil, err
	}
	c.looked, c.lookups = true, readableFiles(lookupFiles)
	c.held.Store(h)
	return h, c.tellKeeper(c.policy(cfg, h))
}

// SocketUser returns the user that the sockets of listeners belong to, because this process becomes that one when it enters; 0: it stays
// who it is. It is called before anything is bound. Neither inherited sockets nor members at run time matter: they need no capability.
func (c *Process) SocketUser(cfg *spec.Config) int {
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
func (c *Process) policy(cfg *spec.Config, h *sandboxneeds.Held) *earlykeeper.Policy {
	var files, folders []string
	if c.source != nil {
		files, folders = c.source.Inputs()
	}
	var logs []earlykeeper.Log
	if to := cfg.AccessLog.To; strings.HasPrefix(to, "/") {
		logs = []earlykeeper.Log{{Path: filepath.Clean(to), Mode: cmp.Or(cfg.AccessLog.Mode, account.DefaultMode)}}
	}
	files = append(files, cfg.Admin.TokenFiles[:]...)
	named, certificates := certificateFiles(cfg)
	return policyOf(cfg.Sandbox.Mode, h, append(files, named...), folders, certificates, logs)
}

// tellKeeper tells the keeper what this process may ask for, and the next one may do after a crash.
func (c *Process) tellKeeper(p *earlykeeper.Policy) error {
	if !c.keeping.MayAsk() {
		return nil
	}
	if err := c.keeping.SetPolicy(p.Text()); err != nil && !errors.Is(err, keeper.ErrLost) {
		return fmt.Errorf("sandbox: tell the keeper: %w", err)
	}
	return nil
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
