package keeper

import (
	"slices"
	"syscall"
	"time"
)

// hold takes what a worker gives the keeper to hold.
func (m *machine) hold(p *peer, msg *message, fds []int, lost bool) {
	switch {
	case p != m.active || !p.going || p.handedOver:
		m.port.close(fds)
		m.lie(p, "held something before it was told to go, or after it handed over")
		return
	case !lost && len(fds) != msg.descriptors():
		m.port.close(fds)
		m.lie(p, "wrong number of descriptors")
		return
	case slices.ContainsFunc(msg.items, func(i wireItem) bool { return i.fds == 0 }):
		m.port.close(fds)
		m.lie(p, "held something without descriptors")
		return
	}
	var refused []byte
	n := 0
	for i := range msg.items {
		item := &msg.items[i]
		own := fds[:min(item.fds, len(fds))]
		fds = fds[len(own):]
		whole := len(own) == item.fds
		if whole && m.hasRoom(item) && m.table.add(item.key, item.label, own) {
			m.held++
			continue
		}
		if len(own) > 0 {
			m.port.close(own)
		}
		if refused == nil {
			refused = appendHeader(nil, kindRefused, msg.seq)
		}
		refused = appendKey(refused, item.key)
		n++
	}
	m.port.close(fds)
	p.lastHold = msg.seq
	if n > 0 {
		setCount(refused, n)
		p.send(m, refused)
		m.held = m.ackEvery()
	}
	m.acknowledge(p)
}

// Labels are bounded in all, because they are the only memory of an item that a worker chooses.
const (
	labelBytes      = 64 << 10 // at least
	labelBytesPerFD = 32       // of the limit of descriptors
)

// hasRoom reports whether the limits allow one more item.
func (m *machine) hasRoom(item *wireItem) bool {
	return m.table.len() < m.cfg.MaxItems && m.table.descriptors+m.port.closing()+item.fds <= m.limit &&
		m.table.labelBytes+len(item.label) <= labelBytes+labelBytesPerFD*m.limit
}

// drop closes what a worker does not need any more. A key that is not known is no lie: it may have been refused
// meanwhile.
func (m *machine) drop(p *peer, msg *message) {
	if p != m.active || !p.going || p.handedOver {
		m.lie(p, "dropped something before it was told to go, or after it handed over")
		return
	}
	fds := m.fds[:0]
	for _, k := range msg.keys {
		var ok bool
		if fds, ok = m.table.remove(k, fds); ok {
			m.held++
		}
	}
	m.fds = fds
	m.port.close(fds)
	m.acknowledge(p)
}

// ackEvery is the number of changes after which the worker is told the totals. It needs them to know when the
// limits are near, and shows them; so it is told the last ones when it says that it is alive.
func (m *machine) ackEvery() int { return min(max(min(m.cfg.MaxItems, m.limit)/32, 1), 256) }

func (m *machine) acknowledge(p *peer) {
	near := m.table.len() >= m.cfg.MaxItems/16*15 || m.table.descriptors >= m.limit/16*15
	if m.held == 0 || m.held < m.ackEvery() && !near {
		return
	}
	m.tellTotals(p)
}

// tellTotals tells the worker the totals, if they have changed since the last time.
func (m *machine) tellTotals(p *peer) {
	if p != m.active || !p.going || p.handedOver || m.held == 0 {
		return
	}
	m.held = 0
	p.send(m, appendControl(nil, kindHeld, p.lastHold, []uint64{uint64(m.table.len()), uint64(m.table.descriptors)}))
}

// handOut is the progress of giving items to a worker. Descriptors that do not arrive vanish without an error, so
// each batch is answered with what did arrive, and few are on their way at any time.
type handOut struct {
	on         bool
	full       bool // all items, not only those for standby
	marked     bool // kindMark was sent
	sentAll    bool // kindAll was sent
	order      order
	window     int // how many descriptors may be on their way
	unanswered []batch
	flying     int // descriptors in unanswered
	retryAt    time.Time
	items      int
	fds        int
	missing    int // items whose descriptors did not arrive
}

type batch struct {
	seq        uint32
	items, fds int
}

const (
	firstWindow = 8 * maxBatchFDs
	maxBatchFDs = 253 // SCM_MAX_FD
)

func (h *handOut) complete() bool { return h.on && h.full && h.sentAll && len(h.unanswered) == 0 }

// pump sends what p can take: first the messages that did not fit before, then items.
func (m *machine) pump(p *peer, now time.Time) {
	for !p.blocked && len(p.out) > 0 {
		if !p.try(m, &p.out[0]) {
			return
		}
		p.out = p.out[1:]
	}
	for h := &p.hand; h.on && !p.blocked && !p.lied && len(p.out) == 0 && !h.sentAll; {
		if !m.sendBatch(p, h, now) {
			return
		}
	}
}

