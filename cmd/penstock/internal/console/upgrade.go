package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// UpgradeCmd replaces the worker of a running daemon.
type UpgradeCmd struct {
	ClientFlags
	Binary string `placeholder:"PATH" help:"The new binary. Default: the file that is now at the path of the running one."`
	DryRun bool   `help:"Only check whether the new binary could take over: that it starts, and accepts the configuration."`
}

// Help returns the text that penstock upgrade --help prints below the flags.
func (UpgradeCmd) Help() string {
	return "Open flows continue in the new worker, except for those whose TLS ends or begins here: they end, and the command says how many. If it does not start, or ends within keeper.healthy-after, the old binary continues. The daemon needs a keeper (keeper: {} in its configuration).\n\n" +
		"Exit codes: 0: the new binary runs (with --dry-run: it could); 1: nothing was changed; 3: the new worker failed, and the old binary runs again."
}

// exitRolledBack says that an upgrade was undone.
const exitRolledBack = 3

// rolledBack is the error of an upgrade that was undone.
type rolledBack struct{ text string }

func (e rolledBack) Error() string { return e.text }

// goesOn is the error of a command that was interrupted while the daemon goes on with what it was asked for.
type goesOn struct{}

func (goesOn) Error() string {
	return "interrupted; the upgrade goes on, and penstock status says how it ends"
}

// Run executes the command. It prints the steps as they come.
func (c *UpgradeCmd) Run(stdout, stderr *os.File) int {
	undone := false
	code := c.run(stderr, func(ctx context.Context, client *api.Client) error {
		u := api.Upgrade{Binary: c.Binary, DryRun: c.DryRun}
		if u.Binary != "" {
			path, err := filepath.Abs(u.Binary)
			if err != nil {
				return err
			}
			u.Binary = path
		}
		begun, tls := false, int64(0)
		w, err := c.upgrade(ctx, client, u, stderr, func(step api.UpgradeStep) { begun, tls = true, step.TLSFlows })
		if ctx.Err() != nil && begun && !u.DryRun {
			err = goesOn{}
		}
		undone = errors.As(err, new(rolledBack))
		switch {
		case err != nil:
			return err
		case c.JSON && w != nil:
			return printJSON(stdout, w)
		case w != nil:
			fmt.Fprintln(stdout, printable(fmt.Sprintf("upgraded to %s: %s", w.Version, outcome(w))))
		case !c.JSON:
			fmt.Fprintln(stdout, "the new binary could take over"+dryTLS(tls)+"; nothing was changed")
		}
		return nil
	})
	if undone {
		return exitRolledBack
	}
	return code
}

// upgradePoll is how often the next worker is asked for the result.
const upgradePoll = 50 * time.Millisecond

// upgradePatience bounds how long no worker may answer.
const upgradePatience = 2 * time.Minute

// upgrade asks for an upgrade and waits for its end, again if it has met a worker that was being replaced for another reason. It returns the
// start of the new worker; nil after a dry run. each is called with each step.
func (c *UpgradeCmd) upgrade(ctx context.Context, client *api.Client, u api.Upgrade, progress *os.File, each func(api.UpgradeStep)) (w *api.WorkerStart, err error) {
	for begun := time.Now(); ; {
		w, err = c.upgradeOnce(ctx, client, u, progress, each)
		if !replacing(err) || time.Since(begun) > upgradePatience {
			return w, err
		}
		select {
		case <-time.After(upgradePoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errNotBegun is the error of an upgrade in whose place another worker has taken over, for another reason.
var errNotBegun = errors.New("another worker took over, and nothing was changed; allowed: the same request, again")

// replacing reports whether a request has met a worker that was being replaced. Nothing was begun.
func replacing(err error) bool {
	var problem *api.Problem
	return errors.As(err, &problem) && problem.Status == http.StatusServiceUnavailable || cut(err) || errors.Is(err, errNotBegun)
}

// startsFor returns how often a worker was started for a reason.
func startsFor(k *api.Keeper, reason string) (n int64) {
	if k != nil {
		for _, s := range k.Starts {
			if s.Reason == reason {
				n = s.Count
			}
		}
	}
	return n
}

func (c *UpgradeCmd) upgradeOnce(ctx context.Context, client *api.Client, u api.Upgrade, progress *os.File, each func(api.UpgradeStep)) (*api.WorkerStart, error) {
	before, err := call(ctx, client.Status)
	if err != nil {
		return nil, err
	}
	tell := func(text string) {
		if !c.JSON && text != "" {
			fmt.Fprintln(progress, printable(text)+" ...")
		}
	}
	last, err := client.Upgrade(ctx, u, func(step api.UpgradeStep) {
		each(step)
		if step.Error == "" && !step.Done {
			tell(step.Step)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case last.Error != "" && before.Keeper != nil && hidden(before.Keeper.Worker, u.Binary):
		return nil, errors.New(last.Error + "; the daemon does not see this file: a service has folders /home, /root and /tmp of its own. Nothing was changed")
	case last.Error != "":
		return nil, errors.New(last.Error + "; nothing was changed")
	case last.Done:
		return nil, nil
	}
	return c.result(ctx, client, before.Keeper, tell)
}

// dryTLS says how many flows an upgrade would end; empty: none.
func dryTLS(n int64) string {
	if n == 0 {
		return ""
	}
	return ", and would end " + plural(n, "flow") + " whose TLS ends or begins here"
}

// hidden reports whether a file that is here is not where a process on this machine looks for it.
func hidden(pid int, file string) bool {
	root := fmt.Sprintf("/proc/%d/root/", pid)
	if _, err := os.Stat(root + "proc"); err != nil { // another machine, or another user's process
		return false
	}
	_, here := os.Stat(file)
	_, there := os.Stat(root + file)
	return file != "" && here == nil && errors.Is(there, os.ErrNotExist)
}

// result asks the workers that come after the one of a status how the upgrade has ended.
func (c *UpgradeCmd) result(ctx context.Context, client *api.Client, before *api.Keeper, tell func(string)) (*api.WorkerStart, error) {
	number := int64(0)
	if before != nil && before.Last != nil {
		number = before.Last.Number
	}
	upgrades := startsFor(before, "upgrade")
	heard := time.Now()
	watching := false
	for {
		s, err := call(ctx, client.Status)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && time.Since(heard) > upgradePatience:
			return nil, fmt.Errorf("no worker answers: %w", err)
		case err != nil:
		case s.Keeper == nil:
			return nil, errors.New("another daemon answers, which has no keeper")
		case s.Keeper.Last == nil || s.Keeper.Last.Number <= number:
			if time.Since(heard) > upgradePatience {
				return nil, errors.New("the old worker goes on; its log says why")
			}
		default:
			heard = time.Now()
			switch w := s.Keeper.Last; {
			case w.Reason == "restart" && startsFor(s.Keeper, "upgrade") > upgrades:
				return w, nil // the trial was over, and another change has followed
			case w.Reason == "restart":
				return nil, errNotBegun
			case w.Reason == "rollback":
				return nil, rolledBack{fmt.Sprintf("the new worker failed (%s), and the old binary runs again: %s", w.Cause, outcome(w))}
			case w.Reason != "upgrade":
				return nil, rolledBack{fmt.Sprintf("the worker was started again %s: %s", startWhy(w), outcome(w))}
			case s.Keeper.Healthy:
				return w, nil
			case !watching:
				watching = true
				tell(fmt.Sprintf("%s runs: %s; the old binary comes back if it ends soon", w.Version, outcome(w)))
			}
		}
		select {
		case <-time.After(upgradePoll):
		case <-ctx.Done():
		}
	}
}
