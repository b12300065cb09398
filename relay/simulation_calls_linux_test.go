package relay

import "github.com/penstock/penstock/internal/sys"

// lookAtHandedPorts checks that a process that has handed over leaves clients in the queues of the listeners.
func (s *simulation) lookAtHandedPorts() {
	for _, st := range s.core.streams.all {
		for _, p := range st.ports {
			if _, watched := s.kernel.watched[costWatch{s.kernel.epolls[st.loop.Descriptor()], p.fd}]; watched {
				s.fail("loop %d watches a port, and the process has handed over", st.loop.Index)
			}
		}
	}
}

// lookAtPauses checks that no loop has paused that had descriptors and memory, and whose accepts have not failed.
func (s *simulation) lookAtPauses() {
	if s.scarce || s.acceptErrors > 0 || s.damaged {
		return
	}
	for _, st := range s.core.streams.all {
		if n := st.loopStats.AcceptPauses; n > 0 {
			s.fail("loop %d has paused %d times, and lacked nothing", st.loop.Index, n)
		}
	}
}

// tells notes which sockets may have something to read, by the events of a wait. Until then a socket that was connected has nothing.
func (k *costKernel) tells(evs []sys.Event) {
	for i := range evs {
		if evs[i].Events&(sys.In|sys.RdHup|sys.Hup|sys.Err) != 0 {
			delete(k.silent, uint64(uint32(evs[i].Fd))|uint64(uint32(evs[i].Pad))<<32)
		}
	}
}

// readsEarly is called with what a read has said. It checks that a socket that the process has connected is not read in vain before an event says
// that there is something. A server that is asked for its answer, and TLS, are not looked at.
func (k *costKernel) readsEarly(fd int, e sys.Errno) {
	if e != sys.EAGAIN || k.Process.Fault != nil || k.s.busy > 0 || k.s.secure > 0 || k.s.words > 0 || k.past() {
		return
	}
	for _, silent := range k.silent {
		if silent == fd {
			k.s.fail("descriptor %d was just connected, has nothing to read, and is read\n%s", fd, k.s.describe())
		}
	}
}
