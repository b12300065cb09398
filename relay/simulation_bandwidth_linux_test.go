package relay

import (
	"time"
)

// Bandwidth in a simulation. Over any time, each direction of a flow reads no more than its rate and one burst, and one more for each process
// that goes on with it; and nearly as much as its rate, if there is enough and somebody takes it.

// simPace is the bandwidth of a flow, and what it has had of it.
type simPace struct {
	rate    int64 // bytes a second, of each direction; 0: no limit
	hook    int   // which one sets it last: Admit, Upstream or Connected
	in      [2]int64
	excess  [2]float64 // what was read above the rate: never more than a burst
	at      time.Duration
	process int // the last that it was seen in
}

func drawPace(rates, n int) simPace {
	if rates == 0 {
		return simPace{}
	}
	return simPace{rate: [...]int64{0, 100_000, 400_000, 800_000}[(rates+n)%4], hook: (rates + n) >> 2 % 3}
}

// burst is what a direction may read at once.
func (p *simPace) burst() float64 { return max(float64(p.rate)/10, paceLeast) }

// limit sets the bandwidth of a flow in a hook: another one before the last that sets it.
func (s *simulation) limit(f *Flow, hook int) {
	x := s.flowOf(f)
	if x == nil || x.pace.rate == 0 || hook > x.pace.hook {
		return
	}
	if x.pace.process == 0 {
		x.pace.process = s.processes
	}
	rate := x.pace.rate
	if hook < x.pace.hook {
		rate *= 3
	}
	if err := f.SetBandwidth(rate); err != nil {
		s.fail("bandwidth: %v", err)
	}
}

func (s *simulation) connected(f *Flow, _ *Addr, _ time.Duration, err error) {
	if err == nil {
		s.limit(f, 2)
		x := s.flowOf(f)
		s.originates(f, x)
		s.prefaced(f, x)
		s.reply(f, x, replyConnected)
	}
}

// lookAtPace looks at what a flow that relays has read.
func (s *simulation) lookAtPace(x *simFlow, f *streamFlow) {
	p := &x.pace
	if p.rate == 0 || f.state != streamRelaying {
		return
	}
	passed := s.world.Elapsed() - p.at
	for h := range f.half {
		in := f.half[h].In
		p.excess[h] = max(0, p.excess[h]-float64(p.rate)*passed.Seconds()) + float64(in-p.in[h])
		p.excess[h] -= p.burst() * float64(s.processes-p.process)
		// Time passes between the beginning of a turn and its end.
		if slack := 16 + float64(p.rate)/1000; p.excess[h] > p.burst()+slack {
			s.fail("flow %d: direction %d has read %d bytes since the last turn, of %d; that is %.0f above its bandwidth of %d bytes a second, and %.0f are a burst",
				x.id, h, in-p.in[h], in, p.excess[h], p.rate, p.burst())
		}
		p.in[h] = in
	}
	p.at, p.process = s.world.Elapsed(), s.processes
}

// relays reports whether a flow relays and nothing has failed.
func (s *simulation) relays(x *simFlow) (so bool) {
	for _, st := range s.core.streams.all {
		st.slab.Each(func(f *streamFlow) {
			so = so || s.flowOf(&f.Flow) == x && f.state == streamRelaying && f.cause == CauseNone
		})
	}
	return so && s.wrong == nil
}

// pour has a peer send as much as it can for a while, and the other one read. A direction with a bandwidth has to carry that much.
func (s *simulation) pour(f *simFlow, side, turns int) bool {
	if f.pace.rate == 0 || f.answers() || f.half[side].ended || f.half[side].end || min(f.fd[0], f.fd[1]) < 0 || !s.relays(f) {
		return false
	}
	processes, from, began := s.processes, f.half[side].got, s.world.Elapsed()
	for range turns {
		s.send(f, side, 300_000)
		s.turn()
		for s.world.InFlight() > 0 {
			s.world.Deliver(0, 1<<20)
		}
		s.turn()
		s.read(f, 1-side, 1<<18)
		s.world.Sleep(20 * time.Millisecond)
	}
	took := s.world.Elapsed() - began - 2*tick
	if got := f.half[side].got - from; !f.half[side].ended && s.process.Fault == nil && s.processes == processes && !f.mayReset() && s.relays(f) && float64(got) < 0.75*float64(f.pace.rate)*took.Seconds() {
		s.fail("flow %d: a bandwidth of %d bytes a second, and %d in %v\n%s", f.id, f.pace.rate, got, took, s.describe())
	}
	return true
}
