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
	if k == nil {
		return api.NewProblem(http.StatusConflict, "this daemon has no keeper, which could start another worker", "keeper: {} in the configuration, and a restart of the service")
	}
	up, err := k.Upgrade(ctx, u.Binary, u.DryRun, func(up keeper.Upgrade) {
		if !up.Over() {
			step(api.UpgradeStep{Step: stepText(&up)})
		}
	})
	switch {
	case errors.Is(err, keeper.ErrLost):
		return api.NewProblem(http.StatusConflict, "the keeper is gone, so that nothing could start another worker", "a restart of the service")
	case err != nil:
		return err
	case up.State == keeper.Refused || up.State == keeper.RolledBack:
		d.event(slog.LevelWarn, "worker", "daemon", "upgrade refused: "+up.Reason)
		step(api.UpgradeStep{Step: up.State.String(), Error: up.Reason})
	default:
		step(api.UpgradeStep{Step: stepText(&up), Done: true})
	}
	return nil
}

// stepText tells a person what an upgrade does now.
func stepText(up *keeper.Upgrade) string {
	switch up.State {
	case keeper.Checking:
		return "checking " + up.Binary
	case keeper.HandingOver:
		return up.Info + "; handing over"
	case keeper.Checked:
		return up.Info
	}
	return up.State.String()
}
