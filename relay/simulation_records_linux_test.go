package relay

import "testing"

// A flow with TLS may carry any number of records, one in each turn: what a turn may cost is counted anew in each.
func TestSimulateManyRecords(t *testing.T) {
	const records = 1200 // more than a turn may read
	for side := range 2 {
		plain := simSecure{at: [2]bool{side == sideClient, side == sideUpstream}}
		s := newSimulation(simSettings{secure: 1})
		plan := 0
		for ; ; plan++ { // one in which nothing but that side's TLS is out of the ordinary
			if x := drawSecure(s.secure, plan); x.at == plain.at && x.rude == plain.rude && x.sniff == 0 && drawPlan(plan) == (simPlan{}) {
				break
			}
		}
		s.connect(0, plan)
		s.settle(false)
		f := s.flows[0]
		for range records {
			s.send(f, side, 1)
			s.turn()
			s.read(f, 1-side, 1<<10)
		}
		if s.settle(false); f.half[side].sent < records {
			t.Errorf("side %d has sent %d bytes", side, f.half[side].sent)
		}
		s.quiet()
		s.settle(true)
		if s.check(); s.wrong != nil {
			t.Errorf("TLS at side %d: %v", side, s.wrong)
		}
		s.finish()
	}
}
