package app

import (
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay/stats"
)

// descriptorOverload returns the rows of descriptors. Clients may have to wait at less
// than 1, because a part is for datagram flows alone.
func descriptorOverload(s *stats.Engine) (api.OverloadResource, api.OverloadAction) {
	d := &s.Descriptors
	r := api.OverloadResource{Name: "descriptors", Limit: d.Limit - d.Reserved, Use: d.InUse, Source: "RLIMIT_NOFILE"}
	if r.Limit > 0 {
		r.Pressure = float64(r.Use) / float64(r.Limit)
	}
	return r, api.OverloadAction{Name: "clients-wait", Resource: r.Name, Threshold: 1, Active: d.LoopsPaused > 0, Count: d.Waits}
}
