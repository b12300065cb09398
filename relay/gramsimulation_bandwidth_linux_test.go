package relay

import (
	"time"

	"github.com/penstock/penstock/relay/stats"
)

// Bandwidth in a simulation of datagrams. Over any time, each direction of a flow lets pass no more than its rate, one burst and one message, and
// as much more for each process that goes on with it. None is dropped for that reason while no flow has been sent that much.

// gramPace is the bandwidth of a flow, and what it has had of it.
type gramPace struct {
	rate    int64    // bytes a second, of each direction; 0: no limit
	passed  [2]int64 // bytes: at least as many have passed
	read    [2]int64
	excess  [2]float64 // of what has passed above the rate
	offered [2]float64 // of what was read
	at      time.Duration
	process int
}

// gramPaces are those of all flows.
type gramPaces struct {
	exceeded bool  // since the last look, a flow was sent more than its bandwidth
	dropped  int64 // for that reason, by this process
	process  int
}

func (p *gramPace) burst() float64 { return max(float64(p.rate)/10, paceLeast) }

// limitGrams draws the bandwidth of a flow, and sets it.
func (s *gramSimulation) limitGrams(f *Flow, life *gramLife) {
	if s.kind.rates == 0 {
		return
	}
	n := s.kind.rates + life.number
	p := &life.pace
	if *p = (gramPace{rate: [...]int64{0, 10_000, 100_000, 400_000}[n%4], at: s.world.Elapsed(), process: s.processes}); p.rate == 0 {
		return
	}
	rates := []int64{p.rate}
	if n>>2%3 == 0 { // the last one counts
		rates = []int64{3 * p.rate, 0, p.rate}
	}
	for _, rate := range rates {
		if err := f.SetBandwidth(rate); err != nil {
			s.fail("bandwidth: %v", err)
		}
	}
}

// longestGram is how long a message is at most that is received at once.
func (s *gramSimulation) longestGram() float64 {
	if s.kind.network == 3 || s.kind.noGRO {
		return float64(gramLengths[len(gramLengths)-1])
	}
	return dgramSize
}

// offer is called when a flow was sent something, or has ended.
func (s *gramSimulation) offer(life *gramLife, passed time.Duration, read [2]int64) {
	p := &life.pace
	for dir, n := range read {
		p.offered[dir] = max(0, p.offered[dir]-float64(p.rate)*passed.Seconds()) + float64(max(0, n-p.read[dir]))
		p.read[dir] = n
		if p.offered[dir] >= p.burst()-1-float64(p.rate)/1000 {
			s.paces.exceeded = true
		}
	}
}

// lookAtGramPace looks at what a flow has let pass.
func (s *gramSimulation) lookAtGramPace(life *gramLife, f *datagramFlow) {
	p := &life.pace
	if p.rate == 0 {
		return
	}
	now := [2]int64{f.moved[up].written + heldBytes(f.held), f.moved[down].written}
	for _, d := range s.core.datagrams.all {
		for _, port := range d.ports {
			for _, it := range port.out.items[port.out.at:port.out.n] {
				if it.f == f {
					now[down] += int64(it.bytes)
				}
			}
		}
	}
	passed := s.world.Elapsed() - p.at
	for dir, n := range now {
		p.excess[dir] = max(0, p.excess[dir]-float64(p.rate)*passed.Seconds()) + float64(max(0, n-p.passed[dir])) - (p.burst()+s.longestGram())*float64(s.processes-p.process)
		if slack := 16 + float64(p.rate)/1000; p.excess[dir] > p.burst()+s.longestGram()+slack {
			s.fail("flow %d: %d bytes have passed in direction %d; that is %.0f above its bandwidth of %d bytes a second, and %.0f are a burst\n%s", life.number, n, dir, p.excess[dir], p.rate, p.burst(), s.describeGrams())
		}
		if n > p.passed[dir] {
			life.activeAt = s.lookedAt
		}
		p.passed[dir] = n
	}
	s.offer(life, passed, [2]int64{f.moved[up].read, f.moved[down].read})
	p.at, p.process = s.world.Elapsed(), s.processes
}

// lookAtLimited checks that nothing was dropped as too much that was not.
func (s *gramSimulation) lookAtLimited() {
	p, n := &s.paces, int64(0)
	for _, d := range s.core.datagrams.all {
		n += d.stats.Dropped[stats.DropLimited]
	}
	if p.process == s.processes && n > p.dropped {
		if !p.exceeded && !s.begins.full {
			s.fail("%d datagrams were dropped as above the bandwidth, and no flow was sent that much\n%s", n-p.dropped, s.describeGrams())
		}
		s.seen.marks[markLimited]++
	}
	*p = gramPaces{dropped: n, process: s.processes}
}
