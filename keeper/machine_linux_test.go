package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// world is a port that remembers. Descriptors are numbers that it gives out.
type world struct {
	tb       testing.TB
	m        *machine
	now      time.Time
	lastID   int
	lastFD   int
	opened   map[int]bool // descriptors that somebody has
	procs    map[int]*proc
	bins     map[*executable]bool
	lines    []string
	replaced []*executable
	noStart  bool
	result   sent // of the next sends
	asked    []brokered
	apart    map[int]bool // by process, also of those that have ended
}

type proc struct {
	id     int
	binary *executable
	killed bool
	apart  bool
	sent   []message
	got    int // descriptors that were sent to it
}

func newWorld(tb testing.TB, cfg Config, limit int) *world {
	w := &world{tb: tb, now: time.Now(), opened: make(map[int]bool), procs: make(map[int]*proc), bins: make(map[*executable]bool), apart: make(map[int]bool)}
	cfg = cfg.withDefaults()
	cfg.Log = func(e Event) { w.lines = append(w.lines, e.Kind.String()+" "+e.String()) }
	cfg.Notify = func(s string) { w.lines = append(w.lines, "notify "+s) }
	w.m = newMachine(cfg, limit, w)
	if err := w.m.begin(w.now); err != nil {
		tb.Fatal(err)
	}
	return w
}

func (w *world) start(b *executable, apart bool) (id, pid int, err error) {
	if !w.bins[b] {
		w.tb.Fatal("a binary that is not open was started")
	}
	if w.noStart {
		return 0, 0, errors.New("cannot start")
	}
	w.lastID++
	w.procs[w.lastID] = &proc{id: w.lastID, binary: b, apart: apart}
	w.apart[w.lastID] = apart
	return w.lastID, 1000 + w.lastID, nil
}

func (w *world) send(id int, p []byte, fds []int) sent {
	if w.result != sentAll {
		return w.result
	}
	proc := w.procs[id]
	if proc == nil {
		return sentLost
	}
	var m message
	if err := m.parse(p); err != nil || !m.kind.fromKeeper() || m.descriptors() != len(fds) {
		w.tb.Fatalf("the keeper sent %x with %d descriptors: %v", p, len(fds), err)
	}
	for _, fd := range fds {
		if !w.opened[fd] {
			w.tb.Fatalf("descriptor %d was sent after it was closed", fd)
		}
	}
	proc.got += len(fds)
	proc.sent = append(proc.sent, m)
	return sentAll
}

func (w *world) signal(id int, s syscall.Signal) {
	if p := w.procs[id]; p != nil && s == syscall.SIGKILL {
		p.killed = true
	}
	w.lines = append(w.lines, fmt.Sprintf("signal %d to %d", int(s), id))
}

func (w *world) close(fds []int) {
	for _, fd := range fds {
		if !w.opened[fd] {
			w.tb.Fatalf("descriptor %d was closed twice", fd)
		}
		delete(w.opened, fd)
	}
}

func (w *world) closing() int { return 0 }

func (w *world) open(path string) (*executable, error) {
	if strings.Contains(path, "missing") {
		return nil, errors.New("no such file")
	}
	b := &executable{path: path}
	w.bins[b] = true
	return b, nil
}

func (w *world) release(b *executable) {
	if !w.bins[b] {
		w.tb.Fatal("a binary was released twice")
	}
	delete(w.bins, b)
}

func (w *world) broker(id int, seq uint32, policy, text string) {
	w.asked = append(w.asked, brokered{request: request{id, seq, policy, text}, fd: -1})
}

// brokered answers the first request that waits, with a new descriptor or an error.
func (w *world) brokered(err error) {
	if len(w.asked) == 0 {
		return
	}
	b := w.asked[0]
	w.asked = w.asked[1:]
	if err == nil {
		b.fd = w.fds(1)[0]
	}
	w.m.brokered(b.id, b.seq, b.fd, err)
	w.check()
}

func (w *world) replace(b *executable) { w.replaced = append(w.replaced, b) }

// noBroker makes a machine take requests; the world answers them.
func noBroker(policy, request string) (int, error) { panic("not called") }

