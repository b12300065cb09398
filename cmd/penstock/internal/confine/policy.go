package confine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock/sandbox"
)

// SysResource is CAP_SYS_RESOURCE. Beside the filter of system calls, which lets no limit be changed, it gives pipes beyond
// fs.pipe-user-pages-soft, and the last blocks of a disk.
const SysResource sandbox.Capability = 24

// maxPorts bounds the ports of a policy; with more, every port may be connected to.
const maxPorts = 2048

// Terms are the conditions of a process, beside what its configuration needs.
type Terms struct {
	Log  bool          // only log
	User *sandbox.User // whom it becomes; nil: nobody else
	// Reloads reports that there can be a later configuration. It may bring listeners on any port that needs no capability.
	Reloads bool
	// Replaceable reports that another process can take over when a later configuration needs more. Otherwise this one keeps what a
	// later configuration may need: the capability of privileged ports, and connections to all ports.
	Replaceable bool
	// DeviceNeedsRaw reports that SO_BINDTODEVICE needs CAP_NET_RAW: before Linux 5.7.
	DeviceNeedsRaw bool
	// Rebinds reports that listeners are closed and bound again while the process runs.
	Rebinds bool
	// PipesLimited reports that a user's pipes are limited, and that this process may exceed the limit: large flows are as
	// fast as before only if it still may.
	PipesLimited bool
}

// Policy returns the policy of a process that has these needs.
func (n Needs) Policy(t Terms) sandbox.Policy {
	p := sandbox.Policy{
		Read: n.paths(Read), Write: n.paths(Write), Connect: n.ports(Connect), Bind: n.ports(Bind),
		AnyConnect: n.has(AnyPort), AnyBind: t.Reloads, Modes: n.has(Modes), Multipath: n.has(Multipath), Outside: n.has(Abstract), Unix: n.has(Unix), User: t.User,
	}
	if t.Log {
		p.Mode = sandbox.Log
	}
	p.Read = slices.DeleteFunc(p.Read, func(path string) bool {
		return slices.ContainsFunc(p.Write, func(above string) bool { return beneath(path, above) })
	})
	if len(p.Connect) > maxPorts {
		p.Connect, p.AnyConnect = nil, true
	}
	if len(p.Bind) > maxPorts {
		p.Bind, p.AnyBind = nil, true
	}
	if t.Reloads && !t.Replaceable || t.Rebinds && n.has(LowPort) {
		p.Keep = append(p.Keep, sandbox.NetBindService)
	}
	if n.has(NetAdmin) {
		p.Keep = append(p.Keep, sandbox.NetAdmin)
	}
	if t.PipesLimited {
		p.Keep = append(p.Keep, SysResource)
	}
	if n.has(NetRaw) && t.DeviceNeedsRaw {
		p.Keep = append(p.Keep, sandbox.NetRaw)
	}
	return p
}

// Held is what a process has kept, after it has entered its sandbox.
type Held struct {
	Policy sandbox.Policy
	Report sandbox.Report
	// Had are the capabilities that the process had before, as bits. What it never had is not missing.
	Had uint64
}

// Missing returns those of the needs that the process has given up. bound reports whether a port, or the path of a Unix
// socket, is bound already.
func (h *Held) Missing(n Needs, bound func(Need) bool) (missing Needs) {
	if h == nil || h.Policy.Mode == sandbox.Log {
		return nil
	}
	for _, a := range n {
		if !h.allows(a) && !bound(a) {
			missing = append(missing, a)
		}
	}
	return missing
}

func (h *Held) allows(a Need) bool {
	p := &h.Policy
	files, network, calls := h.Report.Held(sandbox.Files), h.Report.Held(sandbox.Network), h.Report.Held(sandbox.Calls)
	switch a.Kind {
	case Read:
		return !files || covers(p.Read, a.Path) || covers(p.Write, a.Path)
	case Write:
		return !files || covers(p.Write, a.Path)
	case Connect:
		return !network || p.AnyConnect || slices.Contains(p.Connect, a.Port)
	case AnyPort:
		return !network || p.AnyConnect
	case Bind:
		return !network || p.AnyBind || slices.Contains(p.Bind, a.Port)
	case LowPort:
		return h.keeps(sandbox.NetBindService)
	case NetAdmin:
		return h.keeps(sandbox.NetAdmin)
	case NetRaw:
		return true // only old kernels want it
	case Abstract:
		return !h.Report.Held(sandbox.Scope) || p.Outside
	case Unix:
		return !calls || p.Unix
	case Multipath:
		return !calls || p.Multipath
	case Modes:
		return !calls || p.Modes
	}
	return false
}

// keeps reports whether the process has a capability, or never had it.
func (h *Held) keeps(c sandbox.Capability) bool {
	return !h.Report.Held(sandbox.Capabilities) || slices.Contains(h.Policy.Keep, c) || h.Had>>c&1 == 0
}

func covers(list []string, path string) bool {
	return slices.ContainsFunc(list, func(above string) bool { return beneath(path, above) })
}

// maxNamed bounds the needs that a message names.
const maxNamed = 3

// String returns the needs for a message.
func (n Needs) String() string {
	var parts []string
	for _, a := range n {
		parts = append(parts, a.String())
	}
	parts = slices.Compact(parts)
	if len(parts) > maxNamed {
		parts = append(parts[:maxNamed], fmt.Sprintf("and %d more", len(parts)-maxNamed))
	}
	return strings.Join(parts, ", ")
}
