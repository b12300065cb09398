package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// schedule is the input of a state machine: each byte is the next decision. Behind its end all decisions are 0.
type schedule struct{ left []byte }

func (s *schedule) next() byte {
	if len(s.left) == 0 {
		return 0
	}
	b := s.left[0]
	s.left = s.left[1:]
	return b
}

// sizes are what a decision about a number of bytes chooses from: limits, and their neighbours.
var (
	blobSizes  = [16]int{0, 1, RecordSize - inlineStream, RecordSize - inlineStream + 1, 64, 65, 100, 128, 129, 1000, 2048, 4096, 4097, MaxBlob - 1, MaxBlob, MaxBlob + 1}
	blockSizes = [8]int{1, 64, 65, 1000, 4096, 16 << 10, 40_000, MaxBlock}
)

// The two layouts of counters, of which the second has forgotten one word of the first, and has others.
type (
	countersA struct {
		X, Y uint64
		Z    [3]uint64
	}
	countersB struct {
		Z [2]uint64
		W struct{ P, Q uint64 }
		X uint64
	}
)

// machine does what a schedule says to a ledger, as a process does that relays, and knows what the next process
// must find, whenever this one dies.
type machine struct {
	schedule *schedule
	fail     func(format string, args ...any)
	around   func(real func()) // runs what changes the ledger; may be interrupted by the death of the process
	l        *Ledger
	now      view
	next     []view // while something is being changed: the views that come one after the other
	names    map[string]uint32
	used     int // bytes of the strings
	gen      uint32
	id       uint64
	stats    [5]*uint64
	blocks   [viewSlots][2][]byte // lent, and named by a record
	armed    []byte               // a part of the ledger, of which the first write is the death of the process
	unarmed  bool                 // no part is ever armed, and blocks are small
	whole    bool                 // what is being changed is not interrupted by around
	deaths   int
	inside   int // deaths in the middle of something
}

// statesLayout is that of a small ledger.
func statesLayout(longer bool) header {
	h := header{version: Version, slots: viewSlots, stride: RecordSize}
	if longer {
		h.optional, h.stride = optionalFeature, RecordSize+longerBy
	}
	at := uint64(headerSize)
	for _, p := range []struct {
		part *part
		size uint64
	}{{&h.turn, turnSize}, {&h.stats, 2 * statsHalf}, {&h.scratch, ScratchSize}, {&h.strings, page}, {&h.records, page}, {&h.arena, 4 * MaxBlock}} {
		*p.part = part{at, (p.size + page - 1) &^ (page - 1)}
		at += p.part.size
	}
	h.fileBytes = at
	return h
}

// openStates opens the ledger behind a descriptor, which stays the caller's.
func openStates(fd int) (*Ledger, error) {
	dup, e := sys.Dup(fd)
	if e != 0 {
		return nil, e
	}
	l, err := Open(sys.Linux{}, dup)
	if err != nil {
		sys.Linux{}.Close(dup)
	}
	return l, err
}

// newStates returns a machine for the ledger behind fd, which is empty. The first decision was taken already.
func newStates(fd int, s *schedule, fail func(format string, args ...any)) *machine {
	m := &machine{schedule: s, fail: fail, around: func(real func()) { real() }, names: map[string]uint32{"": 0}, gen: 1}
	var err error
	if m.l, err = openStates(fd); err != nil {
		fail("%v", err)
	}
	return m
}

// change runs real, which changes the ledger. steps are what the next process sees of it, one after the other; if
// it is to be one step, there must never be anything between before and after.
func (m *machine) change(real func(), steps ...func(v *view)) {
	m.changeIf(func() bool { real(); return true }, steps...)
}

// changeIf is change for what may also change nothing, and says so.
func (m *machine) changeIf(real func() bool, steps ...func(v *view)) (done bool) {
	m.next = append(m.next[:0], m.now)
	for _, step := range steps {
		v := m.next[len(m.next)-1]
		step(&v)
		m.next = append(m.next, v)
	}
	if m.whole {
		done = real()
	} else {
		m.around(func() { done = real() })
	}
	if done {
		m.now = m.next[len(m.next)-1]
	}
	m.next = m.next[:0]
	return done
}

// check compares the ledger with what it must be now.
func (m *machine) check(what string) {
	v, err := look(m.l.FD(), m.names)
	if err != nil {
		m.fail("%s: %v", what, err)
	}
	if v != m.now {
		m.fail("%s:%s", what, differ(&v, &m.now))
	}
}

