package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/keeper"
)

// replaceFor hands over to another worker, which reads the configuration itself, because this one cannot do what it needs. It returns
// the number of the upgrade before that.
func (d *daemon) replaceFor(by string, why error) (before uint64, err error) {
	d.log.Info("another worker is to take over, because this one cannot do what the configuration needs", "by", by, "why", why.Error())
	before = d.keeping.LastUpgrade().ID
	return before, d.keeping.Restart()
}

// How long a reload waits until another worker has begun, which may have to wait for an upgrade that is on trial, and until it
// has read the configuration.
const (
	replacementBegins = 2 * time.Second
	replacementReads  = 15 * time.Second
)

// replace is replaceFor that returns once the other worker takes over, or with the reason if it could not. If neither is known soon, it
// returns nil. failed is called if it could not, be it later.
func (d *daemon) replace(ctx context.Context, by string, why error, failed func(*keeper.Upgrade)) error {
	before, err := d.replaceFor(by, why)
	if err != nil {
		return err
	}
	if u := d.awaitReplacement(ctx, before); u.Over() && u.Reason != "" {
		failed(&u)
		return notReplaced(&u)
	}
	d.background.Go(func() { d.watchReplacement(before, failed) })
	return nil
}

// awaitReplacement waits until the worker that is started after an upgrade with a number has read the configuration, or was refused. It
// returns what is known if that takes long.
func (d *daemon) awaitReplacement(ctx context.Context, before uint64) keeper.Upgrade {
	ctx, cancel := context.WithTimeout(ctx, replacementReads)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begins := time.After(replacementBegins)
	for {
		u := d.keeping.LastUpgrade()
		begun := u.ID != before && u.Restart
		if begun && (u.State > keeper.Checking || u.Over()) {
			return u
		}
		if d.handingOver.Load() { // to a worker that was asked for before: the keeper starts another one after that
			return keeper.Upgrade{}
		}
		select {
		case <-tick.C:
		case <-begins:
			if !begun {
				return keeper.Upgrade{}
			}
		case <-ctx.Done():
			return keeper.Upgrade{}
		case <-d.background.closing:
			return keeper.Upgrade{}
		case <-d.keeping.Lost():
			return keeper.Upgrade{}
		}
	}
}

// reloadNotReplaced is what follows if no other worker could take over for a reload.
func (d *daemon) reloadNotReplaced(by string) func(*keeper.Upgrade) {
	return func(u *keeper.Upgrade) { d.reloadFailed(by, badConfig(notReplaced(u))) }
}

// keysNotChanged is what follows if no other worker could take over for the keys of a reload that a running one cannot change. The rest of
// it is in effect.
func (d *daemon) keysNotChanged(by string, keys []string) func(*keeper.Upgrade) {
	return func(u *keeper.Upgrade) {
		told := strings.Join(keys, ", ") + " not changed: " + notReplaced(u).Error()
		d.reloads.mu.Lock()
		d.reloads.failed = &api.FailedReload{Time: time.Now(), Errors: []api.ConfigError{{Message: told}}}
		d.reloads.mu.Unlock()
		d.log.Error(told, "by", by)
		d.log.eventBy(by, slog.LevelError, "reload", d.active.Load().Source, told)
		d.notifyManager()
		d.saveState(savedSources)
	}
}

// notReplaced is the error if no other worker could take over.
func notReplaced(u *keeper.Upgrade) error {
	return errors.New("another worker was to take over, and could not: " + u.Reason)
}

// watchReplacement calls failed if no other worker takes over, after an upgrade with a number.
func (d *daemon) watchReplacement(before uint64, failed func(*keeper.Upgrade)) {
	if u, ok := d.awaitEnd(before); ok && u.Reason != "" {
		failed(&u)
	}
}

// awaitEnd waits until the restart after an upgrade with a number is over, which this worker sees only if it goes on. It reports false if
// the daemon closes, or the keeper is gone, before.
func (d *daemon) awaitEnd(before uint64) (u keeper.Upgrade, ok bool) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-d.background.closing:
			return u, false
		case <-d.keeping.Lost():
			return u, false
		case <-tick.C:
		}
		if u = d.keeping.LastUpgrade(); u.ID != before && u.Restart && u.Over() {
			return u, true
		}
	}
}
