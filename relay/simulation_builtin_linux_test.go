package relay

// Built-in upstreams in a simulation: Echo, of which a client gets back what it has sent, and Discard, of which it gets nothing but the end. They have no peer:
// what such a peer would have sent and got follows from what the client has.

func drawBuiltin(builtins, plan int) Network {
	if builtins == 0 {
		return 0
	}
	return [...]Network{0, Echo, Discard}[(builtins+plan)%3]
}

// follow has the upstream of a flow send and get what it would, if it is built in.
func (f *simFlow) follow() {
	client, upstream := &f.half[up], &f.half[down]
	switch f.builtin {
	case Echo:
		upstream.sent, upstream.ended = client.sent, client.ended
		client.got, client.end, client.failed = upstream.got, upstream.end, upstream.failed
	case Discard:
		upstream.ended = true // it says nothing, so that nothing is cut short
		client.got, client.end, client.failed = client.sent, upstream.end, upstream.failed
	}
}

// sender is the side whose bytes a side gets.
func (f *simFlow) sender(side int) int {
	if f.builtin == Echo {
		return sideClient
	}
	return 1 - side
}

// discards checks that all has been read that was sent to an upstream that discards, when nothing happens any more. What a process had
// discarded that died is not counted.
func (s *simulation) discards() {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			x := s.flowOf(&f.Flow)
			if x == nil || x.builtin != Discard || f.state != streamRelaying || f.cause != CauseNone || x.mayReset() {
				return
			}
			left, _ := s.process.ReadQueued(int(f.fd[sideClient]))
			if in := f.half[up].In; left > 0 || in != f.half[up].Out || in > x.half[up].sent || in < x.half[up].sent && s.deaths == 0 {
				s.fail("flow %d: of %d bytes for an upstream that discards, %d were read and %d written\n%s", x.id, x.half[up].sent, f.half[up].In, f.half[up].Out, s.describe())
			}
		})
	}
}

// discarded is how much flows have discarded that go on.
func (s *simulation) discarded() (n int64) {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			if f.half[up].Sink {
				n += f.half[up].In
			}
		})
	}
	return n
}
