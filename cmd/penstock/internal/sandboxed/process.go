package sandboxed

import (
	"strings"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
	"github.com/penstock/penstock/sandbox"
)

// A Process is the sandbox of this process: what it gives up when its first configuration is applied, after
// everything that needs privileges was opened, and before anything is read from clients, members or name servers. A nil
// *Process has none, as in tests, which share their process.
//
//	(privileged) ──Enter, or keeping.Link.EnterBefore──▶ in its sandbox ──a configuration that needs more──▶ another worker, or refused
type Process struct {
	source    *config.Source // nil: there is none, and no reload
	paths     []string       // of the command line
	keeping   *keeping.Link
	inherited *systemd.Sockets
	// atRunTime returns the addresses of members that operators have added or moved, by group.
	atRunTime func([]*spec.Group) map[string][]spec.Endpoint
	held      *sandboxneeds.Current
	looked    bool               // at the first configuration
	anyPort   string             // why all ports may be connected to; set before anybody asks
	members   sandboxneeds.Needs // of members at run time
	lookups   []string           // the files of look-ups that may be read; set before anybody looks
}

// Explain returns an error, and says that it is the sandbox's if it is.
func (c *Process) Explain(err error) error {
	if c == nil {
		return err
	}
	return c.held.Explain(err)
}

// Current returns what this process holds of the sandbox, from when it has entered; nil: it gives up nothing.
func (c *Process) Current() *sandboxneeds.Current {
	if c == nil {
		return nil
	}
	return c.held
}

// New returns the sandbox of a process that runs what is in source; nil: a configuration of the command line alone. The daemon
// is added by Follow.
func New(source *config.Source, k *keeping.Link, held *sandboxneeds.Current) *Process {
	c := &Process{source: source, keeping: k, held: held}
	if k.InSandboxBefore() {
		c.held.Store(k.SandboxBefore())
	}
	if source != nil {
		c.paths = source.Paths
	}
	return c
}

// Follow adds what a daemon has inherited, and its members at run time.
func (c *Process) Follow(inherited *systemd.Sockets, atRunTime func([]*spec.Group) map[string][]spec.Endpoint) {
	c.inherited, c.atRunTime = inherited, atRunTime
}

// Held returns what this process holds of its sandbox; nil: it has not entered, or gives up nothing.
func (c *Process) Held() *sandboxneeds.Held {
	if c == nil {
		return nil
	}
	return c.held.Load()
}

// Members returns what members at run time may need.
func (c *Process) Members() sandboxneeds.Needs { return c.members }

// replaceable reports whether another worker can take over.
func (c *Process) replaceable() bool { return c.keeping.Up() }

// MissingFiles returns the files of the configuration that this process cannot read any more.
func (c *Process) MissingFiles() sandboxneeds.Needs {
	if c == nil || c.held.Load() == nil || c.source == nil {
		return nil
	}
	files, folders := c.source.Inputs()
	n := sandboxneeds.Of(sandboxneeds.Input{Config: &spec.Config{}, Files: files, Folders: folders})
	return c.held.Load().Missing(n, func(n sandboxneeds.Need) bool { return n.Kind != sandboxneeds.Read })
}

// Status returns what this process has given up; nil: nothing.
func (c *Process) Status() *api.Sandbox {
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
			why = keptCapabilities(h.Policy.Keep, h.Had)
		}
		s.Layers = append(s.Layers, api.SandboxLayer{Name: l.Layer.String(), Held: l.Held, Wanted: l.Wanted, Why: why})
	}
	return s
}

// keptCapabilities names the capabilities that a process has kept.
func keptCapabilities(list []sandbox.Capability, had uint64) string {
	names := map[sandbox.Capability]string{sandbox.NetBindService: "CAP_NET_BIND_SERVICE", sandbox.NetAdmin: "CAP_NET_ADMIN", sandbox.NetRaw: "CAP_NET_RAW", sandboxneeds.SysResource: "CAP_SYS_RESOURCE"}
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

// Permits reports whether this process may connect to a member.
func (c *Process) Permits(to spec.Endpoint) bool {
	return c == nil || len(c.held.Load().Missing(sandboxneeds.OfEndpoint(sandboxneeds.Upstream, to, ""), nil)) == 0
}
