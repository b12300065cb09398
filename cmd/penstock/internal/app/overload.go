package app

import (
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay"
)

// overload returns how close the daemon is to its limits. Each resource adds its rows here.
func (d *daemon) overload(s *relay.Stats) (o api.Overload) {
	r, a := descriptorOverload(s)
	o.Resources, o.Actions = append(o.Resources, r), append(o.Actions, a)
	return o
}
