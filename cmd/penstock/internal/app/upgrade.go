package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/keeper"
)

// Upgrade has the keeper replace this worker by one of another binary.
func (d *daemon) Upgrade(ctx context.Context, u api.Upgrade, step func(api.UpgradeStep)) error {
	k := d.keeping
	if !k.Present() {
		return api.NewProblem(http.StatusConflict, "this daemon has no keeper, which could start another worker", "keeper: {} in the configuration, and a restart of the service")
	}
	if d.replacing() {
		return errReplacing()
	}
	up, err := k.Upgrade(ctx, u.Binary, u.DryRun, func(up keeper.Upgrade) {
		if !up.Over() {
			step(d.upgradeStep(&up))
		}
	})
	switch {
	case errors.Is(err, keeper.ErrLost):
		return api.NewProblem(http.StatusConflict, "the keeper is gone, so that nothing could start another worker", "a restart of the service")
	case err != nil:
		return err
	case up.State == keeper.Refused && d.replacing():
		return errReplacing()
	case up.State == keeper.Refused || up.State == keeper.RolledBack:
		d.log.event(slog.LevelWarn, "worker", "daemon", "upgrade refused: "+up.Reason)
		step(api.UpgradeStep{Step: up.State.String(), Error: up.Reason})
	default:
		told := d.upgradeStep(&up)
		told.Done = true
		step(told)
	}
	return nil
}

// replacing reports whether another worker is about to take over, for a change of the configuration. The keeper starts no other one meanwhile.
func (d *daemon) replacing() bool {
	u := d.keeping.LastUpgrade()
	return d.handingOver.Load() || u.Restart && !u.Over() && u.State < keeper.Proving
}

func errReplacing() error {
	return api.NewProblem(http.StatusServiceUnavailable, "another worker takes over just now, and nothing was changed", "the same request, again")
}

// upgradeStep tells a person what an upgrade does now, and what it ends.
func (d *daemon) upgradeStep(up *keeper.Upgrade) api.UpgradeStep {
	s := api.UpgradeStep{Step: up.State.String()}
	switch up.State {
	case keeper.Checking:
		s.Step = "checking " + up.Binary
	case keeper.HandingOver:
		s.TLSFlows = d.tlsEnds()
		s.Step = up.Info + "; handing over" + tlsEndText(d.hooks.TLS.Now(), d.lingers())
	case keeper.Checked:
		s.TLSFlows = d.tlsEnds()
		s.Step = up.Info
	}
	return s
}
