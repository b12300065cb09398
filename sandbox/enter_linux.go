package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
)

var entered atomic.Bool

// Enter takes away what p does not name, from all threads of the process, for good. It is called once, after everything that needs more has
// been opened. It waits until the world has been stopped a few times, which takes some milliseconds.
//
// An error says that nothing was changed: [ErrPolicy] with details, or [ErrEntered]. Otherwise as much holds as is
// possible, and the report says what. The process must not be changing attributes of threads at the same
// time; a thread with a seccomp filter of its own prevents that of the process.
func Enter(p Policy) (Report, error) {
	if err := p.check(); err != nil {
		return Report{}, err
	}
	if entered.Swap(true) {
		return Report{}, ErrEntered
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := entry{policy: p}
	for l := range Layer(len(layers)) {
		e.report.Layers = append(e.report.Layers, Status{Layer: l, Wanted: !slices.Contains(p.Without, l)})
	}
	if p.Mode == Log {
		e.logOnly()
	} else {
		e.enforce()
	}
	return e.report, nil
}

// check says what is wrong with p.
func (p *Policy) check() error {
	if len(p.Read)+len(p.Write) > maxEntries || len(p.Connect)+len(p.Bind) > maxEntries {
		return fmt.Errorf("%w: more than %d paths or ports", ErrPolicy, maxEntries)
	}
	for _, path := range slices.Concat(p.Read, p.Write) {
		if path == "" || strings.ContainsRune(path, 0) {
			return fmt.Errorf("%w: path %q", ErrPolicy, path)
		}
	}
	if u := p.User; u != nil && (u.UID < 0 || u.GID < 0 || slices.ContainsFunc(u.Groups, func(g int) bool { return g < 0 })) {
		return fmt.Errorf("%w: negative user or group", ErrPolicy)
	}
	if p.Mode > Log {
		return fmt.Errorf("%w: mode %d", ErrPolicy, p.Mode)
	}
	return nil
}

// entry is the state of Enter.
type entry struct {
	policy Policy
	report Report
	rules  *sys.Landlock
	got    sys.LandlockWanted
	cgo    bool // no_new_privs is set in this thread only, until there is a filter
}

func (e *entry) wants(l Layer) bool { return e.report.Layers[l].Wanted }

// set notes whether a layer holds, and why not or what is missing.
func (e *entry) set(l Layer, held bool, why ...string) {
	s := &e.report.Layers[l]
	s.Held = held
	why = slices.DeleteFunc(why, func(s string) bool { return s == "" })
	if s.Why = strings.Join(why, "; "); s.Why == "" && !s.Wanted {
		s.Why = "not wanted"
	}
}

// enforce enters each layer. The order matters: files are opened, and the bounding set is reduced, while the process may; no_new_privs
// comes before Landlock and the filter, which demand it; and the filter refuses all these calls.
func (e *entry) enforce() {
	e.noNewPrivs()
	e.makeRules()
	var bounds error
	if e.wants(Capabilities) {
		bounds = sys.BoundCapabilities(e.keep())
	}
	changed := e.credentials()
	e.capabilities(bounds, changed)
	e.restrict()
	e.calls(false)
}

// logOnly installs the filter that logs. It needs no_new_privs, which refuses nothing to a program that starts none.
func (e *entry) logOnly() {
	const why = "only logging"
	for l := range e.report.Layers {
		if Layer(l) != NoNewPrivs && Layer(l) != Calls {
			e.report.Layers[l].Wanted = false
			e.set(Layer(l), false, why)
		}
	}
	e.noNewPrivs()
	e.calls(true)
}

func (e *entry) noNewPrivs() {
	// The other layers cannot do without it.
	if !e.wants(NoNewPrivs) && !e.wants(Calls) && !e.wants(Files) && !e.wants(Network) && !e.wants(Scope) {
		e.set(NoNewPrivs, false)
		return
	}
	err := sys.SetNoNewPrivs()
	if e.cgo = errors.Is(err, sys.ErrCgo) && sys.NoNewPrivs(); e.cgo {
		e.set(NoNewPrivs, false, err.Error()) // until the filter is installed
		return
	}
	e.set(NoNewPrivs, err == nil, text(err))
}

// keep returns the capabilities that stay, of those that the process has.
func (e *entry) keep() uint64 {
	_, permitted, _, err := sys.CapabilitySets()
	if err != nil {
		return 0
	}
	return e.policy.keeps(permitted)
}

// keeps returns those of the capabilities that stay.
func (p *Policy) keeps(permitted uint64) (bits uint64) {
	for _, c := range p.Keep {
		bits |= 1 << (c & 63)
	}
	return bits & permitted
}

// credentials changes the user, and reports whether it was another one than before.
func (e *entry) credentials() (changed bool) {
	u := e.policy.User
	if u == nil || !e.wants(Credentials) {
		e.report.Layers[Credentials].Wanted = false
		e.set(Credentials, false, "no user is named")
		return false
	}
	before, _, _ := sys.Credentials()
	keep := e.keep() != 0 && e.wants(Capabilities)
	if keep {
		if err := sys.KeepCapabilities(true); err != nil {
			e.set(Credentials, false, "capabilities would be lost", text(err))
			return false
		}
	}
	err := sys.BecomeUser(u.UID, u.GID, u.Groups)
	if keep {
		sys.KeepCapabilities(false)
	}
	uid, gid, same := sys.Credentials()
	if err != nil && uid == u.UID && gid == u.GID && same && u.Groups == nil {
		groups, e2 := os.Getgroups()
		if e2 == nil && (len(groups) == 0 || len(groups) == 1 && groups[0] == gid) {
			err = nil // it is that user already, and may not say so
		}
	}
	e.set(Credentials, err == nil && uid == u.UID && gid == u.GID && same, text(err))
	return uid != before
}

func (e *entry) capabilities(bounds error, changed bool) {
	if !e.wants(Capabilities) {
		e.set(Capabilities, false)
		return
	}
	keep := e.keep()
	err := sys.LimitCapabilities(keep)
	effective, permitted, inheritable, errGet := sys.CapabilitySets()
	held := errGet == nil && effective == keep && permitted == keep && inheritable == 0
	var why []string
	switch {
	case errors.Is(err, sys.ErrCgo):
		// A change of the user was made in all threads. Without one, threads may differ from this one only if somebody has made them differ.
		held = held && (changed || keep == 0)
		if !held {
			why = append(why, err.Error())
		}
	case err != nil:
		held, why = false, append(why, err.Error())
	}
	if bounds != nil {
		why = append(why, "bounding set: "+bounds.Error())
	}
	e.set(Capabilities, held, why...)
}

func (e *entry) calls(log bool) {
	if !e.wants(Calls) {
		e.set(Calls, false)
		return
	}
	if !sys.CallsKnown {
		e.set(Calls, false, "no list of system calls for "+runtime.GOARCH)
		return
	}
	p := &e.policy
	err := sys.FilterCalls(sys.CallFilter{Log: log, Modes: p.Modes, Multipath: p.Multipath, Unix: p.Unix, NoFastOpen: e.got.Connect})
	if err == nil && e.cgo {
		e.set(NoNewPrivs, true)
	}
	why := text(err)
	if err == nil && log {
		why = "only logging"
	}
	e.set(Calls, err == nil && !log, why)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