// fds returns n new descriptors.
func (w *world) fds(n int) (fds []int) {
	for range n {
		w.lastFD++
		w.opened[w.lastFD] = true
		fds = append(fds, w.lastFD)
	}
	return fds
}

// check checks what must always hold.
func (w *world) check() {
	w.tb.Helper()
	m := w.m
	held := 0
	m.table.each(func(_ [2]uint64, _ string, fds []int) {
		held += len(fds)
		for _, fd := range fds {
			if !w.opened[fd] {
				w.tb.Fatalf("descriptor %d is held and closed", fd)
			}
		}
	})
	moving := 0 // answers that wait for room
	for _, p := range m.peers() {
		if len(p.pending) > maxAsks || len(p.policy) > MaxPolicy || len(p.partial) > MaxPolicy+partSize {
			w.tb.Fatalf("%d requests and a policy of %d bytes", len(p.pending), len(p.policy))
		}
		for _, o := range p.out {
			if o.fd >= 0 {
				moving++
			}
		}
	}
	if held+moving != len(w.opened) || held != m.table.descriptors {
		w.tb.Fatalf("%d descriptors are held, %d are open, %d are counted", held, len(w.opened), m.table.descriptors)
	}
	if m.table.len() > m.cfg.MaxItems || held > m.limit {
		w.tb.Fatalf("%d items and %d descriptors: more than allowed", m.table.len(), held)
	}
	known := 0
	for id, p := range w.procs {
		if m.peer(id) != nil {
			known++
		} else if !m.finished {
			w.tb.Fatalf("process %d is forgotten (killed: %v)", id, p.killed)
		}
	}
	for _, p := range m.lingering {
		if p.killed == "" && p.endBy.IsZero() {
			w.tb.Fatalf("process %d lingers for ever", p.id)
		}
	}
	for _, p := range m.peers() {
		if w.procs[p.id] == nil {
			w.tb.Fatalf("process %d is gone and not forgotten", p.id)
		}
		if len(p.out) > maxOut || p.hand.flying > firstWindow {
			w.tb.Fatalf("%d messages and %d descriptors are waiting for process %d", len(p.out), p.hand.flying, p.id)
		}
	}
	if len(w.bins) != len(m.opened) || len(m.opened) > 6 {
		w.tb.Fatalf("%d binaries are open, %d known", len(w.bins), len(m.opened))
	}
	if !m.finished && m.active == nil && m.startAt.IsZero() {
		w.tb.Fatal("nothing runs and nothing will be started")
	}
	if u := m.upgrade; !u.Over() && m.from == nil {
		w.tb.Fatalf("upgrade in state %v comes from nowhere", u.State)
	}
	if u := m.upgrade; u.State == Checking && m.standby == nil {
		w.tb.Fatal("an upgrade is checked without a worker")
	}
	switch a := m.active; {
	case m.finished:
	case m.upgrade.State == HandingOver && (a == nil || !a.asked):
		w.tb.Fatal("nobody hands over")
	case (m.upgrade.State == Starting || m.upgrade.State == Proving) && (a == nil || a.binary != m.to):
		w.tb.Fatalf("upgrade in state %v, and something else runs", m.upgrade.State)
	}
	for _, p := range []*peer{m.active, m.standby} {
		if p == nil || p.killed != "" || p.ready || !p.endBy.IsZero() || !p.startBy.IsZero() {
			continue
		}
		if p == m.active || !p.prepared || m.upgrade.State == Checking && m.active.killed == "" && !m.active.exiting && m.active.endBy.IsZero() {
			w.tb.Fatalf("process %d may take forever", p.id)
		}
	}
}

// say makes process id send a message.
func (w *world) say(id int, m message, fds ...int) {
	w.m.handle(id, m.encode(), fds, false, w.now)
	w.check()
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.m.tick(w.now)
	w.check()
}

func (w *world) die(id int, d Death) {
	delete(w.procs, id)
	w.m.gone(id, d, "", w.now)
	w.check()
}

// answer answers the items that were sent to a process, and forgets what it was sent.
func (w *world) answer(id int) {
	for p := w.procs[id]; len(p.sent) > 0; {
		s := p.sent
		p.sent = nil
		for _, m := range s {
			if m.kind == kindItems {
				w.say(id, message{kind: kindGot, seq: m.seq, words: []uint64{uint64(len(m.items))}})
			}
		}
	}
}

