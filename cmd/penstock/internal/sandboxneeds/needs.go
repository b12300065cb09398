package sandboxneeds

import (
	"path/filepath"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/sandbox"
)

// Input is what needs are derived from, besides the kernel's limits.
type Input struct {
	Config *spec.Config
	// Files and Folders are what the configuration was read from; see config.Source.Inputs.
	Files, Folders []string
	// Remotes are the registries of the command line.
	Remotes []spec.Registry
	// Credentials returns the files and servers of a registry whose own files name them, such as a kubeconfig.
	Credentials func(spec.Registry) (files, servers []string, err error)
	// Inherited returns the kind of the service manager's socket with a name; nil: there are none.
	Inherited func(name string) spec.Kind
	// Members are the addresses of those that operators have added or moved, by group.
	Members map[string][]spec.Endpoint
	// Notify is the socket of the service manager; empty: none, or the keeper has it.
	Notify string

	// Reloads reports that the configuration can change while the process runs, and Alone that no other process could take over then:
	// what a later configuration may need is needed now, as far as that is known.
	Reloads, Alone bool
	// PipesLimited reports that a user's pipes are limited, and that this process may exceed the limit: large flows are as fast as
	// before only if it still may.
	PipesLimited bool
	// DeviceNeedsRaw reports that SO_BINDTODEVICE needs CAP_NET_RAW: before Linux 5.7.
	DeviceNeedsRaw bool
	// FirstPort is the first port that needs no capability.
	FirstPort uint16
	// Abs makes a path absolute; nil: filepath.Abs.
	Abs func(string) (string, error)
}

// Of returns what a configuration needs.
func Of(in Input) Needs {
	if in.Abs == nil {
		in.Abs = filepath.Abs
	}
	var n Needs
	for i := range rows {
		rows[i].needsOf(&in, &n)
	}
	return n.sorted()
}

// OfEndpoint returns what an endpoint needs in a role.
func OfEndpoint(r Role, e spec.Endpoint, what string) Needs {
	var n Needs
	a := &adder{in: &Input{}, needs: &n, at: what}
	a.endpoint(r, e)
	return n.sorted()
}

// AtRunTime returns those of the needs that members at run time have.
func (n Needs) AtRunTime() Needs {
	return slices.DeleteFunc(slices.Clone(n), func(a Need) bool { return !a.AtRunTime })
}

// needsOf adds the needs of a row: of the configuration as a whole, and of each of its registries, listeners and groups.
func (r *row) needsOf(in *Input, n *Needs) {
	c := in.Config
	a := func(object string) *adder { return &adder{in: in, needs: n, at: r.name(object)} }
	if r.config != nil {
		r.config(a(""), c)
	}
	if r.registry != nil {
		for _, g := range c.Registries {
			r.registry(a("registries."+g.Name), g)
		}
	}
	if r.listener != nil {
		for _, l := range c.Listeners {
			r.listener(a("listeners."+l.Name), l)
		}
	}
	if r.group != nil {
		for _, g := range c.Groups {
			r.group(a("groups."+g.Name), g)
		}
	}
}

// maxPorts bounds the ports of a policy; with more, every port may be connected to.
const maxPorts = 2048

// MaxAtRunTime bounds the ports that members at run time bring.
const MaxAtRunTime = 256

// granted splits needs into those that a policy allows, and those that it does not, because nobody but the process before has said that
// operators want such members, and that may be controlled by somebody else: it gets them ports, in a bounded number, and nothing more.
func (n Needs) granted() (granted, not Needs) {
	ports := map[uint16]bool{}
	for _, a := range n {
		if a.AtRunTime && a.Kind == Connect && len(ports) < MaxAtRunTime {
			ports[a.Port] = true
		}
		if a.AtRunTime && !(a.Kind == Connect && ports[a.Port]) {
			not = append(not, a)
		} else {
			granted = append(granted, a)
		}
	}
	return granted, not
}

// NotGranted returns those of the needs that no policy allows, because they are of members at run time: all but a number of ports.
func (n Needs) NotGranted() Needs {
	_, not := n.granted()
	return not
}

// Policy returns the policy of a process that has these needs, enters its sandbox in a mode, and becomes a user; nil: it stays the same.
func (n Needs) Policy(mode sandbox.Mode, user *sandbox.User) sandbox.Policy {
	p := sandbox.Policy{Mode: mode, User: user}
	granted, _ := n.granted()
	for _, a := range granted {
		kinds[a.Kind].add(&p, a)
	}
	p.Write = roots(p.Write)
	p.Read = slices.DeleteFunc(roots(p.Read), func(path string) bool { return covers(p.Write, path) })
	for _, ports := range []*[]uint16{&p.Connect, &p.Bind} {
		slices.Sort(*ports)
		*ports = slices.Compact(*ports)
	}
	if len(p.Connect) > maxPorts {
		p.Connect, p.AnyConnect = nil, true
	}
	if len(p.Bind) > maxPorts {
		p.Bind, p.AnyBind = nil, true
	}
	return p
}

// roots returns the paths, each once, without those beneath others.
func roots(list []string) (out []string) {
	slices.Sort(list)
	for _, p := range slices.Compact(list) {
		if !covers(out, p) {
			out = append(out, p)
		}
	}
	return out
}