// count maps the counters, in the layout that a decision says: a new process does that once. It is not run instruction by
// instruction, because there are 50,000, of which the last one decides.
func (m *machine) count() {
	m.whole = true
	defer func() { m.whole = false }()
	if m.schedule.next()&1 == 0 {
		m.change(func() {
			c := countersOf[countersA](m)
			m.stats = [5]*uint64{&c.X, &c.Y, &c.Z[0], &c.Z[1], &c.Z[2]}
		}, func(v *view) { v.stats = renamed(v.stats, "X", "Y", "Z[0]", "Z[1]", "Z[2]") })
		return
	}
	m.change(func() {
		c := countersOf[countersB](m)
		m.stats = [5]*uint64{&c.Z[0], &c.Z[1], &c.W.P, &c.W.Q, &c.X}
	}, func(v *view) { v.stats = renamed(v.stats, "Z[0]", "Z[1]", "W.P", "W.Q", "X") })
}

func countersOf[T any](m *machine) *T {
	c, err := StatsOf[T](m.l)
	if err != nil {
		m.fail("%v", err)
	}
	return c
}

// renamed returns counters in another layout.
func renamed(before [5]counter, names ...string) (after [5]counter) {
	for i, name := range names {
		after[i].name = name
		for _, c := range before {
			if c.name == name {
				after[i].n = c.n
			}
		}
	}
	return after
}

// pick returns a slot with or without a record, if there is one.
func (m *machine) pick(used bool, kind uint8) (slot uint32, ok bool) {
	from := uint32(m.schedule.next())
	for i := range uint32(viewSlots) {
		slot = (from + i) % viewSlots
		f := &m.now.flows[slot]
		if (f.gen != 0) == used && (kind == 0 || f.kind == kind) {
			return slot, true
		}
	}
	return 0, false
}

// owner returns a new owner of memory.
func (m *machine) owner() uint64 {
	m.id++
	return m.id * 0x9e3779b97f4a7c15
}

// blob returns a blob that nobody else has.
func (m *machine) blob() []byte {
	b := make([]byte, blobSizes[m.schedule.next()%16])
	paint(b, m.owner())
	return b
}

// lend gets a block of the arena that is painted; nil: there is none, or it is decided against one.
func (m *machine) lend() (b []byte, ref uint32, c content) {
	n := m.schedule.next()
	if n&1 == 0 {
		return nil, 0, c
	}
	id, size := m.owner(), blockSizes[n>>1%8]
	if m.unarmed {
		size = min(size, 1000)
	}
	b = m.l.Arena().Get(size)
	ref, ok := m.l.Arena().Ref(b)
	if !ok {
		return nil, 0, c
	}
	paint(b, id)
	return b, ref, painted(id, size)
}

// settle publishes the record of a flow.
func (m *machine) settle() {
	slot, ok := m.pick(false, 0)
	if !ok {
		return
	}
	name := m.name()
	ref, ok := m.names[name]
	if !ok {
		name = ""
	}
	m.gen += 2
	f := flowView{gen: m.gen, listener: ref, name: name, kind: KindStream, start: int64(m.owner()), first: int64(m.owner()), flags: uint32(m.owner()), cause: m.schedule.next()}
	if f.cause&1 != 0 {
		f.kind = KindDatagram
	}
	blob := m.blob()
	f.blob = string(blob)
	var lent [2][]byte
	m.changeIf(func() bool {
		r := m.l.Begin(slot)
		r.SetKind(f.kind)
		r.SetListener(f.listener)
		r.SetStart(f.start)
		r.SetFirstByte(f.first)
		r.SetFlags(f.flags)
		r.SetCause(f.cause)
		if f.kind == KindDatagram {
			g := r.Gram()
			f.gram.client, f.gram.local = m.addr(), m.addr()
			f.gram.active = uint32(m.owner())
			g.SetClient(f.gram.client)
			g.SetLocal(f.gram.local)
			g.SetActive(f.gram.active)
		} else {
			for i := range lent {
				h := r.Half(i)
				b, ref, c := m.lend()
				lent[i], f.half[i].block = b, c
				f.half[i].in, f.half[i].inBase, f.half[i].outBase = int64(c.n), -3, 4
				h.SetIn(int64(c.n))
				h.SetInBase(-3)
				h.SetOutBase(4)
				h.SetBlock(ref, c.n)
			}
		}
		ok := m.l.SetBlob(r, blob)
		if ok {
			m.next[1].flows[slot] = f
			m.l.Publish(slot, f.gen)
			return true
		}
		for _, b := range lent {
			m.l.Arena().Put(b)
		}
		return false
	}, func(v *view) {})
	if m.now.flows[slot].gen == f.gen {
		m.blocks[slot] = lent
	}
}