// ready brings process id to work.
func (w *world) ready(id int) {
	w.tb.Helper()
	w.hello(id)
	w.say(id, message{kind: kindPrepared, texts: []string{"fine"}})
	w.answer(id)
	w.say(id, message{kind: kindReady})
	if p := w.m.peer(id); p == nil || !p.ready || p.lied {
		w.tb.Fatalf("process %d is not ready: %v", id, w.lines)
	}
}

func (w *world) hello(id int) {
	w.tb.Helper()
	w.say(id, message{kind: kindHello, words: []uint64{protocol, featureOutput}})
	w.answer(id)
}

func (w *world) saw(text string) bool {
	return slices.ContainsFunc(w.lines, func(s string) bool { return strings.Contains(s, text) })
}

func holdOf(key uint64, label string, fds int) message {
	return message{kind: kindHold, seq: uint32(key), items: []wireItem{{[2]uint64{key, 0}, label, fds}}}
}

// A worker that sends what it must not is ended and started again, and nothing stays behind.
func TestLies(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
		lie  func(w *world)
	}{
		{"garbage", "too short", func(w *world) { w.m.handle(1, []byte("x"), nil, false, w.now) }},
		{"unknown kind", "unknown kind", func(w *world) { w.m.handle(1, make([]byte, 100), nil, false, w.now) }},
		{"descriptors with garbage", "too short", func(w *world) { w.m.handle(1, []byte("x"), w.fds(3), false, w.now) }},
		{"descriptors with a drop", "that has none", func(w *world) {
			w.say(1, message{kind: kindDrop, keys: [][2]uint64{{1, 0}}}, w.fds(2)...)
		}},
		{"too few descriptors", "wrong number", func(w *world) { w.say(1, holdOf(5, "", 3), w.fds(2)...) }},
		{"too many descriptors", "wrong number", func(w *world) { w.say(1, holdOf(5, "", 3), w.fds(4)...) }},
		{"a message of the keeper", "only the keeper", func(w *world) { w.say(1, message{kind: kindGo}) }},
		{"two hellos", "two first", func(w *world) { w.say(1, message{kind: kindHello, words: []uint64{protocol}}) }},
		{"prepared twice", "prepared", func(w *world) { w.say(1, message{kind: kindPrepared}) }},
		{"handed over unasked", "unasked", func(w *world) { w.say(1, message{kind: kindHandedOver}) }},
		{"stays unasked", "unasked", func(w *world) { w.say(1, message{kind: kindStaying}) }},
		{"an answer to nothing", "answer to nothing", func(w *world) { w.say(1, message{kind: kindGot, seq: 9, words: []uint64{1}}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, 100)
			w.ready(1)
			w.say(1, holdOf(1, "", 2), w.fds(2)...)
			c.lie(w)
			w.check()
			if !w.saw("worker-lied") || !w.saw(c.want) || !w.procs[1].killed {
				t.Errorf("not found out: %v", w.lines)
			}
			// What it sends until it has gone is not looked at.
			w.say(1, holdOf(6, "", 2), w.fds(2)...)
			w.say(1, message{kind: kindExiting})
			w.die(1, Death{Signal: 9})
			w.ready(2)
			if w.m.table.len() != 1 || w.procs[2].got != 2 {
				t.Errorf("%d items, %d descriptors were sent on", w.m.table.len(), w.procs[2].got)
			}
		})
	}
}

