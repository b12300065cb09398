package relay

import (
	"slices"
	"time"
)

// gramSniff is how a client is sniffed: the hook wants some datagrams, takes some of them away, and refuses some clients.
type gramSniff struct {
	begun    bool
	wants    int // datagrams
	takes    int // every so many is taken away; 0: none
	most     int
	patience time.Duration
	refuses  bool

	seen    []gramID
	taken   int // datagrams
	done    bool
	ended   bool // the hook has refused the client, or was told that nothing more comes
	crowded bool // the most was reached
	chosen  bool // an upstream
}

// turnsAway reports whether the hook has refused the client.
func (x *gramSniff) turnsAway() bool { return x.ended && !x.done }

// startSniff draws how a client is sniffed.
func (s *gramSimulation) startSniff(f *Flow, life *gramLife) {
	if s.kind.sniff == 0 {
		return
	}
	n := (life.number + 1) * (s.kind.sniff + 7) * 2654435 >> 3
	if n%5 == 0 && !s.kind.several {
		return
	}
	x := &life.sniff
	*x = gramSniff{begun: true, wants: 1 + n>>3%4, most: [...]int{1, 100, 2000, 8000}[n>>5%4], patience: time.Duration(1+n>>7%3) * 300 * time.Millisecond, refuses: n>>9%5 == 0}
	if n>>11%3 == 0 {
		x.takes = 2
	}
	if err := f.StartSniff(x.most, x.patience); err != nil {
		s.fail("StartSniff: %v", err)
	}
}

// sniffGram is Hooks.Sniff. Each datagram of the client is shown once, whole, and in its order.
func (s *gramSimulation) sniffGram(f *Flow, b []byte, last bool) (take int, next SniffNext) {
	life := s.flows[f.Value().(int)]
	x := &life.sniff
	if !x.begun || x.done || x.ended {
		s.fail("flow %d is shown a datagram, and was decided: %+v", life.number, *x)
		return 0, SniffRefuse
	}
	if b == nil {
		s.seen.marks[markPatience]++
		if x.ended = true; !last {
			s.fail("flow %d is shown the end, and more may come", life.number)
		}
		if s.world.Elapsed() < life.began+x.patience {
			s.fail("flow %d is told after %v that its client says nothing more, of %v", life.number, s.world.Elapsed()-life.began, x.patience)
		}
		if x.done = len(x.seen) > 1 && !x.refuses; x.done {
			return 0, SniffDone
		}
		return 0, SniffRefuse
	}
	if len(b) < gramHead {
		s.fail("flow %d is shown %d bytes", life.number, len(b))
		return 0, SniffRefuse
	}
	id := idOf(b)
	sent := s.sent[id]
	switch {
	case sent == nil || sent.size != len(b) || !s.isOf(life, id.client) || id.dir != up:
		s.fail("flow %d of %s is shown datagram %v with %d bytes", life.number, life.client, id, len(b))
	case slices.Contains(x.seen, id):
		s.fail("flow %d is shown datagram %v twice", life.number, id)
	case len(x.seen) > 0 && x.seen[len(x.seen)-1].n > id.n && !s.mayOvertake(sent, up):
		s.fail("flow %d is shown datagram %v after %v", life.number, id, x.seen[len(x.seen)-1])
	}
	x.seen = append(x.seen, id)
	x.crowded = last
	switch {
	case len(x.seen) >= x.wants && x.refuses:
		x.ended = true
		s.mark2(markTurned, len(x.seen) > 1)
		return 0, SniffRefuse
	case len(x.seen) >= x.wants:
		x.done = true
		s.mark2(markReleased, len(x.seen)-x.taken > 1)
		return 0, SniffDone
	case x.takes > 0 && len(x.seen)%x.takes == 0:
		x.taken++
		s.mark2(markTaken, true)
		return len(b), SniffMore
	}
	x.ended = last // which is a refusal then
	return 0, SniffMore
}

func (s *gramSimulation) mark2(name string, is bool) {
	if is {
		s.seen.marks[name]++
	}
}

// lookAtChoice is called when an upstream is asked for.
func (s *gramSimulation) lookAtChoice(life *gramLife) {
	if x := &life.sniff; x.begun && !x.done {
		s.fail("flow %d gets an upstream, and nothing was decided: %+v", life.number, *x)
	}
	life.sniff.chosen = true
}

// lookAtArrival is called when an upstream has got a datagram: one of the client's flows has chosen it.
func (s *gramSimulation) lookAtArrival(x *gramSent) {
	for _, life := range s.flows {
		if s.clientIs(life) != x.client {
			continue
		}
		if life.sniff.chosen {
			return
		}
	}
	s.fail("datagram %v has arrived, and no flow of its client has an upstream", x.gramID)
}

// lookAtSniffs checks what flows hold whose clients are sniffed: no more than they may, and not for longer.
func (s *gramSimulation) lookAtSniffs(d *datagrams) {
	var sum int64
	d.slab.Each(func(f *datagramFlow) {
		if !f.sniffed {
			return
		}
		sum += int64(cap(f.held))
		life, n := s.lifeOf(f.Value()), heldBytes(f.held)
		switch x := &life.sniff; {
		case f.fd >= 0 || f.kept || f.to != nil:
			s.fail("flow %d is sniffed, and has an upstream", life.number)
		case n >= int64(x.most) && x.takes == 0:
			s.fail("flow %d holds %d bytes, and may hold %d", life.number, n, x.most)
		case d.loop.Seen > life.began+x.patience && d.loop.Now > life.began+x.patience+time.Second:
			s.fail("flow %d was sniffed since %v", life.number, life.began)
		}
		s.mark2(markSniffed, n > 0)
	})
	if len(d.sniffs) != d.undecided.n {
		s.fail("%d flows are sniffed, and of %d is known how", d.undecided.n, len(d.sniffs))
	}
	if sum != d.undecidedBytes || sum > sniffTotal {
		s.fail("flows that are sniffed hold %d bytes, and %d are counted", sum, d.undecidedBytes)
	}
}
