package xds

import (
	"errors"
	"sync"

	"github.com/penstock/penstock/cmd/penstock/internal/ads"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Pool shares clients: all who use the same control plane as the same node have one stream. The zero value
// is ready, and has no clients.
type Pool struct {
	mu     sync.Mutex
	shared map[poolKey]*Shared
}

type poolKey struct {
	registry spec.Registry // without its name
	node     spec.Node
}

// Shared is a client of a Pool.
type Shared struct {
	Client    *ads.Client
	Endpoints *Endpoints

	pool       *Pool
	key        poolKey
	users      int
	configured bool
}

// Get returns the client of a control plane. The caller must call Release. version is Penstock's.
func (p *Pool) Get(r spec.Registry, node spec.Node, version string) (*Shared, error) {
	r.Name, r.Partial = "", false
	key := poolKey{r, node}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shared[key]
	if s == nil {
		c, err := ads.NewClient(ads.Options{Registry: r, Node: ads.Node{ID: node.ID, Zone: node.Zone, Version: version}})
		if err != nil {
			return nil, err
		}
		s = &Shared{Client: c, Endpoints: NewEndpoints(c), pool: p, key: key}
		if p.shared == nil {
			p.shared = map[poolKey]*Shared{}
		}
		p.shared[key] = s
	}
	s.users++
	return s, nil
}

// Configuration returns the configuration of the control plane; see [NewConfiguration]. There can be one at
// a time.
func (s *Shared) Configuration(name string, partial bool) (*Configuration, error) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.configured {
		return nil, errors.New("one control plane cannot have two layers of the configuration")
	}
	s.configured = true
	return NewConfiguration(s.Client, s.Endpoints, name, partial), nil
}

// Release gives the client back. The last one closes it.
func (s *Shared) Release() {
	p := s.pool
	p.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(p.shared, s.key)
	}
	p.mu.Unlock()
	if last {
		s.Client.Close()
	}
}