func (m *machine) addr() Addr {
	id := m.owner()
	a := Addr{Port: uint16(id), Zone: uint32(id >> 20), Len: 16}
	paint(a.IP[:], id)
	return a
}

// forget frees a record and what it has.
func (m *machine) forget(slot uint32) {
	free := func(v *view) { v.flows[slot] = flowView{} }
	lent := m.blocks[slot]
	m.blocks[slot] = [2][]byte{}
	if m.schedule.next()&3 == 0 { // as what cannot be continued is forgotten
		ref, n := m.l.Record(slot).BlobBlock()
		m.change(func() { m.l.Begin(slot) }, free)
		if b, ok := m.l.Arena().Bytes(ref, n); ok && ref != 0 {
			m.change(func() { m.l.Arena().Put(b) })
		}
	} else {
		m.change(func() { m.l.Free(slot) }, free)
		m.change(func() { m.l.SetBlob(m.l.Record(slot), nil) })
	}
	for _, b := range lent {
		m.change(func() { m.l.Arena().Put(b) })
	}
}

// reblob changes the bytes that belong to a record.
func (m *machine) reblob() {
	slot, ok := m.pick(true, 0)
	if !ok {
		return
	}
	blob := m.blob()
	m.changeIf(func() bool { return m.l.SetBlob(m.l.Record(slot), blob) }, func(v *view) { v.flows[slot].blob = string(blob) })
}

// reblock changes what a half holds.
func (m *machine) reblock(slot uint32, half int) {
	var b []byte
	old := m.blocks[slot][half]
	m.change(func() {
		var ref uint32
		var c content
		b, ref, c = m.lend()
		m.next[1].flows[slot].half[half].block = c
		m.l.Record(slot).Half(half).SetBlock(ref, c.n)
	}, func(v *view) {})
	m.blocks[slot][half] = b
	if old != nil {
		m.change(func() { m.l.Arena().Put(old) })
	}
}

// name returns a string to intern: one of a few, or a new one.
func (m *machine) name() string {
	n := int(m.schedule.next())
	if n < 128 {
		return fmt.Sprintf("tcp://127.0.0.1:%d", n%4)
	}
	return strings.Repeat("n", n%128*2) + fmt.Sprint(m.id)
}

// intern writes a string once.
func (m *machine) intern(more bool) {
	s := m.name()
	size := int(m.l.header.strings.size)
	if more {
		size -= size / 4
	}
	before, known := m.names[s]
	want := known || len(s) <= MaxString && m.used+1+len(s) <= size
	var ref uint32
	got := m.changeIf(func() (ok bool) {
		if more {
			ref, ok = m.l.InternMore(s)
		} else {
			ref, ok = m.l.Intern(s)
		}
		return ok
	})
	if got != want || known && ref != before {
		m.fail("string %q of %d bytes: %d, %v, want %v, before %d", s, len(s), ref, got, want, before)
	}
	if got && !known {
		m.names[s] = ref
		m.used += 1 + len(s)
	}
}

