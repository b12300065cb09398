package discover

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
	"github.com/penstock/penstock/cmd/penstock/internal/remote"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/cmd/penstock/internal/xds"
)

// Options configure Sources. All are optional.
type Options struct {
	// Interval is the least time between two lists of a source; 0: 100 ms, and 10 us for each member besides.
	Interval time.Duration
	// LeftOut is called with what is wrong about a member that is therefore left out. It is called once for each
	// wrong value, and at most maxComplaints times in a minute for each source; then with how many there were more.
	LeftOut func(what spec.Discover, problem string)
	// Ignored is called as LeftOut is, with a field of a ClusterLoadAssignment that is not done.
	Ignored func(what spec.Discover, problem string)

	// XDS returns the client of a control plane, which the caller releases; nil: there is nothing for xDS.
	XDS func(spec.Registry) (*xds.Shared, error)

	// dial connects to servers in tests; nil: as always.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Sources are the sources of members of all registries. Sources of one registry share a client, those of one
// Docker daemon a watch. The zero value
// is not usable; nothing runs, and nothing is allocated for a registry, until a Discoverer is watched.
type Sources struct {
	opt Options

	mu      sync.Mutex
	clients map[spec.Registry]*sharedClient
	kube    map[spec.Registry]*kubeClient
	docker  map[spec.Registry]*dockerWatch
}

// New returns Sources.
func New(opt Options) *Sources {
	if opt.LeftOut == nil {
		opt.LeftOut = func(spec.Discover, string) {}
	}
	if opt.Ignored == nil {
		opt.Ignored = func(spec.Discover, string) {}
	}
	return &Sources{opt: opt}
}

// Discoverer returns what finds the members of d, or nil if there is nothing for registries of its kind.
func (s *Sources) Discoverer(d spec.Discover) upstream.Discoverer {
	switch d.Registry.Kind {
	case "etcd":
		return etcdSource{s, d}
	case "consul":
		return consulSource{consul, s, d}
	case "nomad":
		return consulSource{nomad, s, d}
	case "docker":
		return dockerSource{s, d}
	case "http":
		return httpSource{s, d}
	case "kubernetes":
		return s.kubernetes(d)
	case "xds":
		if s.opt.XDS != nil {
			return xdsSource{s, d}
		}
	}
	return nil
}

// A sharedClient is a client of etcd that is closed when no source uses it any more.
type sharedClient struct {
	*etcd.Client
	users int
}

// client returns the client of a registry. The caller must call done when it has stopped using it.
func (s *Sources) client(r spec.Registry) (c *etcd.Client, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.clients[r]
	if shared == nil {
		cfg := etcd.Config{Remote: remote.Of(r)}
		cfg.Remote.DialContext = s.opt.dial
		if c, err = etcd.New(cfg); err != nil {
			return nil, nil, err
		}
		shared = &sharedClient{Client: c}
		if s.clients == nil {
			s.clients = make(map[spec.Registry]*sharedClient)
		}
		s.clients[r] = shared
	}
	shared.users++
	return shared.Client, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if shared.users--; shared.users == 0 {
			delete(s.clients, r)
			shared.Close()
		}
	}, nil
}

// watch runs follow, which changes the feed that it is given, and calls update with lists of the feed, until ctx
// ends. It returns when follow has.
func (s *Sources) watch(ctx context.Context, what spec.Discover, update func([]upstream.Target, error), follow func(context.Context, *feed)) {
	f := newFeed(s.opt, what)
	var running sync.WaitGroup
	running.Go(func() { follow(ctx, f) })
	f.publish(ctx, update)
	running.Wait()
}
