package relay

import "github.com/penstock/penstock/internal/loop"

// listSlots bounds the slots that a loop looks at for one request: some tens of
// microseconds.
const listSlots = 256

// listing is a walk over a loop's flows, a slice per request. Slots do not move: a
// flow that is open all the while is met once.
type listing struct {
	at    uint32
	end   bool
	infos []FlowInfo
}

// Flows calls yield with all open flows, in slices of at most a few hundred, until
// yield returns false. It is an iterator: a range loop over e.Flows works. The slice is
// valid until yield returns. The loops do not stop: each copies one slice between two
// turns and goes on while yield runs, so a flow that begins or ends meanwhile may be
// missing. Flows may be called while the engine drains or closes.
func (e *Engine) Flows(yield func([]FlowInfo) bool) {
	e.check("Flows", true)
	var q listing
	q.infos = make([]FlowInfo, 0, listSlots)
	for _, l := range e.loops {
		q.at, q.end = 0, false
		for !q.end {
			clear(q.infos)
			q.infos = q.infos[:0]
			if !l.Ask(func() { q.fill(l) }) {
				break
			}
			if len(q.infos) > 0 && !yield(q.infos) {
				return
			}
		}
	}
}

// fill fills in the next slice.
func (q *listing) fill(l *loop.Loop) {
	for range listSlots {
		if q.at == l.Slots.Len() {
			q.end = true
			return
		}
		if o := ownerOf(l, q.at); o != nil {
			q.infos = q.infos[:len(q.infos)+1]
			o.flow(q.at).info(&q.infos[len(q.infos)-1])
		}
		q.at++
	}
}

// Flow returns details of the open flow with the given ID, and whether there is one.
func (e *Engine) Flow(id uint64) (FlowInfo, bool) {
	e.check("Flow", true)
	var d FlowInfo
	var found bool
	l, r := e.loopOf(id)
	ok := l != nil && l.Ask(func() {
		f := flowOf(l, r)
		if found = f != nil; found {
			f.detail(&d)
		}
	})
	return d, ok && found
}

// Kill ends the flow with the given ID and reports whether there was one. c is the
// flow's cause; CauseNone, CauseEnd and values that are not a Cause count as
// [CauseKilled]. In a hook Kill does not wait for the answer, and reports whether there
// may be such a flow.
func (e *Engine) Kill(id uint64, c Cause) bool {
	e.check("Kill", false)
	l, r := e.loopOf(id)
	if l == nil {
		return false
	}
	var found bool
	do := func() {
		f := flowOf(l, r)
		if found = f != nil; found {
			f.owner.kill(f, c.or(CauseKilled))
		}
	}
	if loop.InHook() {
		return l.Post(loop.Request{Do: do})
	}
	return l.Ask(do) && found
}

// flowOf returns the flow that r identifies, or nil if it has ended.
func flowOf(l *loop.Loop, r ref) *Flow {
	if l.Slots.Find(r) == nil {
		return nil
	}
	return ownerOf(l, r.Slot).flow(r.Slot)
}

// loopOf returns the loop that the ID of a flow names, and what identifies the flow there. The loop is nil if there is none.
func (e *core) loopOf(id uint64) (*loop.Loop, ref) {
	if i, r, ok := splitFlowID(id); ok && i < len(e.loops) {
		return e.loops[i], r
	}
	return nil, ref{}
}
