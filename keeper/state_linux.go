package keeper

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A keeper that executes another binary in place leaves its state in a memfd: the length of what follows, then
// messages, each with its length (4 bytes). Descriptors are numbers, since the process stays the same. The
// first message has the version; a reader refuses a state of which it does not know a kind of message. A later version appends
// words and texts.
const stateVersion = 1

const (
	stateMain      msgKind = 100 // words and texts of the machine
	stateBinary    msgKind = 101 // words: descriptor, use; texts: path
	stateWorker    msgKind = 102 // words of a peer
	stateItem      msgKind = 103 // words: key, descriptors; texts: label
	stateSignal    msgKind = 104 // words: a signal for the worker
	stateLingering msgKind = 106 // words of a worker that lingers; only if there is one
	statePolicy    msgKind = 105 // texts: a part of the worker's policy; only if the worker, and so the binary that comes, knows of it
)

// state is what a keeper leaves to the binary that it executes.
type state struct {
	m     *machine
	conns map[int]savedConn // by id
}

type savedConn struct{ fd, pid int }

var errState = errors.New("the state of the keeper before is not understood")

func (m *machine) save(conns map[int]savedConn) []byte {
	var b []byte
	add := func(kind msgKind, words []uint64, texts ...string) {
		at := len(b)
		b = appendControl(append(b, 0, 0, 0, 0), kind, 0, words, texts...)
		binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	now := time.Now()
	words := []uint64{stateVersion, uint64(m.died.PID), uint64(m.died.Code), uint64(m.died.Signal), clockOf(m.diedAt), uint64(m.deaths),
		uint64(m.restarts), wordOf(m.fellBack), wordOf(m.everReady), wordOf(m.stopping), uint64(m.stopSignal), clockOf(now), uint64(m.table.len()), uint64(m.asker), m.token}
	words = append(words, m.upgrade.words()...)
	words = append(words, wordOf(m.restartDue))
	words = append(words, m.cfg.times().words()...)
	for _, n := range m.starts {
		words = append(words, uint64(n))
	}
	add(stateMain, words, append([]string{m.died.Why}, m.upgrade.texts()...)...)
	for _, e := range m.opened {
		use := uint64(0)
		for i, is := range []*executable{m.current, m.good, m.from, m.to} {
			if is == e {
				use |= 1 << i
			}
		}
		add(stateBinary, []uint64{uint64(e.fd), use}, e.path)
	}
	if p := m.active; p != nil {
		c := conns[p.id]
		index := 0
		for i, e := range m.opened {
			if e == p.binary {
				index = i
			}
		}
		add(stateWorker, []uint64{uint64(p.id), uint64(p.pid), uint64(c.fd), uint64(index), uint64(p.reason), wordOf(p.hello), wordOf(p.prepared),
			wordOf(p.going), wordOf(p.ready), clockOf(p.readyAt), wordOf(p.exiting), uint64(p.seq), uint64(p.lastHold), wordOf(p.asks), wordOf(p.sealed), wordOf(p.knowsLinger)}, p.killed)
		if p.asks && p.policy != "" {
			for _, texts := range parts(p.policy) {
				add(statePolicy, nil, texts...)
			}
		}
	}
	for _, p := range m.lingering {
		add(stateLingering, []uint64{uint64(p.id), uint64(p.pid), uint64(conns[p.id].fd), clockOf(p.lingersSince), clockOf(p.endBy), wordOf(p.dismissed)}, p.binary.path, p.endWhy, p.killed)
	}
	for _, s := range m.pending {
		add(stateSignal, []uint64{uint64(s)})
	}
	m.table.each(func(key [2]uint64, label string, fds []int) {
		words := append(make([]uint64, 0, 8), key[0], key[1])
		for i, fd := range fds {
			if i%2 == 0 {
				words = append(words, 0)
			}
			words[len(words)-1] |= uint64(uint32(fd+1)) << (32 * (i % 2))
		}
		add(stateItem, words, label)
	})
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...)
}

// clockOf returns a time as CLOCK_MONOTONIC, and 0 for the zero time.
func clockOf(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(sys.MonotonicAt(t))
}

func timeAt(clock uint64, now time.Time) time.Time {
	if clock == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(int64(clock) - sys.MonotonicAt(now)))
}

