package sandbox

import (
	"errors"

	"github.com/penstock/penstock/internal/sys"
)

// makeRules prepares Landlock's rules, while the process may still open all paths.
func (e *entry) makeRules() {
	p := &e.policy
	want := sys.LandlockWanted{Files: e.wants(Files) && !p.AnyFile, Bind: e.wants(Network) && !p.AnyBind, Connect: e.wants(Network) && !p.AnyConnect,
		Signals: e.wants(Scope), Abstract: e.wants(Scope) && !p.Outside}
	for l, wanted := range map[Layer]bool{Files: want.Files, Network: want.Bind || want.Connect, Scope: want.Signals} {
		e.report.Layers[l].Wanted = wanted
		e.set(l, false)
	}
	if want == (sys.LandlockWanted{}) {
		return
	}
	abi, err := sys.LandlockABI()
	if err == nil {
		e.rules, e.got, err = sys.NewLandlock(abi, want)
	}
	if err != nil {
		e.landlockFailed(err)
		return
	}
	for l, why := range missing(abi, want, e.got) {
		e.set(l, false, why...)
	}
	if e.rules == nil {
		return
	}
	if err := e.addRules(); err != nil {
		e.rules.Close()
		e.rules, e.got = nil, sys.LandlockWanted{}
		e.landlockFailed(err)
	}
}

func (e *entry) landlockFailed(err error) {
	why := err.Error()
	switch {
	case errors.Is(err, sys.ENOSYS):
		why = "the kernel is built without Landlock, or older than 5.13"
	case errors.Is(err, sys.EOPNOTSUPP):
		why = "Landlock was switched off when the kernel started"
	}
	for _, l := range []Layer{Files, Network, Scope} {
		if e.wants(l) {
			e.set(l, false, why)
		}
	}
}

// addRules adds the paths and ports of the policy. A path that cannot be opened is left out.
func (e *entry) addRules() error {
	for _, set := range []struct {
		paths []string
		write bool
	}{{e.policy.Read, false}, {e.policy.Write, true}} {
		for _, path := range set.paths {
			err := e.rules.AllowPath(path, set.write)
			if sys.IsPathError(err) {
				e.report.Absent = append(e.report.Absent, path)
			} else if err != nil {
				return err
			}
		}
	}
	for _, port := range e.policy.Connect {
		if err := e.rules.AllowPort(port, false, true); err != nil {
			return err
		}
	}
	for _, port := range e.policy.Bind {
		if err := e.rules.AllowPort(port, true, false); err != nil {
			return err
		}
	}
	return nil
}

// missing says what this version of Landlock cannot do, of each layer that is wanted.
func missing(abi int, want, got sys.LandlockWanted) map[Layer][]string {
	why := make(map[Layer][]string)
	lacks := func(l Layer, is bool, text string) {
		if is {
			why[l] = append(why[l], text)
		}
	}
	lacks(Files, want.Files && abi < 3, "truncating files is not restricted before Linux 6.2")
	lacks(Files, want.Files && abi < 5, "ioctl on devices is not restricted before Linux 6.10")
	lacks(Network, want.Bind && !got.Bind || want.Connect && !got.Connect, "needs Linux 6.7")
	lacks(Scope, abi < 6 && (want.Signals || want.Abstract), "needs Linux 6.12")
	lacks(Scope, abi >= 6 && want.Signals && !got.Signals, "signals are not restricted: this kernel would not tell the threads of a process from others")
	return why
}

// restrict applies the rules.
func (e *entry) restrict() {
	if e.rules == nil {
		return
	}
	defer e.rules.Close()
	if err := e.rules.Restrict(); err != nil {
		e.got = sys.LandlockWanted{}
		for _, l := range []Layer{Files, Network, Scope} {
			if e.wants(l) {
				e.set(l, false, err.Error())
			}
		}
		return
	}
	got := map[Layer]bool{Files: e.got.Files, Network: e.got.Bind || e.got.Connect, Scope: e.got.Signals || e.got.Abstract}
	for l, held := range got {
		if e.wants(l) {
			e.set(l, held, e.report.Layers[l].Why)
		}
	}
}
