package relay

import (
	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
)

// lookAtLone checks that a datagram that goes to an upstream alone, with nothing beside it, is sent without a message header, which is cheaper. Those
// of a run that was refused go one by one as they are.
func (k *gramKernel) lookAtLone(fd int, v *sys.Vector, from, n int) {
	s := k.s
	if n != 1 || s.kind.preface != gramPrefaceNone || s.faulted || s.core == nil || s.restoring || len(v.SentControl(from)) > 0 || len(v.AppendPayload(nil, from)) == 0 {
		return
	}
	for _, d := range s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			if int(f.fd) == fd {
				s.fail("a datagram goes to the upstream of the flow in slot %d alone, and has a message header", f.slot)
			}
		})
	}
}

// SetOption implements [sys.Kernel]. Nobody has asked for a size of send buffers but the listener, which wants a larger one.
func (k *gramKernel) SetOption(fd, level, name, value int) sys.Errno {
	if sys.SendBuffer.Is(level, name) && value < portSendBuffer {
		k.s.fail("the send buffer of descriptor %d is set to %d bytes", fd, value)
	}
	return k.Process.SetOption(fd, level, name, value)
}

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
