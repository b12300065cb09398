package pump

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/pool"
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

// sizes are what a decision about a number of bytes chooses from: limits of the half, and their neighbours.
var sizes = [16]int{1, 2, 100, 700, 1447, smallRead - 1, smallRead, 16 << 10, bigRead - 1, bigRead, 20_000, 32 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200_000}

func (s *schedule) size() int { return sizes[s.next()%16] }

// machine runs one half against [memory], as a schedule says, and knows what must be true after each turn. The
// bytes of the source are a pattern: a byte that the destination gets is the next one of it, or somebody
// else's, lost, moved or sent twice.
type machine struct {
	t        *testing.T
	k        *memory
	schedule *schedule
	env      Env
	half     Half
	ledger   *ledger.Ledger // nil: the flow does not outlive the process
	record   ledger.Half
	one      [2]bool
	buffers  pool.Buffers
	state    State
	deaths   int
	doubt    bool // the process died with an error in its hands: bytes may be missing
}

// recorded is the arena, in which to get or give back a block is a place to die, too.
type recorded struct {
	Buffers
	k *memory
}

func (b recorded) Get(n int) []byte {
	p := b.Buffers.Get(n)
	b.k.point()
	return p
}

func (b recorded) Put(p []byte) {
	b.Buffers.Put(p)
	b.k.point()
}

// The bits of the first byte.
const (
	withTCP = 1 << iota
	withLedger
	withFaults
	withOneSend
	withHard
	withLowat
	withSink
	withSmallPipes
)

func newMachine(t *testing.T, s *schedule) *machine {
	kind := s.next()
	m := &machine{t: t, k: newMemory(s), schedule: s}
	m.k.faults = kind&withFaults != 0
	m.k.pipesSize = 256 << 10
	if kind&withSmallPipes != 0 {
		m.k.pipesSize = 64 << 10
	}
	m.env = Env{Kernel: m.k, Buffers: &m.buffers, Scratch: make([]byte, ScratchSize), Hard: kind&withHard != 0}
	if kind&withLowat != 0 {
		m.env.Lowat = 20_000
	}
	m.half = Half{TCP: kind&withTCP != 0}
	m.half.Exact = m.half.TCP && !m.k.faults // faults cut reads short, which the kernel does not
	m.half.Sink = kind&withSink != 0 && kind&withLedger == 0
	m.one = [2]bool{!m.half.TCP, kind&withOneSend != 0}
	m.env.Pipes = NewPipes(m.k, m.k.pipesSize, 2)
	if kind&withLedger != 0 {
		l, err := ledger.Create(ledger.Config{Slots: 1, Arena: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r := l.Begin(0)
		r.SetKind(ledger.KindStream)
		l.Publish(0, 1)
		m.use(l)
	}
	return m
}

// use makes l the process' ledger.
func (m *machine) use(l *ledger.Ledger) {
	m.ledger, m.record = l, l.Record(0).Half(0)
	l.Turn().Begin(0, 1)
	m.env.Note = NewNote(l)
	m.env.Note.Of(0, m.record, m.one[0], m.one[1])
	m.env.Buffers, m.env.Scratch = recorded{l.Arena(), m.k}, l.Scratch()
}

func (m *machine) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nstate %d, %d taken, %d delivered, %d held, error %v (at the source %v); the source has sent %d, of which %d were taken, the destination has accepted %d, room %d, %d deaths, decisions left %d",
		fmt.Sprintf(format, args...), m.state, m.half.In, m.half.Out, m.half.Held(), m.half.Err, m.half.AtSrc, m.k.sent, m.k.consumed, m.k.accepted, m.k.room, m.deaths, len(m.schedule.left))
}

// turn gives the half a turn, in which the process may die.
func (m *machine) turn(budget int) {
	m.k.faulted = false
	in, out := m.half.In, m.half.Out
	if m.dies(func() { m.state = m.half.Turn(&m.env, memorySrc, memoryDst, budget) }) {
		m.restore()
		return
	}
	m.check(in, out, budget)
}

// dies reports whether the process has died in f.
func (m *machine) dies(f func()) (yes bool) {
	defer func() {
		if e := recover(); e != nil {
			if e != (died{}) {
				panic(e)
			}
			yes = true
		}
	}()
	f()
	return false
}

