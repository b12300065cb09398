package relay

import (
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
)

// checkPath checks what a flow's record says of how datagrams went.
func (s *gramSimulation) checkPath(x *gramLife, r *Record) {
	for dir, t := range [2]Transfer{up: r.Up, down: r.Down} {
		builtin := dir == up && r.Upstream.Network.BuiltIn()
		switch {
		case t.Path == datapath.None && t.Why == datapath.WhyNone && t.Datagrams == 0:
		case t.Path == datapath.GSO && t.Why == datapath.WhyNone && t.Datagrams > 0 && !s.kind.noGSO && !builtin && s.family() != sys.Unix:
		case t.Path == datapath.Copy && t.Why != datapath.WhyNone && t.Datagrams > 0 && (t.Why == datapath.WhyBuiltin) == builtin && (t.Why != datapath.WhyOff || s.kind.noGSO):
		default:
			s.fail("flow %d has the path %v, %q in direction %d, of %d datagrams", x.number, t.Path, t.Why, dir, t.Datagrams)
		}
	}
}
