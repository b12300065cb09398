package sources

import (
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// ExperimentalWhy says what is experimental about Envoy's resources.
const ExperimentalWhy = "Envoy's Listeners and Clusters as a configuration are experimental: docs/xds.md has what they become here, and how that differs; members from xDS, and Penstock's own type of resource, are not"

// Experimental returns those of a configuration's paths that are Envoy's Listeners and Clusters.
func Experimental(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		r, name, err := spec.ParseRemote(path)
		return err != nil || r.Kind != "xds" || name != ""
	})
}