// check checks what must be true between two turns.
func (m *machine) check(in, out int64, budget int) {
	m.t.Helper()
	h, k := &m.half, m.k
	leased := m.env.Pipes.Stats().Leased
	switch {
	case k.wrong != nil:
		m.fail("%v", k.wrong)
	case h.In < in || h.Out < out || h.Spliced > h.Out:
		m.fail("counts run backwards, from %d and %d; %d spliced", in, out, h.Spliced)
	case h.In != k.consumed:
		m.fail("it has not taken what it says")
	case !h.Sink && h.Out != k.accepted:
		m.fail("it has not delivered what it says")
	case h.Held() > 256<<10:
		m.fail("too many bytes are held")
	case m.env.Hard && m.state != Failed && h.In-in > int64(max(budget, 0)):
		m.fail("a hard budget of %d, and %d were taken", budget, h.In-in)
	case m.state == Failed && h.Err == 0:
		m.fail("it failed without an error")
	case m.state == Failed && h.AtSrc && !m.doubt && (k.consumed != k.sent || h.Out != h.In):
		m.fail("the source failed, and not all that it had sent before was delivered")
	case m.state == Failed && !h.AtSrc && k.dead == 0:
		m.fail("nothing is wrong with the destination")
	case m.state == Failed:
		return // what the failed call was to move is lost
	case h.In-h.Out != int64(h.Held()):
		m.fail("bytes are nowhere")
	case (leased != 0) != (h.inPipe > 0):
		m.fail("%d pipes are leased, with %d bytes", leased, h.inPipe)
	case (m.state == WantRead || m.state == End) && h.Held() != 0, m.state == WantWrite && h.Held() == 0:
		m.fail("a wrong state")
	case m.state == WantRead && !k.faulted && (k.consumed != k.sent || k.reset != 0 || k.fin && !h.Exact):
		m.fail("it waits for the source, which has something")
	case m.state == WantWrite && !k.faulted && k.room > 0:
		m.fail("it waits for the destination, which has room")
	case m.state == End && (!k.fin && !k.gone || k.consumed != k.sent):
		m.fail("the source has not ended")
	case m.state == End && k.gone && !h.Sink && !m.doubt:
		m.fail("the source has not ended, but failed")
	}
	if m.ledger == nil {
		return
	}
	ref, n := m.record.Block()
	rest := len(h.rest) - int(h.off)
	b, _ := m.ledger.Arena().Bytes(ref, n)
	switch {
	case m.ledger.Turn().Note().Phase != ledger.PhaseNone:
		m.fail("between two turns, the note says %+v", m.ledger.Turn().Note())
	case m.record.In() != h.In || m.record.Out() != h.Raw() || m.record.Spliced() != h.Spliced:
		m.fail("the record says %d, %d, %d", m.record.In(), m.record.Out(), m.record.Spliced())
	case (ref != 0) != (rest > 0) || ref != 0 && pattern().Check(h.Out, b[len(b)-rest:]) != nil:
		m.fail("the record has another block")
	case (m.record.Pipe() != 0) != (h.inPipe > 0):
		m.fail("the record has pipe %d", m.record.Pipe())
	}
}