// field changes one field of a record.
func (m *machine) field() {
	slot, ok := m.pick(true, 0)
	if !ok {
		return
	}
	r, x, which := m.l.Record(slot), m.owner(), m.schedule.next()
	if m.now.flows[slot].kind == KindDatagram {
		g, i := r.Gram(), int(which>>4&1)
		moved := g.Moved(i)
		switch which % 10 {
		case 0:
			m.change(func() { g.SetRequests(x) }, func(v *view) { v.flows[slot].gram.requests = x })
		case 1:
			m.change(func() { g.SetAnswers(x) }, func(v *view) { v.flows[slot].gram.answers = x })
		case 2:
			m.change(func() { g.SetSocket(uint32(x)) }, func(v *view) { v.flows[slot].gram.socket = uint32(x) })
		case 3:
			m.change(func() { g.SetActive(uint32(x)) }, func(v *view) { v.flows[slot].gram.active = uint32(x) })
		case 4:
			m.change(func() { moved.SetRead(int64(x)) }, func(v *view) { v.flows[slot].gram.moved[i][0] = int64(x) })
		case 5:
			m.change(func() { moved.SetWritten(int64(x)) }, func(v *view) { v.flows[slot].gram.moved[i][1] = int64(x) })
		case 6:
			m.change(func() { moved.SetDatagrams(int64(x)) }, func(v *view) { v.flows[slot].gram.moved[i][2] = int64(x) })
		case 7:
			m.change(func() { moved.SetDropped(int64(x)) }, func(v *view) { v.flows[slot].gram.moved[i][3] = int64(x) })
		default:
			m.change(func() { r.SetCrashes(uint8(x)) }, func(v *view) { v.flows[slot].crashes = uint8(x) })
		}
		return
	}
	switch which % 8 {
	case 0:
		m.change(func() { r.SetFlags(uint32(x)) }, func(v *view) { v.flows[slot].flags = uint32(x) })
	case 1:
		m.change(func() { r.SetErrno(uint16(x)) }, func(v *view) { v.flows[slot].errno = uint16(x) })
	case 2:
		m.change(func() { r.SetCause(uint8(x)) }, func(v *view) { v.flows[slot].cause = uint8(x) })
	case 3:
		m.change(func() { r.SetState(uint8(x)) }, func(v *view) { v.flows[slot].state = uint8(x) })
	case 4:
		m.change(func() { r.SetFirstByte(int64(x)) }, func(v *view) { v.flows[slot].first = int64(x) })
	case 5:
		i := int(which >> 4 & 1)
		m.change(func() { r.Half(i).SetPipe(uint32(x)) }, func(v *view) { v.flows[slot].half[i].pipe = uint32(x) })
	case 6:
		i := int(which >> 4 & 1)
		m.change(func() { r.Half(i).SetErrno(uint32(x)) }, func(v *view) { v.flows[slot].half[i].errno = uint32(x) })
	default:
		m.change(func() { r.SetCrashes(uint8(x)) }, func(v *view) { v.flows[slot].crashes = uint8(x) })
	}
}

// turn lets a half of a stream have its turn, of which the end may not come.
func (m *machine) turn() {
	slot, ok := m.pick(true, KindStream)
	if !ok {
		return
	}
	m.idle()
	t, r, flow, d := m.l.Turn(), m.l.Record(slot), &m.now.flows[slot], m.schedule.next()
	i := int(d & 1)
	half, h := flow.half[i], r.Half(i)
	end := d >> 1 & 7 // after how many steps it stops
	m.change(func() { t.Begin(slot, flow.gen) },
		func(v *view) { v.note = noteView{slot: v.note.slot, gen: v.note.gen} },
		func(v *view) { v.note = noteView{slot: slot, gen: flow.gen} })
	m.counted(i, half.in, half.out, half.spliced)
	set := func(phase Phase, n int, c content) {
		m.change(func() {
			if phase != PhaseRead { // whose counts are those of the read before
				t.SetSpliced(half.spliced)
				t.SetCounts(half.in, half.out)
			}
			t.Set(uint8(i), phase, n)
		}, func(v *view) { v.note.half, v.note.phase, v.note.n, v.note.scratch = uint8(i), phase, n, c })
	}
	done := func(in, out, spliced int64) {
		m.change(func() {
			h.SetIn(in)
			h.SetOut(out)
			h.SetSpliced(spliced)
			t.Set(uint8(i), PhaseNone, 0)
		}, func(v *view) {
			f := &v.flows[slot].half[i]
			f.in, f.out, f.spliced = in, out, spliced
			v.note.half, v.note.phase, v.note.n, v.note.scratch = 0, PhaseNone, 0, content{}
		})
	}
	if end == 0 {
		return
	}
	switch d >> 4 % 4 {
	case 0: // copies
		set(PhaseReading, 0, content{})
		n, id := blockSizes[m.schedule.next()%8], m.owner()
		paint(m.l.Scratch()[:n], id)
		if end == 1 {
			return
		}
		set(PhaseRead, n, painted(id, n))
		if end == 2 {
			return
		}
		m.reblock(slot, i)
		if end == 3 {
			return
		}
		done(half.in+int64(n), half.out+int64(n/2), half.spliced)
	case 1: // flushes
		set(PhaseFlushing, 0, content{})
		if end == 1 {
			return
		}
		if b := m.blocks[slot][i]; b != nil {
			m.change(func() { h.SetBlock(0, 0) }, func(v *view) { v.flows[slot].half[i].block = content{} })
			m.blocks[slot][i] = nil
			m.change(func() { m.l.Arena().Put(b) })
		}
		if end == 2 {
			return
		}
		done(half.in, half.in, half.spliced)
	default: // splices
		fills := d>>4&1 == 0
		set(map[bool]Phase{true: PhaseFilling, false: PhaseEmptying}[fills], 0, content{})
		if end == 1 {
			return
		}
		if fills {
			done(half.in+7, half.out, half.spliced)
		} else {
			done(half.in, half.out+5, half.spliced+5)
		}
	}
	if end > 4 {
		f := &m.now.flows[slot].half[i]
		m.counted(i, f.in, f.out, f.spliced)
	}
}

