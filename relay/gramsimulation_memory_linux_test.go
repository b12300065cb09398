package relay

import (
	"sync"

	"github.com/penstock/penstock/internal/sys"
)

// gramLent is what a loop would make when its first port comes, and when that has its first reply. Making it anew for each process took two fifths
// of the time.
type gramLent struct {
	unix               bool // its ports are Unix sockets
	buffers            [][]byte
	batch              []message
	single             *sys.Vector
	toUpstream, echoes outbox
	replies            replyMemory
}

var gramLents = [2]sync.Pool{{New: func() any { return newGramLent(sys.IPv4) }}, {New: func() any { return newGramLent(sys.Unix) }}}

func newGramLent(family sys.Family) *gramLent {
	var d datagrams
	d.prepareWith(dgramBuffers())
	return &gramLent{family == sys.Unix, d.buffers, d.batch, d.single, d.toUpstream, d.echoes, newReplyMemory(family, dgramBuffers())}
}

func gramLentsOf(unix bool) *sync.Pool {
	if unix {
		return &gramLents[1]
	}
	return &gramLents[0]
}

// lend gives a loop its memory.
func (s *gramSimulation) lend(d *datagrams) {
	m := gramLentsOf(s.family() == sys.Unix).Get().(*gramLent)
	s.lent = append(s.lent, m)
	d.buffers, d.batch, d.single = m.buffers, m.batch, m.single
	d.toUpstream, d.echoes = m.toUpstream, m.echoes
	d.toUpstream.d, d.echoes.d = d, d
	*d.memoryOf(s.family()) = []replyMemory{m.replies}
}

// takeBack takes it back from a process that has ended.
func (s *gramSimulation) takeBack() {
	for _, m := range s.lent {
		clear(m.batch)
		for _, v := range [...]*sys.Vector{m.single, m.toUpstream.v, m.echoes.v, m.replies.v} {
			v.Reset() // it may have died when something was in it
		}
		gramLentsOf(m.unix).Put(m)
	}
	s.lent = nil
}