// restore is the next process: it has the ledger, the sockets and the pipes, and no other memory of the one
// that died. What it finds out is what the kernel knows, or it was not noted well.
func (m *machine) restore() {
	m.deaths++
	m.k.deadly = 0
	fd, e := sys.Dup(m.ledger.FD())
	if e != 0 {
		m.t.Fatal(e)
	}
	l, err := ledger.Open(sys.Linux{}, fd)
	if err != nil {
		m.t.Fatal(err)
	}
	m.ledger.Close()
	r := l.Record(0)
	rec, note, turn := r.Half(0), l.Turn().Note(), l.Turn()
	if !l.Reserve(r) {
		m.fail("the record names blocks that are not there")
	}
	scratch := append([]byte(nil), l.Scratch()...)
	var piped []byte
	if p := rec.Pipe(); p > 0 {
		piped = m.k.pipe(m.env.Pipes.slots[p-1].r).b
	}
	in, out := turn.Counts()
	if note.Phase == ledger.PhaseNone {
		in, out = rec.In(), rec.Out()
	}
	moved := func(one bool, x *sys.Message, counted int64) int64 {
		if !one {
			return counted
		}
		if n, ok := x.Moved(); ok {
			return int64(n)
		}
		return 0
	}
	var block []byte // what waits in memory
	if ref, n := rec.Block(); ref != 0 {
		block, _ = l.Arena().Bytes(ref, n)
	}
	queued := int64(len(piped))
	switch note.Phase { // the table at Note
	case ledger.PhaseReading:
		n := moved(m.one[0], turn.ReadMessage(), m.k.consumed-in)
		in, block = in+n, scratch[:n]
	case ledger.PhaseRead:
		n := moved(m.one[1], turn.WriteMessage(), m.k.accepted-out)
		in, out, block = in+int64(note.N), out+n, scratch[n:note.N]
	case ledger.PhaseFlushing:
		out += moved(m.one[1], turn.WriteMessage(), m.k.accepted-out)
	case ledger.PhaseFilling:
		in = out + queued
	case ledger.PhaseEmptying:
		out = in - queued
	case ledger.PhaseDraining:
		block = scratch[:in-out-queued]
	}
	rest := in - out - queued
	// A process that died behind a read that was told the error, or the end, has no bytes in its hands.
	if in != m.k.consumed || out != m.k.accepted {
		m.fail("the process died in phase %d of half %d, with %+v; by the ledger, %d were taken and %d delivered", note.Phase, note.Half, note, in, out)
	}
	if rest < 0 || rest > int64(len(block)) || pattern().Check(out, block[int64(len(block))-rest:]) != nil || pattern().Check(out+rest, piped) != nil {
		m.fail("the process died in phase %d; %d of %d bytes that wait in memory and %d in the pipe are not the next ones of the stream", note.Phase, rest, len(block), queued)
	}
	held := Held{Err: sys.Errno(rec.Errno())}
	block = append([]byte(nil), block[int64(len(block))-rest:]...)
	if ref, n := rec.Block(); ref != 0 {
		b, _ := l.Arena().Bytes(ref, n)
		rec.SetBlock(0, 0)
		l.Arena().Put(b)
	}
	m.env.Pipes = NewPipes(m.k, m.k.pipesSize, 2) // the pipes of a dead process are closed with it, except for what is held
	m.use(l)
	if rest > 0 {
		held.Block, held.Rest = l.Arena().Get(int(rest)), int(rest)
		copy(held.Block, block)
		m.env.Note.block(held.Block)
	}
	rec.SetPipe(0)
	if queued > 0 {
		lack := m.k.noPipes
		m.k.noPipes = false
		held.Pipe, held.Piped = m.env.Pipes.Get(), len(piped)
		m.k.noPipes = lack
		m.k.pipe(held.Pipe.r).b = piped
		rec.SetPipe(held.Pipe.at)
	}
	m.doubt = m.doubt || m.k.telling
	tcp := m.half.TCP
	m.half = Half{TCP: tcp}
	m.half.Restore(&m.env, in, out, rec.Spliced(), held)
	m.env.Note.Done(&m.half)
	m.k.RcvLowat(memorySrc, 1)
	m.state = WantRead
}

// step does what the next decision says.
func (m *machine) step() {
	k, s := m.k, m.schedule
	switch op := s.next() % 32; op {
	case 0, 1, 2, 3, 4:
		if n := s.size(); !k.fin && !k.gone && k.sent-k.consumed < 1<<20 {
			k.sent += int64(n)
		}
	case 5, 6, 7, 8, 9, 10, 11:
		if m.state != End && m.state != Failed {
			m.turn(s.size())
		}
	case 12, 13, 14:
		k.room += s.size()
	case 15:
		k.room += 1 << 20
	case 16:
		k.fin = true
		m.half.Exact = false // as the loop does when it hears of it
	case 17:
		if !k.gone {
			k.gone, k.reset = true, sys.ECONNRESET
			m.half.Exact = false
		}
	case 18:
		if k.dead = sys.EPIPE; s.next()&1 != 0 {
			k.dead = sys.ECONNRESET
		}
	case 19:
		if m.half.TCP && m.ledger == nil && k.mark < k.consumed && !k.fin && !k.gone {
			k.mark = k.sent
			m.half.Exact = false
		}
	case 20:
		k.noSplice[0] = s.next()&1 != 0
	case 21:
		k.noSplice[1] = true
	case 22:
		k.noPipes = !k.noPipes
	case 23:
		k.noLowat = !k.noLowat
	case 24:
		m.half.Refuse(datapath.WhyOff)
	case 25:
		if k.sent == 0 && m.state == WantRead && !m.half.Sink {
			// What was sniffed is the beginning of the stream.
			n := min(s.size(), 20_000)
			k.sent, k.consumed = int64(n), int64(n)
			m.half.Preload(&m.env, pattern().At(0, n))
			if m.ledger != nil {
				m.env.Note.Done(&m.half)
			}
		}
	case 26, 27, 28:
		if m.ledger != nil && m.state != End && m.state != Failed {
			k.deadly = 1 + int(s.next()%24)
			m.turn(s.size())
			k.deadly = 0
		}
	case 29:
		m.k.pipesSize = 64 << 10 // what the kernel grants an unprivileged user with many pipes
	case 30, 31:
		// A burst, as bulk data has, from or to a slow end: without it, splicing would be rare, and full pipes.
		faster := 100_000
		if op == 31 {
			faster = 40_000
		}
		for range 4 {
			if !k.fin && !k.gone && k.sent-k.consumed < 1<<20 {
				k.sent += 64 << 10
			}
			k.room += faster
			if m.state != End && m.state != Failed {
				m.turn(1 << 20)
			}
		}
	}
}