func TestLiesAtTheBeginning(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(w *world)
	}{
		{"no hello", func(w *world) { w.say(1, message{kind: kindAlive}) }},
		{"another version", func(w *world) { w.say(1, message{kind: kindHello, words: []uint64{99}}) }},
		{"hold nothing", func(w *world) { w.ready(1); w.say(1, holdOf(1, "label", 0)) }},
		{"hold before hello", func(w *world) { w.say(1, holdOf(1, "", 1), w.fds(1)...) }},
		{"hold before go", func(w *world) { w.hello(1); w.say(1, holdOf(1, "", 1), w.fds(1)...) }},
		{"drop before go", func(w *world) { w.hello(1); w.say(1, message{kind: kindDrop, keys: [][2]uint64{{1, 0}}}) }},
		{"ready before go", func(w *world) { w.hello(1); w.say(1, message{kind: kindReady}) }},
		{"restart before ready", func(w *world) { w.hello(1); w.say(1, message{kind: kindRestart}) }},
		{"upgrade before ready", func(w *world) { w.hello(1); w.say(1, message{kind: kindUpgrade}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, 100)
			c.lie(w)
			if !w.saw("worker-lied") || !w.procs[1].killed {
				t.Errorf("not found out: %v", w.lines)
			}
			w.die(1, Death{Signal: 9})
			w.ready(2)
		})
	}
}

// Limits, keys in use and descriptors that did not arrive: the item is refused, and the worker is told.
func TestRefused(t *testing.T) {
	w := newWorld(t, Config{MaxItems: 3}, 5)
	w.ready(1)
	refused := func() (keys []uint64) {
		for _, m := range w.procs[1].sent {
			for _, k := range m.keys {
				keys = append(keys, k[0])
			}
		}
		w.procs[1].sent = nil
		return keys
	}
	w.say(1, holdOf(1, "", 2), w.fds(2)...)
	w.say(1, holdOf(1, "", 2), w.fds(2)...)
	if got := refused(); !slices.Equal(got, []uint64{1}) {
		t.Errorf("key in use: %v", got)
	}
	w.say(1, holdOf(2, "", 4), w.fds(4)...)
	if got := refused(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("too many descriptors: %v", got)
	}
	w.m.handle(1, message{kind: kindHold, items: []wireItem{{[2]uint64{3, 0}, "", 1}, {[2]uint64{4, 0}, "", 2}, {[2]uint64{5, 0}, "", 1}}}.encode(), w.fds(2), true, w.now)
	w.check()
	if got := refused(); !slices.Equal(got, []uint64{4, 5}) {
		t.Errorf("descriptors that did not arrive: %v", got)
	}
	w.say(1, holdOf(6, "", 1), w.fds(1)...)
	w.say(1, holdOf(7, "", 1), w.fds(1)...)
	if got := refused(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("too many items: %v", got)
	}
	w.say(1, message{kind: kindDrop, keys: [][2]uint64{{99, 9}, {1, 0}, {3, 0}, {6, 0}}})
	if w.saw("lied") || w.m.table.len() != 0 || len(w.opened) != 0 {
		t.Errorf("%d items after all were dropped: %v", w.m.table.len(), w.lines)
	}
}

// A worker that asks and does not read the answers is ended before the keeper keeps many for it.
func TestDoesNotRead(t *testing.T) {
	w := newWorld(t, Config{}, 100)
	w.ready(1)
	w.result = sentFull
	for i := range 10 * maxOut {
		w.say(1, message{kind: kindUpgrade, words: []uint64{uint64(i), 0}, texts: []string{"missing"}})
	}
	if !w.saw("does not read") || len(w.m.active.out) > maxOut {
		t.Errorf("%d messages wait", len(w.m.active.out))
	}
}

func TestHandOut(t *testing.T) {
	w := newWorld(t, Config{}, 100_000)
	w.ready(1)
	const n = 5000
	for i := range n {
		w.m.handle(1, message{kind: kindHold, seq: uint32(i), items: []wireItem{{[2]uint64{uint64(i), 0}, "", 2}}}.encode(), w.fds(2), false, w.now)
	}
	w.die(1, Death{Signal: 9})

	// With one message at a time, and too many descriptors on their way again and again.
	w.say(2, message{kind: kindHello, words: []uint64{protocol}})
	w.say(2, message{kind: kindPrepared})
	for i := 0; w.procs[2].got < 2*n; i++ {
		if i > 100*n {
			t.Fatalf("%d descriptors, and no more", w.procs[2].got)
		}
		p := w.procs[2]
		w.result = []sent{sentAll, sentMany, sentFull, sentAll}[i%4]
		if s := p.sent; len(s) > 0 {
			p.sent = nil
			for _, m := range s {
				if m.kind == kindItems {
					w.m.handle(2, message{kind: kindGot, seq: m.seq, words: []uint64{uint64(len(m.items))}}.encode(), nil, false, w.now)
				}
			}
		}
		if w.m.active.blocked {
			w.m.writable(2, w.now)
		}
		w.now = w.now.Add(6 * time.Millisecond)
		w.m.tick(w.now)
	}
	w.result = sentAll
	w.m.writable(2, w.now)
	w.answer(2)
	w.say(2, message{kind: kindReady})
	if w.saw("lied") || !w.m.active.ready {
		t.Errorf("%v", w.lines[max(0, len(w.lines)-5):])
	}
	if w.procs[2].got != 2*n {
		t.Errorf("%d descriptors were sent", w.procs[2].got)
	}
}

