package spec

import "slices"

// A Balancer is a value of the key balance. Package upstream has its code.
type Balancer struct {
	Name string
	Doc  string // how it chooses, if the name does not say it
	Hash bool   // it uses Group.Hash
	// NoWeights says that weights and slow start have no effect.
	NoWeights bool
}

// Balancers lists all balancers; the first one is the default. The key of the configuration with
// its reference and schema, and the tests that run with each balancer, are derived from it.
var Balancers = []Balancer{
	{Name: "round-robin"},
	{Name: "least-connections"},
	{Name: "p2c", Doc: "the less loaded of two random members"},
	{Name: "maglev", Doc: "by a hash, so that a client keeps its member", Hash: true},
	{Name: "random"},
	{Name: "first", Doc: "fill one member after the other", NoWeights: true},
}

// BalancerNamed returns the balancer of that name, the default if there is none.
func BalancerNamed(name string) *Balancer {
	i := slices.IndexFunc(Balancers, func(b Balancer) bool { return b.Name == name })
	return &Balancers[max(i, 0)]
}
