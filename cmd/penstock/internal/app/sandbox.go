package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/sandboxneeds"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/sandbox"
)

// lookInterval is how often the files of look-ups are opened.
const lookInterval = 2 * time.Second

// watchLookups hands over to another worker when the files of look-ups were replaced by others, until the daemon closes or there is
// no keeper: without them, names are asked for at a name server that is not there.
func (d *daemon) watchLookups() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var told time.Time
	for d.keeping.Up() {
		select {
		case <-d.background.closing:
			return
		case <-tick.C:
		}
		path := d.sandboxed.LostFile()
		if path == "" || time.Since(told) < time.Minute {
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

// enterSandbox makes this process enter its sandbox. It is called once everything is open that the first configuration needs;
// nothing that fails afterwards can be tried with another configuration that needs more.
func (d *daemon) enterSandbox(cfg *spec.Config, bound map[bindKey]*hooks.Socket) error {
	var more sandboxneeds.Needs
	for _, l := range bound {
		if a := l.Addr(); a.Network == relay.TCP { // a port that was any free one, too: see nodeDrain
			more = append(more, sandboxneeds.Need{Kind: sandboxneeds.Bind, Port: a.AddrPort.Port()})
		}
	}
	h, err := d.sandboxed.Enter(cfg, more, narrow)
	if h == nil || err != nil {
		return err
	}
	if h.Policy.Mode == sandbox.Enforce && h.Report.Held(sandbox.Files) {
		d.background.Go(d.watchLookups)
	}
	var held, not []string
	for _, l := range d.sandboxed.Status().Layers {
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
	if len(d.sandboxed.Members()) > 0 {
		attrs = append(attrs, "members_at_run_time", d.sandboxed.Members().String())
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
	missing sandboxneeds.Needs
}

func (e *needsMore) Error() string {
	return e.who + " needs what this process gave up when it started (sandbox): " + e.missing.String()
}

// checkNeeds returns a *needsMore if this process cannot do what a configuration needs.
func (d *daemon) checkNeeds(cfg *spec.Config) error {
	c := d.sandboxed
	if c.Held() == nil || d.active.Load().since.IsZero() {
		return nil // or the first one, which ran before in this sandbox: its sockets are held
	}
	ports := map[uint16]bool{}
	for key, l := range d.listening.bound {
		if key.addr.Path == "" {
			ports[l.Addr().AddrPort.Port()] = true
		}
	}
	missing := c.Held().Missing(sandboxneeds.Of(c.Input(cfg)), func(n sandboxneeds.Need) bool {
		switch n.Kind {
		case sandboxneeds.LowPort:
			return ports[n.Port]
		case sandboxneeds.Bind:
			return ports[n.Port] || slices.Contains(adminPorts(d), n.Port)
		}
		return false
	})
	missing = append(missing, d.changedModes(cfg)...)
	if len(missing) > 0 {
		return &needsMore{"the configuration", missing}
	}
	return nil
}

// changedModes returns the Unix sockets of listeners whose permissions a configuration changes, if they belong to the user that this process was.
func (d *daemon) changedModes(cfg *spec.Config) (n sandboxneeds.Needs) {
	h := d.sandboxed.Held()
	if h.Policy.Mode != sandbox.Enforce || h.Policy.User == nil || !h.Report.Held(sandbox.Credentials) {
		return nil
	}
	modes := map[bindKey]uint32{}
	for _, l := range d.active.Load().Listeners {
		modes[bindKeyOf(l, 0)] = l.Mode
	}
	for _, l := range cfg.Listeners {
		if was, ok := modes[bindKeyOf(l, 0)]; ok && strings.HasPrefix(l.Listen.Path, "/") && l.Mode != 0 && l.Mode != was {
			n = append(n, sandboxneeds.Need{Kind: sandboxneeds.Modes, For: "listeners." + l.Name + ".mode"})
		}
	}
	return n
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
	return d.sandboxed.Held() != nil && errors.Is(err, fs.ErrPermission)
}

// replacedInVain reports whether this worker has taken over a moment ago with an older version than a registry has: it did not answer
// in time, and one worker after the other would be started.
func (d *daemon) replacedInVain() bool {
	return d.reloads.remotes != nil && d.keeping.Replaced() && time.Since(d.keeping.Began) < time.Minute
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

// reloadFailed remembers and logs that a reload failed.
func (d *daemon) reloadFailed(by string, problem *api.Problem) {
	d.reloads.mu.Lock()
	defer d.reloads.mu.Unlock()
	d.reloads.bad++
	d.reloads.asked.Due = false
	d.keeping.Values.GoOn(reloadsBad, d.reloads.bad)
	d.reloads.failed = &api.FailedReload{Time: time.Now(), Errors: problem.Errors}
	for _, e := range problem.Errors {
		d.log.Error("configuration rejected; nothing changed", "by", by, "error", e.Message)
	}
	d.log.eventBy(by, slog.LevelError, "reload", d.active.Load().Source, problem.Error())
}
