package discover

import (
	"context"
	"slices"

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
	leftOut, ignored := problems{complaints: complaints{tell: s.sources.opt.LeftOut}}, problems{complaints: complaints{tell: s.sources.opt.Ignored}}
	var wait remote.Backoff
	for {
		shared, err := s.sources.opt.XDS(s.what.Registry)
		if err == nil {
			shared.Endpoints.Watch(ctx, s.what.Key, func(a *xds.Assignment, err error) {
				if err != nil {
					update(nil, err)
					return
				}
				leftOut.news(s.what, a.LeftOut)
				ignored.news(s.what, a.Ignored)
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

// problems are those of the last assignment. They are told when they are new.
type problems struct {
	complaints
	said []xds.Problem
}

func (p *problems) news(what spec.Discover, list []xds.Problem) {
	for _, problem := range list {
		if !slices.Contains(p.said, problem) {
			p.add(what, problem.String())
		}
	}
	p.said = list
}

// healths are what a member is reported as.
var healths = [...]upstream.Health{xds.Healthy: "", xds.Degraded: upstream.Degraded, xds.Unhealthy: upstream.Unhealthy, xds.Draining: upstream.Draining}

// xdsTargets returns the members of an assignment.
func xdsTargets(a *xds.Assignment, network spec.Kind) []upstream.Target {
	list := make([]upstream.Target, 0, len(a.Members))
	policy := upstream.Policy{Factor: a.Factor, Weigh: a.Weighted}
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
		list = append(list, upstream.Target{Addr: addr, Weight: m.Weight, Zone: m.Zone, Priority: m.Priority, Metadata: m.Metadata,
			Health: healths[m.Health], Locality: upstream.Locality(m.Locality), Policy: policy})
	}
	return list
}