func TestBackoffAndFallback(t *testing.T) {
	w := newWorld(t, Config{Good: time.Minute, Healthy: time.Second, MaxDeaths: 3, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second, KeepSelf: true}, 100)
	w.ready(1)
	w.pass(2 * time.Minute)
	w.say(1, message{kind: kindAlive}) // the watchdog was suspicious
	if w.m.good == nil || w.m.good.path != "" {
		t.Fatal("the binary did not become good")
	}
	// An upgrade that is done, and whose binary then crashes.
	w.say(1, message{kind: kindUpgrade, words: []uint64{1, 0}, texts: []string{"new"}})
	w.hello(2)
	w.say(2, message{kind: kindPrepared})
	w.say(1, message{kind: kindHandedOver, words: []uint64{0}})
	w.die(1, Death{})
	w.answer(2)
	w.say(2, message{kind: kindReady})
	w.pass(5 * time.Second)
	if w.m.upgrade.State != Done {
		t.Fatalf("upgrade: %+v", w.m.upgrade)
	}
	id := 2
	for i, wait := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second} {
		w.die(id, Death{Signal: 11})
		id++
		if wait > 0 {
			w.pass(wait - time.Millisecond)
			if w.m.active != nil {
				t.Fatalf("death %d: started too early", i)
			}
			w.pass(time.Millisecond)
		}
		if w.m.active == nil {
			t.Fatalf("death %d: not started after %v", i, wait)
		}
		want := "new"
		if i >= 2 {
			want = ""
		}
		if got := w.m.active.binary.path; got != want {
			t.Errorf("death %d: %q is started", i, got)
		}
		w.hello(id)
	}
	if !w.m.fellBack {
		t.Error("it did not say that it fell back")
	}
	if len(w.bins) != 1 {
		t.Errorf("%d binaries are open", len(w.bins))
	}
}

func TestWatchdog(t *testing.T) {
	w := newWorld(t, Config{Watchdog: 8 * time.Second}, 100)
	w.ready(1)
	for range 10 {
		w.pass(7 * time.Second)
		w.say(1, message{kind: kindAlive})
	}
	w.pass(8 * time.Second) // suspicious, but what has arrived is read first
	w.say(1, message{kind: kindAlive})
	if w.procs[1].killed {
		t.Fatal("killed too early")
	}
	w.pass(8 * time.Second)
	w.pass(time.Second)
	if !w.procs[1].killed {
		t.Fatal("not killed")
	}
	w.die(1, Death{Signal: 9})
	if w.m.died.Why != "watchdog" {
		t.Errorf("died: %+v", w.m.died)
	}
}

func TestDeadlines(t *testing.T) {
	for _, c := range []struct {
		want string
		do   func(w *world)
	}{
		{"not connected in time", func(w *world) {}},
		{"not prepared in time", func(w *world) { w.hello(1) }},
		{"not ready in time", func(w *world) { w.hello(1); w.say(1, message{kind: kindPrepared}) }},
		{"closed its connection", func(w *world) { w.ready(1); w.m.hungUp(1, w.now) }},
	} {
		w := newWorld(t, Config{}, 100)
		c.do(w)
		w.pass(2 * time.Minute)
		if !w.procs[1].killed || !w.saw(c.want) {
			t.Errorf("%s: %v", c.want, w.lines)
		}
		w.die(1, Death{Signal: 9})
		w.ready(2)
	}
}