// load reads what save has written. The machine has no port yet.
func load(b []byte, cfg Config, limit int, now time.Time) (*state, error) {
	if len(b) < 8 || binary.LittleEndian.Uint64(b) > uint64(len(b)-8) {
		return nil, errState
	}
	b = b[8 : 8+binary.LittleEndian.Uint64(b)]
	s := &state{m: newMachine(cfg, limit, nil), conns: make(map[int]savedConn)}
	var msg message
	items, began := uint64(0), false
	for len(b) > 0 {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errState
		}
		n := int(binary.LittleEndian.Uint32(b))
		if err := msg.parseControl(b[4 : 4+n]); err != nil {
			return nil, errState
		}
		b = b[4+n:]
		if began == (msg.kind == stateMain) {
			return nil, errState
		}
		began = true
		if !s.take(&msg, &items, now) {
			return nil, errState
		}
	}
	if !began || uint64(s.m.table.len()) != items || s.m.current == nil || s.m.active == nil {
		return nil, errState
	}
	return s, nil
}

func (s *state) take(msg *message, items *uint64, now time.Time) bool {
	m := s.m
	switch msg.kind {
	case stateMain:
		if msg.word(0) != stateVersion {
			return false
		}
		m.died = Death{PID: int(msg.word(1)), Code: int(msg.word(2)), Signal: int(msg.word(3)), Why: msg.text(0)}
		m.diedAt = timeAt(msg.word(4), now)
		m.deaths, m.restarts = int(msg.word(5)), int(msg.word(6))
		m.fellBack, m.everReady, m.stopping = msg.word(7) != 0, msg.word(8) != 0, msg.word(9) != 0
		m.stopSignal = syscall.Signal(msg.word(10))
		*items = msg.word(12)
		m.asker, m.token = int(msg.word(13)), msg.word(14)
		m.upgrade = upgradeOf(msg, 15, 1)
		m.restartDue = msg.word(19) != 0
		m.cfg.set(timesOf(msg, 20))
		for i := range m.starts {
			m.starts[i] = int(msg.word(20 + timesWords + i))
		}
	case stateBinary:
		e := &executable{fd: int(msg.word(0)), path: msg.text(0)}
		m.opened = append(m.opened, e)
		for i, is := range []**executable{&m.current, &m.good, &m.from, &m.to} {
			if msg.word(1)&(1<<i) != 0 {
				*is = e
			}
		}
	case stateWorker:
		if m.active != nil || msg.word(3) >= uint64(len(m.opened)) {
			return false
		}
		p := &peer{id: int(msg.word(0)), pid: int(msg.word(1)), binary: m.opened[msg.word(3)], reason: Reason(msg.word(4)),
			hello: msg.word(5) != 0, prepared: msg.word(6) != 0, going: msg.word(7) != 0, ready: msg.word(8) != 0,
			readyAt: timeAt(msg.word(9), now), exiting: msg.word(10) != 0, seq: uint32(msg.word(11)), lastHold: uint32(msg.word(12)), asks: msg.word(13) != 0, sealed: msg.word(14) != 0, knowsLinger: msg.word(15) != 0, killed: msg.text(0)}
		p.hand = handOut{on: true, full: true, marked: true, sentAll: true}
		if p.ready {
			m.setAlive(p, now)
		} else {
			p.startBy = now.Add(m.cfg.ReadyTimeout)
		}
		m.active = p
		s.conns[p.id] = savedConn{int(msg.word(2)), p.pid}
	case stateLingering:
		p := &peer{id: int(msg.word(0)), pid: int(msg.word(1)), lingersSince: timeAt(msg.word(3), now), endBy: timeAt(msg.word(4), now), dismissed: msg.word(5) != 0,
			binary: &executable{fd: -1, path: msg.text(0)}, endWhy: msg.text(1), killed: msg.text(2), handedOver: true, hello: true}
		m.lingering = append(m.lingering, p)
		s.conns[p.id] = savedConn{int(msg.word(2)), p.pid}
	case stateSignal:
		m.pending = append(m.pending, syscall.Signal(msg.word(0)))
	case statePolicy:
		if m.active == nil || len(m.policy) > MaxPolicy {
			return false
		}
		m.policy += strings.Join(msg.texts, "")
		m.active.policy = m.policy
	case stateItem:
		if len(msg.words) < 2 {
			return false
		}
		var fds []int
		for _, w := range msg.words[2:] {
			for _, half := range []uint32{uint32(w), uint32(w >> 32)} {
				if half != 0 {
					fds = append(fds, int(half)-1)
				}
			}
		}
		if len(fds) > MaxDescriptors || !m.table.add([2]uint64{msg.words[0], msg.words[1]}, msg.text(0), fds) {
			return false
		}
	default:
		return false
	}
	return true
}
