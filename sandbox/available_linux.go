package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/penstock/penstock/internal/sys"
)

// Available reports which layers [Enter] could enter on this kernel, in a process like this one, with a policy that wants all. It changes nothing.
func Available() Report {
	e := entry{}
	for l := range Layer(len(layers)) {
		e.report.Layers = append(e.report.Layers, Status{Layer: l, Wanted: true})
	}
	cgo := sys.LinkedWithCgo()
	e.set(NoNewPrivs, true)
	effective, _, _, err := sys.CapabilitySets()
	if err == nil {
		err = mayChangeUser(effective)
	}
	e.set(Credentials, err == nil, text(err))
	e.set(Capabilities, !cgo || effective == 0, "")
	if cgo && effective != 0 {
		e.set(Capabilities, false, fmt.Sprint(sys.ErrCgo, ", unless the user changes"))
	}
	all := sys.LandlockWanted{Files: true, Bind: true, Connect: true, Signals: true, Abstract: true}
	abi, err := sys.LandlockABI()
	if err == nil && cgo && !sys.LandlockHasThreads(abi) {
		err = sys.ErrCgo
	}
	var rules *sys.Landlock
	if err == nil {
		rules, e.got, err = sys.NewLandlock(abi, all)
	}
	if err != nil {
		e.landlockFailed(err)
	} else {
		rules.Close()
		why := missing(abi, all, e.got)
		e.set(Files, e.got.Files, why[Files]...)
		e.set(Network, e.got.Bind && e.got.Connect, why[Network]...)
		e.set(Scope, e.got.Abstract || e.got.Signals, why[Scope]...)
	}
	switch {
	case !sys.CallsKnown:
		e.set(Calls, false, "no list of system calls for "+runtime.GOARCH)
	case !sys.HasSeccomp():
		e.set(Calls, false, "the kernel has no seccomp filters that log, or is older than 4.14")
	default:
		e.set(Calls, true)
	}
	return e.report
}

// mayChangeUser returns why a process with these capabilities may not become another user; nil: it may.
func mayChangeUser(effective uint64) error {
	const setGID, setUID = 1 << 6, 1 << 7
	if effective&setGID == 0 || effective&setUID == 0 {
		return errors.New("the process may not change its user")
	}
	return nil
}

// CanBecome reports whether [Enter], in a process like this one, makes it the user of a policy, unless it only logs. It changes
// nothing. If not, or if the policy has no user, the process stays who it is. What must belong to the user from the
// start, such as sockets that share a port, is not to be given to that user then.
func CanBecome(p Policy) bool {
	effective, permitted, _, err := sys.CapabilitySets()
	if err != nil || p.User == nil || slices.Contains(p.Without, Credentials) {
		return false
	}
	if uid, gid, same := sys.Credentials(); uid == p.User.UID && gid == p.User.GID && same {
		return true
	}
	keeps := p.keeps(permitted) != 0 && !slices.Contains(p.Without, Capabilities)
	return mayChangeUser(effective) == nil && !(keeps && sys.LinkedWithCgo())
}