// finish lets all that was sent arrive, without faults.
func (m *machine) finish() {
	k := m.k
	k.faults = false
	k.fin = true
	m.half.Exact = false
	for range 1000 {
		if m.state == End || m.state == Failed {
			break
		}
		k.room += 1 << 20
		m.turn(1 << 20)
	}
	failed := k.dead != 0 || k.gone
	switch {
	case m.state != End && m.state != Failed:
		m.fail("it does not end")
	case m.state == Failed && !failed:
		m.fail("it failed for nothing")
	case m.state == End && (m.half.Out != k.sent || m.half.In != k.sent):
		m.fail("not everything was delivered")
	}
	lost := m.half.In - m.half.Out
	k.deadly = 0
	if dropped := m.half.Close(&m.env); dropped != lost {
		m.fail("Close says %d bytes dropped, and %d were", dropped, lost)
	}
	if n := m.env.Pipes.Stats().Leased; n != 0 {
		m.fail("%d pipes are still leased", n)
	}
	m.env.Pipes.Drain()
	if n := m.env.Pipes.Stats().Open; n != 0 {
		m.fail("%d pipes are open", n)
	}
	if m.ledger == nil {
		for _, c := range m.buffers.Stats().Classes {
			if c.Gets != c.Puts {
				m.fail("buffers of %d bytes: %d taken, %d given back", c.Size, c.Gets, c.Puts)
			}
		}
	} else if n := m.ledger.Arena().Used(); n != 0 {
		m.fail("%d bytes of the arena are lent", n)
	}
}

// run runs a schedule to its end.
func runSchedule(t *testing.T, data []byte) {
	m := newMachine(t, &schedule{data})
	defer func() {
		if m.ledger != nil {
			m.ledger.Close()
		}
	}()
	for len(m.schedule.left) > 0 {
		m.step()
	}
	m.finish()
}

// FuzzSchedule: a half as a state machine. Whatever comes when, however calls fail or fall short, and wherever
// the process dies, the destination gets the bytes of the source in order, each once; what is lost with a
// reset is counted; a half waits only for what is not there; nothing stays leased.
func FuzzSchedule(f *testing.F) {
	for _, kind := range []byte{0, withTCP, withTCP | withFaults, withLedger | withFaults, withTCP | withLedger, withTCP | withLowat, withSink, withHard | withFaults} {
		f.Add([]byte{kind, 0, 7, 5, 15, 12, 9, 0, 13, 5, 15, 16, 5, 15})
		f.Add([]byte{kind, 30, 30, 0, 13, 5, 15, 26, 5, 15, 15, 19, 0, 2, 5, 15, 18, 0, 0, 12, 5, 15})
		f.Add([]byte{kind, 25, 2, 5, 2, 21, 30, 30, 26, 9, 15, 26, 3, 15, 22, 30, 17, 5, 15})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 400 {
			runSchedule(t, data)
		}
	})
}

// The same with random schedules, which are others in each run.
func TestSchedules(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 3000 {
		data := make([]byte, 2+r.IntN(200))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprintf("seed=%d/%d", seed, i), func(t *testing.T) { runSchedule(t, data) }) {
			t.Fatalf("schedule %#v, a seed for FuzzSchedule", data)
		}
	}
}
