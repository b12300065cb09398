package hooks

import (
	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/route"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// A choice is what a route leads to: one target for each of its parts.
type choice struct {
	targets []*Target
	split   *route.Split // chooses one of several targets; nil: there is one
	by      string       // spec.Route.SplitBy
	hashed  hashedKey
}

func newChoice(r *spec.Route, l *spec.Listener, set *upstream.Set, clients *certs.Clients) *choice {
	c := &choice{by: r.SplitBy, hashed: hashedKeyOf(r.SplitBy)}
	for _, p := range r.To {
		c.targets = append(c.targets, newTarget(r, p.Group, l, set, clients))
	}
	if len(c.targets) > 1 {
		c.split = route.NewSplit(r.To)
	}
	return c
}

// Weights returns the weights that the parts of a route have now. They must not be changed.
func (s *Plan) Weights(r *spec.Route) []int {
	c := s.choices[r]
	if c.split == nil {
		return []int{r.To[0].Weight}
	}
	return c.split.Weights()
}

// SetWeights changes the weights of the parts of a route that has several. weights has one for the name of each.
func (s *Plan) SetWeights(r *spec.Route, weights map[string]int) {
	list := make([]int, len(r.To))
	for i := range r.To {
		list[i] = weights[r.To[i].Name()]
	}
	s.choices[r].split.SetWeights(list)
}

// target chooses the target of a flow. A client that has nothing of what is hashed is known by its address, and one without an address, behind
// a Unix socket, by nothing: it goes where chance takes it.
func (c *choice) target(f *relay.Flow, p *State) *Target {
	if c.split == nil {
		return c.targets[0]
	}
	client := upstream.Client{Addr: f.Client().AddrPort, Key: p.key(c.hashed)}
	if c.by == "" || c.by == spec.SplitRandom || client.Key == "" && !client.Addr.Addr().IsValid() {
		return c.targets[c.split.Random()]
	}
	return c.targets[c.split.ByHash(upstream.Hash(c.by, client))]
}

// A hashedKey is what is hashed instead of the client's address; zero: nothing.
type hashedKey struct {
	sni bool  // the server name
	tlv uint8 // the type of a TLV; 0: none
}

// hashedKeyOf returns what a value of spec.Group.Hash or spec.Route.SplitBy stands for.
func hashedKeyOf(hash string) hashedKey {
	k := hashedKey{sni: hash == "sni"}
	k.tlv, _ = spec.HashTLV(hash)
	return k
}

// key returns what is hashed instead of the client's address: the server name, or a TLV of the PROXY header; empty: it has none.
func (p *State) key(k hashedKey) string {
	switch {
	case k.sni:
		if hello := p.hello.Load(); hello != nil && hello.ServerName != "" {
			return hello.ServerName
		}
		if p.header != nil {
			return p.header.SNI
		}
	case k.tlv != 0 && p.header != nil:
		return p.header.TLV(k.tlv)
	}
	return ""
}
