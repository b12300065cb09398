package dgram

import "github.com/penstock/penstock/internal/segment"

// position is a place in a batch that is being sent: off bytes into message msg.
type position struct{ msg, off int }

// before reports whether p comes before q.
func (p position) before(q position) bool {
	return p.msg < q.msg || p.msg == q.msg && p.off < q.off
}

// entry is what leaves as one message header: one datagram or one run.
type entry struct {
	begin, end position
	run        segment.Run
}

// rules are what runs have to keep to.
type rules struct {
	limit segment.Limit // of one run; a count of 1 means no runs
	pace  bool          // Message.Time means something
}

// noRuns sends every datagram by itself.
var noRuns = rules{limit: segment.Limit{Count: 1}}

// plan sets e to what is sent next from position at: as many consecutive messages as can be
// one run, or one datagram. It does not touch the payload. It sets *e in place, because
// copying an entry costs more than planning it.
func (r *rules) plan(e *entry, ms []Message, at position) {
	first := &ms[at.msg]
	rest := len(first.Buf) - at.off
	limit := r.limit
	e.begin, e.end = at, position{at.msg + 1, 0}
	e.run = segment.Run{}
	if n := limit.Fit(rest, first.Segment); n < rest {
		e.end = position{at.msg, at.off + n}
		e.run.Join(limit, n, first.Segment)
		return
	}
	e.run.Join(limit, rest, first.Segment)
	if limit.Count > 1 && len(first.Control) == 0 {
		for e.end.msg < len(ms) {
			next := &ms[e.end.msg]
			if !r.alike(first, next) || !e.run.Join(limit, len(next.Buf), next.Segment) {
				break
			}
			e.end.msg++
		}
	}
}

// alike reports whether two messages can be sent with one header: everything in the header
// must be equal.
func (r *rules) alike(a, b *Message) bool {
	return a.Addr == b.Addr && a.ECN == b.ECN && a.Local == b.Local && a.Interface == b.Interface &&
		b.Segment >= 0 && len(b.Control) == 0 && (!r.pace || a.Time.Equal(b.Time))
}