// sendBatch sends the next message of a hand-out, and reports whether another one may follow now.
func (m *machine) sendBatch(p *peer, h *handOut, now time.Time) bool {
	if h.order.pass > 0 && !h.marked {
		h.marked = true
		p.send(m, appendHeader(nil, kindMark, 0))
		return true
	}
	if h.marked && !h.full {
		return false
	}
	if h.order.pass == passes {
		h.sentAll = true
		p.send(m, appendControl(nil, kindAll, 0, []uint64{uint64(h.items), uint64(h.fds)}))
		return true
	}
	room := min(h.window-h.flying, maxBatchFDs)
	if room <= 0 {
		return false
	}
	msg := appendHeader(m.scratch[:0], kindItems, p.seq+1)
	fds, n, o := m.fds[:0], 0, h.order
	endOfPass := false
	for {
		before := o
		at, ok := m.table.next(&o, m.standbyLabels)
		if !ok {
			endOfPass = true
			break
		}
		s := m.table.slot(at)
		label := m.table.labels[at]
		// One item always goes, however small the window is, if nothing else is on its way.
		if int(s.n)+len(fds) > room && (n > 0 || h.flying > 0) || int(s.n)+len(fds) > maxBatchFDs || len(msg)+itemHead+len(label) > maxMessage {
			o = before
			break
		}
		msg = appendItem(msg, s.key, label, int(s.n))
		fds = m.table.appendFDs(at, fds)
		n++
	}
	m.scratch, m.fds = msg, fds
	if n == 0 {
		if endOfPass {
			h.order = o
		}
		return endOfPass
	}
	setCount(msg, n)
	switch m.port.send(p.id, msg, fds) {
	case sentFull:
		p.blocked = true
		return false
	case sentMany:
		// Halving the window and waiting for answers gets every item through: others of the same user
		// may have descriptors on their way, too.
		h.window = max(h.window/2, 1)
		if h.flying == 0 {
			h.retryAt = now.Add(5 * time.Millisecond)
		}
		return false
	case sentLost:
		h.on = false // it is about to be gone
		return false
	}
	p.seq++
	h.order = o
	h.unanswered = append(h.unanswered, batch{p.seq, n, len(fds)})
	h.flying += len(fds)
	h.items += n
	h.fds += len(fds)
	return true
}

func (m *machine) onGot(p *peer, msg *message, now time.Time) {
	h := &p.hand
	if len(h.unanswered) == 0 || h.unanswered[0].seq != msg.seq || msg.word(0) > uint64(h.unanswered[0].items) {
		m.lie(p, "an answer to nothing")
		return
	}
	b := h.unanswered[0]
	h.unanswered = h.unanswered[1:]
	h.flying -= b.fds
	h.window = min(h.window+b.fds, firstWindow)
	if missing := b.items - int(msg.word(0)); missing > 0 {
		h.missing += missing
		m.cfg.Log(Event{Kind: Problem, PID: p.pid, Binary: p.binary.path, Items: missing, Text: "the worker has no room for the descriptors of some items"})
	}
	m.pump(p, now)
	m.tryGo(p, now)
}

// outgoing is a message to a worker, and the descriptor that goes along, or -1.
type outgoing struct {
	b  []byte
	fd int
}

// send sends a message without descriptors, now or as soon as it fits.
func (p *peer) send(m *machine, b []byte) { p.post(m, outgoing{b, -1}) }

// post sends a message, now or as soon as it fits. The descriptor belongs to p.
func (p *peer) post(m *machine, o outgoing) {
	if p.blocked || len(p.out) > 0 {
		if len(p.out) >= maxOut {
			m.closeOne(o.fd)
			m.lie(p, "it does not read its messages")
			return
		}
		p.out = append(p.out, o)
		return
	}
	if !p.try(m, &o) {
		p.out = append(p.out, o)
	}
}

// try reports whether a message is done with. It takes back a descriptor that cannot be sent.
func (p *peer) try(m *machine, o *outgoing) bool {
	var fds []int
	if o.fd >= 0 {
		fds = []int{o.fd}
	}
	switch result := m.port.send(p.id, o.b, fds); {
	case result == sentMany && o.fd >= 0:
		// Nobody says when there are fewer. The worker may ask again.
		m.closeOne(o.fd)
		*o = outgoing{refusal(seqOf(o.b), uint64(syscall.ETOOMANYREFS), "too many descriptors are on their way"), -1}
		return p.try(m, o)
	case result == sentFull || result == sentMany:
		p.blocked = true
		return false
	}
	m.closeOne(o.fd)
	return true
}

// forget closes what was on its way to a worker that has gone.
func (p *peer) forget(m *machine) {
	for _, o := range p.out {
		m.closeOne(o.fd)
	}
	p.out = nil
}

func (m *machine) closeOne(fd int) {
	if fd >= 0 {
		m.port.close([]int{fd})
	}
}

// writable is called when there is room again in the socket to a worker.
func (m *machine) writable(id int, now time.Time) {
	if p := m.peer(id); p != nil {
		p.blocked = false
		m.pump(p, now)
		m.tryGo(p, now)
	}
}
