package keeping

import (
	"log/slog"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay/stats"
)

// A process without a keeper may do with its link whatever one with a keeper does: nothing was left to it, nothing is kept of what it
// leaves, and nobody does what it asks for.
func TestAlone(t *testing.T) {
	k := Alone()
	defer k.Close()
	if err := k.Prepare(&spec.Config{}, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if !k.First() || k.Present() || k.Up() || k.GoesOn() || k.Unplanned() || k.Replaced() || k.DiedYoung() || k.InSandboxBefore() || k.MayAsk() || k.SavesState() || !k.Trusts() {
		t.Error("it is not the first one")
	}
	if err := k.EnterBefore(); err != nil {
		t.Error(err)
	}
	if k.KeepConfig(&spec.Keeper{}) != nil || k.Status(&stats.Engine{}) != nil || k.OOMScore() != nil || k.CountsMemory() != nil || k.Counters() == nil {
		t.Error("there is something of a keeper")
	}
	if k.AddressesBefore() != nil || k.LayersBefore() != nil || len(k.SavedConfigs()) != 0 || len(k.EndedBefore().All) != 0 || !k.Before().Started.IsZero() {
		t.Error("something was left to it")
	}
	if cfg, err := k.SavedConfig(); cfg != nil {
		t.Errorf("%v, %v", cfg, err)
	}
	for name, err := range map[string]error{
		"SaveConfig": k.SaveConfig(&spec.Config{}, nil), "SaveEnded": k.SaveEnded(Ended{}), "UseTimes": k.UseTimes(&spec.Keeper{}),
		"SaveState": k.SaveState(nil, true, func(time.Time) (Rest, uint64) { return Rest{}, 0 }),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.AddStart(&api.WorkerStart{Reason: "first"})
	k.Alive()
	k.Leaving()
	k.DropOthers()
	for name, err := range map[string]error{"Ready": k.Ready(), "Restart": k.Restart(), "Stay": k.Stay("x"), "HandedOver": k.HandedOver()} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if f, err := k.Asker(earlykeeper.Read)("/dev/null"); err == nil {
		f.Close()
		t.Error("somebody has opened a file")
	}
	select {
	case <-k.Lost():
		t.Error("a keeper that is not there was lost")
	default:
	}
}
