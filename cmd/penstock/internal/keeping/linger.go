package keeping

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/keeper"
)

const _ uint = keeper.MaxLingering - spec.MostLingering // the keeper lets as many linger

// Lingers returns for how long this worker goes on with the TLS of its flows once it has handed over; 0: not at all.
func (k *Link) Lingers(cfg *spec.Keeper) time.Duration {
	if cfg == nil || cfg.MaxLingering == 0 || !k.MayLinger() {
		return 0
	}
	return cfg.Linger
}

// SetLinger says before the engine hands over whether these flows go on.
func (k *Link) SetLinger(on bool) {
	if k.keep != nil {
		k.keep.Linger = on
	}
}
