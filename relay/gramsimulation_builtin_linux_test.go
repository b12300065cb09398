package relay

// Built-in upstreams of datagrams, in a simulation: a client gets its own datagrams back, each as it was sent, or they are gone.

// builtinOf is the built-in upstream of a client; 0: it has others.
func (s *gramSimulation) builtinOf(client byte) Network {
	return drawBuiltin(s.kind.builtins, int(client))
}

// discardedGrams is how many datagrams built-in upstreams have taken and not returned, as far as this process knows of them.
func (s *gramSimulation) discardedGrams() (n int64) {
	n = s.discardedEarlier
	for _, d := range s.core.datagrams.all {
		d.slab.Each(func(f *datagramFlow) {
			if f.builtin() && !f.echo {
				n += f.moved[up].datagrams
			}
		})
	}
	return n
}

// lookAtBuiltin checks which built-in upstream a flow has, or that it has none.
func (s *gramSimulation) lookAtBuiltin(f *datagramFlow, x *gramLife) {
	want := s.builtinOf(s.clientOf(f))
	if f.to != nil && (f.to.Network == Echo || f.to.Network == Discard || want != 0) && f.to.Network != want || f.echo != (f.to != nil && want == Echo) {
		s.fail("flow %d has the upstream %v, returns what its client sends: %v, and its client's upstream is %v", x.number, f.to, f.echo, want)
	}
	s.mark2(markBuiltin+want.String(), want != 0 && f.moved[up].datagrams > 0)
}

// upstreamSockets is how many sockets a flow that is kept has towards its upstream.
func (f *datagramFlow) upstreamSockets() int {
	if f.builtin() {
		return 0
	}
	return 1
}