// script interprets bytes as what happens to a keeper.
func (w *world) script(b []byte) {
	next := func() int {
		if len(b) == 0 {
			return 0
		}
		n := int(b[0])
		b = b[1:]
		return n
	}
	polite := next()%4 != 0 // most workers lie rarely, or no script gets far
	for range 2000 {
		if len(b) == 0 || w.m.finished {
			return
		}
		id := w.lastID - next()%2
		p := w.m.peer(id)
		op := next() % 44
		if polite && (op <= 22 && op != 16) && next()%16 != 0 {
			op = 24
		}
		switch op {
		case 0:
			w.say(id, message{kind: kindHello, words: []uint64{protocol}})
		case 1:
			w.say(id, message{kind: kindPrepared, texts: []string{"x"}})
		case 2:
			w.say(id, message{kind: kindReady})
		case 3:
			w.say(id, message{kind: kindAlive})
		case 4:
			m := message{kind: kindHold, seq: uint32(next())}
			n := 0
			for range next() % 8 {
				k := 1 + next()%2
				n += k
				m.items = append(m.items, wireItem{[2]uint64{uint64(next() % 64), 0}, []string{"", "", "early", "late"}[next()%4], k})
			}
			w.say(id, m, w.fds(n)...)
		case 5:
			w.m.handle(id, holdOf(uint64(next()), "", next()%4).encode(), w.fds(next()%4), true, w.now)
		case 6:
			m := message{kind: kindDrop}
			for range next() % 8 {
				m.keys = append(m.keys, [2]uint64{uint64(next() % 64), 0})
			}
			w.say(id, m)
		case 7:
			w.say(id, message{kind: kindGot, seq: uint32(next() % 16), words: []uint64{uint64(next() % 16)}})
		case 8, 9:
			if w.procs[id] != nil {
				w.answer(id)
			}
		case 10:
			w.say(id, message{kind: kindUpgrade, words: []uint64{uint64(next()), uint64(next() % 2)}, texts: []string{[]string{"new", "missing", ""}[next()%3]}})
		case 11:
			w.say(id, message{kind: kindRestart})
		case 12:
			w.say(id, message{kind: kindHandedOver, words: []uint64{uint64(next() % 2), uint64(next() % 2 * next()), uint64(next() % 4)}})
		case 13:
			w.say(id, []message{{kind: kindExiting}, {kind: kindStaying}, {kind: kindTimes, words: Times{Watchdog: time.Duration(next()-9) * time.Second, MaxBackoff: time.Duration(next())}.words()}}[next()%3])
		case 14, 15:
			if w.procs[id] != nil {
				w.die(id, Death{Signal: next() % 2 * 9, Code: next() % 3})
			}
		case 16:
			w.pass(time.Duration(next()*next()) * 10 * time.Millisecond)
		case 17:
			w.m.signal([]syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM}[next()%4], w.now)
		case 18:
			w.result = []sent{sentAll, sentFull, sentMany, sentLost}[next()%4]
		case 19:
			w.result = sentAll
			if p != nil {
				w.m.writable(id, w.now)
			}
		case 20:
			n := min(next(), len(b))
			text := b[:n]
			b = b[n:]
			w.m.handle(id, text, w.fds(next()%3), next()%2 == 0, w.now)
		case 21:
			w.m.hungUp(id, w.now)
		case 22:
			w.noStart = next()%4 == 0
		case 24, 25, 26, 27: // what a sane worker does
			w.sane(id)
		case 28, 29:
			if a := w.m.active; a != nil && a.ready {
				w.say(a.id, message{kind: kindUpgrade, words: []uint64{1, uint64(next() % 4 / 3)}, texts: []string{"new"}})
			}
		case 30, 31:
			if a := w.m.active; a != nil && a.asked && !a.handedOver {
				if next()%4 == 0 {
					w.say(a.id, message{kind: kindStaying, texts: []string{"no"}})
					break
				}
				if next()%3 == 0 {
					w.say(a.id, message{kind: kindHandedOver, words: []uint64{0, uint64(time.Duration(next()) * time.Second), uint64(next() % 4)}})
					break
				}
				w.say(a.id, message{kind: kindHandedOver, words: []uint64{0}})
				w.die(a.id, Death{})
			}
		case 32, 33:
			w.pass(2 * time.Second)
		case 34, 35, 36:
			if a := w.m.active; a != nil && a.going {
				n := 1 + next()%2
				w.say(a.id, holdOf(uint64(next()), []string{"", "", "early", "late"}[next()%4], n), w.fds(n)...)
			}
		case 37:
			if a := w.m.active; a != nil {
				w.say(a.id, message{kind: kindDrop, keys: [][2]uint64{{uint64(next()), 0}}})
			}
		case 38:
			m := message{kind: kindPolicy, words: []uint64{uint64(next() % 8 / 7), uint64(next() % 2)}, texts: []string{strings.Repeat("p", next()*16)}}
			w.say(id, m)
		case 39, 40:
			if p != nil && p.asks && p.sealed && !p.lied {
				w.say(id, message{kind: kindAsk, seq: uint32(next()), texts: []string{"request"}})
			}
		case 41, 42, 43:
			w.brokered([]error{nil, nil, syscall.EACCES, errors.New("no")}[next()%4])
		case 23: // the keeper is replaced, if it may be
			if m := w.m; m.upgrade.Over() && m.standby == nil && m.active != nil && m.active.ready && !m.stopping && len(m.active.pending)+len(m.active.partial)+len(m.active.out) == 0 {
				w.saveAndLoad()
			}
		}
		w.check()
		for id, p := range w.procs { // what was killed does not live forever
			if p.killed && next()%2 == 0 {
				w.die(id, Death{Signal: 9})
				break
			}
		}
	}
}

