package relay

import "github.com/penstock/penstock/relay/hold"

// RestoreConfig configures [Engine.Restore].
type RestoreConfig struct {
	// Pair returns the configuration of a pair given to [Engine.Relay] with
	// PairConfig.Name, and decodes what PairConfig.Encode has encoded. If it is nil or
	// returns an error, the pair is lost.
	Pair func(name string, d *hold.Decoder) (PairConfig, error)
	// Listener returns the configuration for flows of a listener that the engine does
	// not have, by the listener's address; false means that these flows are lost, as
	// they are if Listener is nil.
	Listener func(addr string) (ListenConfig, bool)
}
