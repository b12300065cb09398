package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// TestSimulateGiveUp has clients of streams come to loops of which another one has sockets of datagram flows that rest: those make room, on whichever loop they are.
func TestSimulateGiveUp(t *testing.T) {
	s := newGramSimulation(gramWorld{loops: 2, limit: 60})
	defer s.finish()
	for range gramPeersMax {
		s.connect()
	}
	for i := range s.clients {
		s.clientSends(i, 100, 1, 0, false, 0)
	}
	for range 4 {
		s.turn()
	}
	s.removeUpstream(0)
	s.removeUpstream(1)
	rest := func() (all int) {
		for _, d := range s.core.datagrams.all {
			all += d.rests.len()
		}
		return all
	}
	before := rest()
	at, to := Addr{Network: TCP, AddrPort: s.listen.AddrPort}, Addr{Network: TCP, AddrPort: s.to[0].AddrPort}
	if _, err := sys.Listen(s.peers, simAddress(to), false, false, 0, func(int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.call(func() {
		if _, err := (&Engine{s.core}).Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &to }}}); err != nil {
			t.Fatal(err)
		}
	})
	short := 0
	for i := range 40 {
		sa := simAddress(at)
		fd, e := s.peers.Socket(sa.Family(), false)
		s.peers.Choose = func(int) int { return 0 } // one loop gets them
		if e = max(e, s.peers.Connect(fd, sa)); e != 0 && e != sys.EINPROGRESS {
			t.Fatal(e)
		}
		for range 6 {
			s.call(func() { // what is counted of flows of both kinds is not looked at
				for _, l := range s.core.loops {
					s.stepper.Turn(l)
				}
			})
		}
		for _, st := range s.core.streams.all {
			if st.short.loop.Load() {
				if short++; rest() > 0 {
					t.Fatalf("client %d waits for loop %d, which lacks descriptors, and %d sockets rest, of %d", i, st.loop.Index, rest(), before)
				}
			}
		}
	}
	if s.wrong != nil {
		t.Error(s.wrong)
	}
	if before < 4 || short == 0 {
		t.Errorf("%d sockets have rested, and loops lacked descriptors %d times", before, short)
	}
}
