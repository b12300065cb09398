package discover

import (
	"context"

	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/cmd/penstock/internal/xds"
)

// An xdsSource finds members as a ClusterLoadAssignment has them. All groups of a control plane share one stream.
type xdsSource struct {
	sources *Sources
	what    spec.Discover
}

func (s xdsSource) Watch(ctx context.Context, update func([]upstream.Target, error)) {
	var wait remote.Backoff
	for {
		shared, err := s.sources.opt.XDS(s.what.Registry)
		if err == nil {
			shared.Endpoints.Watch(ctx, s.what.Key, func(a *xds.Assignment, err error) {
				if err != nil {
					update(nil, err)
					return
				}
				update(xdsTargets(a, s.what.Network), nil)
			})
			shared.Release()
			return
		}
		update(nil, err) // a file of the registry
		if wait.Wait(ctx) != nil {
			return
		}
	}
}

// xdsTargets returns the members of an assignment.
func xdsTargets(a *xds.Assignment, network spec.Kind) []upstream.Target {
	list := make([]upstream.Target, 0, len(a.Members))
	for _, m := range a.Members {
		switch {
		case m.To.Kind == spec.TCP && network == spec.UDP:
			m.To.Kind = spec.UDP
		case m.To.Kind == spec.Unix && network == spec.UDP:
			m.To.Kind = spec.Unixgram
		}
		addr, ok := m.To.Literal()
		if !ok {
			continue
		}
		list = append(list, upstream.Target{Addr: addr, Weight: m.Weight, Backup: m.Backup, Zone: m.Zone, Priority: m.Priority, Draining: m.Draining, Metadata: m.Metadata})
	}
	return list
}
