package app

import (
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// experimentalWhy says what is experimental about Envoy's resources.
const experimentalWhy = "Envoy's Listeners and Clusters as a configuration are experimental: docs/xds.md has what they become here, and how that differs; members from xDS, and Penstock's own type of resource, are not"

// experimental returns those of a configuration's paths that are Envoy's Listeners and Clusters.
func experimental(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		r, name, err := spec.ParseRemote(path)
		return err != nil || r.Kind != "xds" || name != ""
	})
}
