package relay

import "github.com/penstock/penstock/internal/segment"

func (d *datagrams) addPreface(fl *Flow, b []byte) error {
	f := d.of(fl)
	if d.choosing != f {
		return stageError("Preface", "of a datagram flow", "Hooks.Upstream")
	}
	if len(b) > 0 {
		p := &d.settingsOf(f).preface
		p.b = append(p.b, b...)
	}
	return nil
}

// front returns what is put in front of a flow's next datagram by o; nil: nothing.
func (o *outbox) front(f *datagramFlow) *preface {
	s := f.settings
	if s == nil {
		return nil
	}
	p := &s.preface
	if o.port != nil {
		p = &s.name.reply
	}
	if len(p.b) == 0 {
		return nil
	}
	return p
}

// addPrefaced is add for a flow whose datagrams have a preface in front: each one, or the next one. Prefaces are not copied:
// they are pieces of their own, so that datagrams of one size still leave as one run.
func (o *outbox) addPrefaced(f *datagramFlow, b []byte, seg int, tos uint8) {
	gen := f.gen
	for all := b; ; {
		one, rest := segment.Cut(all, seg)
		if !o.joins(f, one, tos) {
			if !o.room(f) {
				o.overflow(f, gen, all, seg, tos)
				return
			}
			if o.front(f) == nil { // flushing has taken f to another upstream
				o.add(f, all, seg, tos)
				return
			}
			o.open(f, tos)
			o.join(f, one)
		}
		p := o.front(f)
		o.pieces = append(o.pieces, piece{b: p.b, front: true}, piece{b: one})
		o.v.Add(p.b)
		o.v.Add(one)
		it := &o.items[o.n-1]
		it.past += 2
		it.bytes += len(one)
		it.count++
		all = rest
		each := p.each
		if !each {
			o.sendFirst(f)
		}
		switch {
		case all == nil:
		case each:
			continue
		case !f.alive(gen):
			o.overflow(f, gen, all, seg, tos)
		default:
			o.add(f, all, seg, tos)
		}
		return
	}
}

// joins has a datagram join the last item, and reports whether that is possible.
func (o *outbox) joins(f *datagramFlow, one []byte, tos uint8) bool {
	return o.run.Count > 0 && o.items[o.n-1].f == f && o.items[o.n-1].tos == tos && len(o.pieces)+2 <= cap(o.pieces) && o.join(f, one)
}

func (o *outbox) join(f *datagramFlow, one []byte) bool {
	size := len(o.front(f).b) + len(one)
	return o.run.Join(o.d.runsOf(f, o.dir(), size), size, 0)
}

// sendFirst sends the only datagram that has the preface in front. If it could be sent, none has it any more; if not, the next one has.
func (o *outbox) sendFirst(f *datagramFlow) {
	gen, attempts, sent := f.gen, f.attempts, f.moved[up].datagrams
	o.flush()
	if !f.alive(gen) || f.attempts != attempts || f.moved[up].datagrams == sent {
		return
	}
	f.settings.preface.b = f.settings.preface.b[:0]
	if f.kept {
		r := o.d.record(f)
		r.SetFlags(r.Flags() | recordPrefaced)
	}
}