// idle says that nothing is in anybody's hands.
func (m *machine) idle() {
	if n := m.now.note; n.phase != PhaseNone {
		f := &m.now.flows[n.slot]
		r := m.l.Record(n.slot).Half(int(n.half))
		in, out, spliced := r.In(), r.Out(), r.Spliced()
		m.change(func() { m.l.Turn().Set(n.half, PhaseNone, 0) }, func(v *view) {
			v.note.half, v.note.phase, v.note.n, v.note.scratch = 0, PhaseNone, 0, content{}
			if f.gen == n.gen {
				h := &v.flows[n.slot].half[n.half]
				h.in, h.out, h.spliced = in, out, spliced
			}
		})
	}
}

// counted notes what the loop's counters include. Without Begin in front of it, each word is a step.
func (m *machine) counted(half int, in, out, spliced int64) {
	steps := []func(v *view){func(v *view) { v.note.counted = [4]int64{in, out, spliced, int64(half) + 1} }}
	if m.now.note.counted[3] != 0 {
		steps = nil
		for i, x := range []int64{in, out, spliced} {
			steps = append(steps, func(v *view) { v.note.counted[i] = x })
		}
	}
	m.change(func() { m.l.Turn().SetCounted(uint8(half), in, out, spliced) }, steps...)
}

// restart is the next process, which goes on from where the one before has died.
func (m *machine) restart() {
	l, err := openStates(m.l.FD())
	if err != nil {
		m.fail("%v", err)
	}
	m.l.Close()
	m.l = l
	if m.schedule.next()&7 == 7 {
		m.arm() // it dies, too
	}
	m.blocks = [viewSlots][2][]byte{}
	for slot, r := range l.All() {
		if !l.Reserve(r) {
			m.fail("slot %d cannot be reserved", slot)
		}
		for i := range m.blocks[slot] {
			if ref, n := r.Half(i).Block(); ref != 0 && r.Kind() == KindStream {
				m.blocks[slot][i], _ = l.Arena().Bytes(ref, n)
			}
		}
	}
	m.change(l.Arena().Sweep)
	m.idle()
	m.change(func() { l.Turn().End() }, func(v *view) { v.note = noteView{slot: v.note.slot, gen: v.note.gen} }, func(v *view) { v.note = noteView{} })
	m.count()
	m.used = l.strings.n
	m.names = map[string]uint32{"": 0}
	for ref, s := range l.strings.names {
		m.names[s] = ref
	}
}

// arm makes the next write to a part of the ledger the death of the process.
func (m *machine) arm() {
	which := m.schedule.next()
	if m.armed != nil || m.unarmed {
		return
	}
	h := &m.l.header
	areas := []part{{0, page}, h.turn, h.records, h.strings, {h.stats.offset, statsHalf}, {h.stats.offset + statsHalf, statsHalf}, h.arena, {h.arena.offset + uint64(which>>4%4)*MaxBlock, MaxBlock}}
	m.armed = areas[which%8].of(m.l.mem)
	if err := testkernel.Protect(m.armed, false); err != nil {
		m.fail("%v", err)
	}
}

// disarm lets writes happen again.
func (m *machine) disarm() {
	if m.armed == nil {
		return
	}
	if err := testkernel.Protect(m.armed, true); err != nil {
		m.fail("%v", err)
	}
	m.armed = nil
}

// died finds out what the process was doing when it died.
func (m *machine) died() {
	m.disarm()
	m.deaths++
	if len(m.next) == 0 {
		m.check("dead between two changes")
		return
	}
	if len(m.next) > 1 {
		m.inside++
	}
	v, err := look(m.l.FD(), m.names)
	if err != nil {
		m.fail("dead in a change: %v", err)
	}
	if !slices.Contains(m.next, v) {
		m.fail("dead in a change, neither before%s\nnor after%s", differ(&v, &m.next[0]), differ(&v, &m.next[len(m.next)-1]))
	}
	m.now, m.next = v, m.next[:0]
}

