package keeper

import "testing"

// saveAndLoad goes on with a machine that knows only what the one before has saved.
func (w *world) saveAndLoad() {
	bins := make(map[int]*executable)
	for i, b := range w.m.opened {
		b.fd = i
		bins[i] = b
	}
	conns := make(map[int]savedConn)
	for _, p := range w.m.peers() {
		conns[p.id] = savedConn{fd: p.id, pid: p.pid}
	}
	b := w.m.save(conns)
	s, err := load(b, w.m.cfg, w.m.limit, w.now)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.bins = make(map[*executable]bool)
	for _, b := range s.m.opened {
		w.bins[b] = true
	}
	old := w.m
	w.m = s.m
	w.m.port = w
	if w.m.table.len() != old.table.len() || w.m.deaths != old.deaths || w.m.upgrade != old.upgrade || w.m.active.binary.path != old.active.binary.path ||
		w.m.active.asks && (w.m.active.policy != old.active.policy || w.m.policy != old.policy || w.m.active.sealed != old.active.sealed) {
		w.tb.Fatal("something was lost")
	}
	if len(w.m.lingering) != len(old.lingering) || len(s.conns) != 1+len(old.lingering) {
		w.tb.Fatal("workers that linger were lost")
	}
	w.m.replaced(w.now)
	w.check()
}

// FuzzState: a keeper's state can be anything, and is refused or understood.
func FuzzState(f *testing.F) {
	w := newWorld(f, Config{}, 100)
	w.ready(1)
	w.say(1, holdOf(1, "label", 3), w.fds(3)...)
	w.say(1, holdOf(2, "", 2), w.fds(2)...)
	f.Add(w.m.save(map[int]savedConn{1: {5, 6}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := load(b, w.m.cfg, 100, w.now)
		if err == nil && (s.m.active == nil || s.m.current == nil) {
			t.Fatal("understood without what is necessary")
		}
	})
}
