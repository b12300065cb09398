package app

import (
	"log/slog"

	"github.com/penstock/penstock/cmd/penstock/internal/discover"
	"github.com/penstock/penstock/cmd/penstock/internal/sources"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/cmd/penstock/internal/xds"
)

// newDiscoverers returns what finds the members of a lookup: DNS, or the registry that the lookup names.
func newDiscoverers(log *slog.Logger, node spec.Node) func(spec.Discover) upstream.Discoverer {
	registries := discover.New(discover.Options{
		LeftOut: func(what spec.Discover, problem string) {
			log.Warn("member left out", "name", what.String(), "problem", problem)
		},
		Ignored: func(what spec.Discover, problem string) {
			log.Warn("field ignored", "name", what.String(), "problem", problem)
		},
		XDS: func(r spec.Registry) (*xds.Shared, error) { return sources.ControlPlanes.Get(r, node, version()) },
	})
	return func(what spec.Discover) upstream.Discoverer {
		if found := registries.Discoverer(what); found != nil {
			return found
		}
		return upstream.DNS{}.Discoverer(what)
	}
}