// sane lets a worker do its next step.
func (w *world) sane(id int) {
	p, proc := w.m.peer(id), w.procs[id]
	if p == nil || proc == nil || p.lied {
		return
	}
	w.answer(id)
	switch {
	case !p.hello:
		w.say(id, message{kind: kindHello, words: []uint64{protocol, featureAsk | featureLinger}})
		w.answer(id)
	case !p.prepared && p.hand.marked:
		w.say(id, message{kind: kindPrepared})
	case p.going:
		w.say(id, message{kind: kindReady})
	}
}

// FuzzMachine: whatever workers send, in whatever order, and whatever happens, the keeper's descriptors, processes and
// binaries stay bounded and balanced, and something runs or will be started.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 2, 0, 4, 1, 2, 2, 1, 0, 2, 2, 0, 0, 14, 0, 0, 0, 0, 0, 1, 0, 8, 0, 2})
	f.Add([]byte{0, 0, 0, 0, 1, 0, 2, 0, 10, 1, 0, 0, 0, 0, 0, 1, 1, 12, 0, 0, 1, 14, 0, 0, 0, 2, 0, 16, 200, 200, 0, 23})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, Config{MaxItems: 40, Broker: noBroker, Standby: []string{"early"}, Healthy: time.Second, MaxDeaths: 2}, 60)
		w.script(b)
	})
}

// TestRandomScripts runs what FuzzMachine runs, from random bytes.
func TestRandomScripts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	seen := make(map[string]int)
	var b [4000]byte
	for i := range 300 {
		x := seed + uint64(i)
		for at := 0; at < len(b); at += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(b[at:], x)
		}
		w := newWorld(t, Config{MaxItems: 40, Broker: noBroker, Standby: []string{"early"}, Healthy: time.Second, MaxDeaths: 2}, 60)
		w.script(b[:])
		for _, line := range w.lines {
			for _, what := range []string{": handing-over", ": starting", ": done", ": checked", ": refused", ": rolled-back", "worker-died", "worker-ended", "worker-lied",
				"worker-killed", "start-delayed", "fell-back", "keeper-upgraded", "worker-ready", "worker-lingers"} {
				if strings.Contains(line, what) {
					seen[what]++
				}
			}
		}
	}
	t.Logf("reached: %v", seen)
	for _, what := range []string{": done", ": checked", ": refused", ": rolled-back", "fell-back", "keeper-upgraded", "worker-lingers"} {
		if seen[what] == 0 {
			t.Errorf("no script reached %q", what)
		}
	}
}