// step does what the next decision says.
func (m *machine) step() {
	switch op := m.schedule.next() % 32; op {
	case 0, 1, 2, 3, 4, 5:
		m.settle()
	case 6, 7:
		if slot, ok := m.pick(true, 0); ok {
			m.forget(slot)
		}
	case 8, 9, 10:
		m.reblob()
	case 11, 12:
		if slot, ok := m.pick(true, KindStream); ok {
			m.reblock(slot, int(op&1))
		}
	case 13, 14, 15:
		m.field()
	case 16, 17, 18, 19:
		m.turn()
	case 20, 21:
		m.intern(op == 20)
	case 22:
		i := m.schedule.next() % 5
		m.change(func() { *m.stats[i] += 3 }, func(v *view) { v.stats[i].n += 3 })
	case 23:
		m.change(m.l.Arena().Trim)
	case 24:
		m.gen += 2
		gen := m.gen
		m.change(func() { m.l.Turn().SetNewest(gen) }, func(v *view) { v.newest = gen })
	case 25:
		m.disarm()
		m.check("between two changes")
		m.restart()
	default:
		m.arm()
	}
}

// run runs the schedule to its end.
func (m *machine) run() {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		m.disarm()
		m.l.Close()
	}()
	m.count()
	for len(m.schedule.left) > 0 {
		if !m.survives(m.step) {
			for !m.survives(m.restart) {
			}
		}
	}
	m.disarm()
	m.check("at the end")
	m.idle()
	for slot := range m.now.flows {
		if m.now.flows[slot].gen != 0 {
			m.forget(uint32(slot))
		}
	}
	m.check("when all is forgotten")
	if n := m.l.Arena().Used(); n != 0 {
		m.fail("%d bytes of the arena are lent", n)
	}
}

// survives runs f, in which the process may die.
func (m *machine) survives(f func()) (yes bool) {
	defer func() {
		e := recover()
		if e == nil {
			return
		}
		fault, ok := e.(interface{ Addr() uintptr })
		if !ok || m.armed == nil || fault.Addr()-reflect.ValueOf(m.armed).Pointer() >= uintptr(len(m.armed)) {
			panic(e)
		}
		m.died()
		yes = false
	}()
	f()
	return true
}

// runStates runs a schedule.
func runStates(t *testing.T, data []byte) *machine {
	s := &schedule{data}
	h := statesLayout(s.next()&1 != 0)
	fd := sealed(t, h.fileBytes, func(mem []byte) { h.write(mem) })
	defer sys.Linux{}.Close(fd)
	m := newStates(fd, s, func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n%d decisions left", fmt.Sprintf(format, args...), len(s.left))
	})
	m.run()
	return m
}

// FuzzStates: a ledger as a state machine. Whatever its writer did, and wherever it died, the next process finds
// what was published and nothing else: each change as a whole or not at all, and no byte of another flow.
func FuzzStates(f *testing.F) {
	for _, seed := range [][]byte{
		{},
		{0, 0, 0, 0, 0, 2, 12, 3, 5, 16, 0, 0xff, 3, 25, 1, 6, 0, 1},
		{1, 0, 26, 2, 0, 0, 0, 4, 9, 8, 0, 12, 8, 0, 3, 26, 6, 8, 0, 14},
		{0, 0, 21, 200, 21, 3, 20, 130, 26, 3, 21, 250, 21, 129, 0, 0, 3, 0, 2, 0, 0},
		{0, 1, 22, 3, 26, 4, 25, 1, 22, 4, 26, 5, 25, 0, 22, 1},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 400 {
			runStates(t, data)
		}
	})
}

// The same with random schedules, which are others in each run.
func TestStates(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	runs, deaths, inside := 200, 0, 0
	for i := range runs {
		data := make([]byte, 2+r.IntN(400))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) {
			m := runStates(t, data)
			deaths, inside = deaths+m.deaths, inside+m.inside
		}) {
			t.Fatalf("schedule %#v, a seed for FuzzStates", data)
		}
	}
	t.Logf("%d schedules, %d deaths, %d of them in the middle of a change", runs, deaths, inside)
}
