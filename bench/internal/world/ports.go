//go:build linux

package world

import (
	"slices"
	"sync"
)

// ports knows which datagram flows have come from which address of the relay. A late answer may find its address with another flow,
// because the relay has ended its own and the kernel has given the port away. Whether it may reach that flow's client is a
// question of who had the address before whom, and never of how late it is.
type ports struct {
	mu     sync.Mutex
	owners map[relayPort][]uint64 // the flows that came from there, in this order
}

// relayPort is an address of the relay as one upstream sees it; at another upstream it may be another flow's at the same time.
type relayPort struct{ upstream, from string }

func (p relayPort) String() string { return p.from }

// came is told that a datagram of a flow came from a port. It reports false if the flow had it, and another one since: a relay that ends
// flows does not go back to them. Datagrams of one port arrive in the order in which they were sent.
func (p *ports) came(at relayPort, flow uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := p.owners[at]
	if len(owners) > 0 && owners[len(owners)-1] == flow {
		return true
	}
	if p.owners == nil {
		p.owners = make(map[relayPort][]uint64)
	}
	p.owners[at] = append(owners, flow)
	return !slices.Contains(owners, flow)
}

// passed reports whether a port was one flow's, and another's later.
func (p *ports) passed(at relayPort, first, then uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := p.owners[at]
	i := slices.Index(owners, first)
	return i >= 0 && slices.Index(owners, then) > i
}

// stranger is an answer that a client got to a datagram of another flow.
type stranger struct {
	flow, number uint64
	sent         uint64 // datagrams that the client had sent
}

// judge is told that a client got the answer to one of its own datagrams. What it sent before has arrived too, unless it is lost, so that
// of strangers that came before that it is known whether they came by a port that was theirs before. Of a client whose
// flow began anew after a kill it is not: the datagram that would have said so may be lost.
func (w *World) judge(f *datagramFlow, answered uint64) {
	if len(f.strangers) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.strangers = slices.DeleteFunc(f.strangers, func(s stranger) bool {
		if answered <= s.sent {
			return false
		}
		passed := slices.ContainsFunc(f.ports, func(p relayPort) bool { return w.ports.passed(p, s.flow, f.id) })
		if passed || w.Kills.Between(f.start, f.since.Add(w.KeepAfter+w.Slack), 0) {
			w.Tally.Count(datagramsLate, 1)
		} else {
			w.Tally.Fault(datagramsWrong, "%v got the answer to datagram %d of flow %d, which had none of its ports before", f, s.number, s.flow)
		}
		return true
	})
}

// forgive counts what nobody can judge any more: its client ends, and nothing that it sent since was answered.
func (w *World) forgive(f *datagramFlow) { w.Tally.Count(datagramsLate, int64(len(f.strangers))) }
