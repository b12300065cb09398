package sandboxneeds

import (
	"slices"

	"github.com/penstock/penstock/sandbox"
)

// Kind is what a need is for.
type Kind uint8

// The kinds of needs.
const (
	Read      Kind = iota // a file or folder is read
	Write                 // a file is written, or files are made in a folder
	Connect               // TCP connections to a port
	AnyPort               // TCP connections to ports that are not known
	Bind                  // a TCP port is bound
	AnyBind               // TCP ports are bound that are not known
	LowPort               // a port below net.ipv4.ip_unprivileged_port_start is bound
	Rebind                // such ports are bound while the process runs
	NetAdmin              // CAP_NET_ADMIN
	NetRaw                // CAP_NET_RAW
	Resource              // CAP_SYS_RESOURCE
	Abstract              // abstract Unix sockets of others
	Unix                  // new Unix sockets
	Multipath             // sockets of Multipath TCP
	Modes                 // the permissions of a path are changed
	numKinds
)

// SysResource is CAP_SYS_RESOURCE. Beside the filter of system calls, which lets no limit be changed, it gives pipes beyond
// fs.pipe-user-pages-soft, and the last blocks of a disk.
const SysResource sandbox.Capability = 24

// kindRow says what a kind is, which layer of the sandbox takes it away, how a policy allows it, and whether one does. A %v in a text stands
// for the path or the port of a need.
type kindRow struct {
	doing      string // what is needed
	thing      string // what a sandbox that does not allow it has not
	layer      sandbox.Layer
	capability sandbox.Capability // of the layer Capabilities
	allow      func(*sandbox.Policy, Need)
	has        func(*sandbox.Policy, Need) bool
}

var kinds = [numKinds]kindRow{
	Read: {doing: "reading %v", thing: "file %v", layer: sandbox.Files,
		allow: func(p *sandbox.Policy, n Need) { p.Read = append(p.Read, n.Path) },
		has:   func(p *sandbox.Policy, n Need) bool { return covers(p.Read, n.Path) || covers(p.Write, n.Path) }},
	Write: {doing: "writing %v", thing: "file %v to write", layer: sandbox.Files,
		allow: func(p *sandbox.Policy, n Need) { p.Write = append(p.Write, n.Path) },
		has:   func(p *sandbox.Policy, n Need) bool { return covers(p.Write, n.Path) }},
	Connect: {doing: "connecting to port %v", thing: "port %v", layer: sandbox.Network,
		allow: func(p *sandbox.Policy, n Need) { p.Connect = append(p.Connect, n.Port) },
		has:   func(p *sandbox.Policy, n Need) bool { return p.AnyConnect || slices.Contains(p.Connect, n.Port) }},
	AnyPort: {doing: "connecting to any port", thing: "ports but those that it names", layer: sandbox.Network,
		allow: func(p *sandbox.Policy, _ Need) { p.AnyConnect = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.AnyConnect }},
	Bind: {doing: "binding port %v", thing: "port %v to bind", layer: sandbox.Network,
		allow: func(p *sandbox.Policy, n Need) { p.Bind = append(p.Bind, n.Port) },
		has:   func(p *sandbox.Policy, n Need) bool { return p.AnyBind || slices.Contains(p.Bind, n.Port) }},
	AnyBind: {doing: "binding any port", thing: "ports to bind but those that it names", layer: sandbox.Network,
		allow: func(p *sandbox.Policy, _ Need) { p.AnyBind = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.AnyBind }},
	LowPort: {doing: "binding port %v, a privileged one", thing: "privileged port %v to bind", layer: sandbox.Capabilities, capability: sandbox.NetBindService,
		allow: nothing}, // the first time it is bound before the process enters, or by another one
	Rebind:   {doing: "binding privileged ports later", thing: "privileged ports to bind", layer: sandbox.Capabilities, capability: sandbox.NetBindService},
	NetAdmin: {doing: "CAP_NET_ADMIN", thing: "CAP_NET_ADMIN", layer: sandbox.Capabilities, capability: sandbox.NetAdmin},
	NetRaw:   {doing: "CAP_NET_RAW", thing: "CAP_NET_RAW", layer: sandbox.Capabilities, capability: sandbox.NetRaw},
	Resource: {doing: "CAP_SYS_RESOURCE", thing: "CAP_SYS_RESOURCE", layer: sandbox.Capabilities, capability: SysResource},
	Abstract: {doing: "abstract Unix sockets", thing: "abstract Unix sockets of other processes", layer: sandbox.Scope,
		allow: func(p *sandbox.Policy, _ Need) { p.Outside = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.Outside }},
	Unix: {doing: "Unix sockets", thing: "Unix sockets", layer: sandbox.Calls,
		allow: func(p *sandbox.Policy, _ Need) { p.Unix = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.Unix }},
	Multipath: {doing: "Multipath TCP", thing: "Multipath TCP", layer: sandbox.Calls,
		allow: func(p *sandbox.Policy, _ Need) { p.Multipath = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.Multipath }},
	Modes: {doing: "changing the permissions of paths", thing: "permissions of paths to change", layer: sandbox.Calls,
		allow: func(p *sandbox.Policy, _ Need) { p.Modes = true },
		has:   func(p *sandbox.Policy, _ Need) bool { return p.Modes }},
}

func nothing(*sandbox.Policy, Need) {}

// add allows a need.
func (k *kindRow) add(p *sandbox.Policy, n Need) {
	switch {
	case k.allow != nil:
		k.allow(p, n)
	case !slices.Contains(p.Keep, k.capability):
		p.Keep = append(p.Keep, k.capability)
	}
}

// allowed reports whether a policy allows a need.
func (k *kindRow) allowed(p *sandbox.Policy, n Need) bool {
	if k.has != nil {
		return k.has(p, n)
	}
	return slices.Contains(p.Keep, k.capability)
}

// covers reports whether a path is in a list, or beneath one that is.
func covers(list []string, path string) bool {
	return slices.ContainsFunc(list, func(above string) bool { return beneath(path, above) })
}
