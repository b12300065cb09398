package ledger

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/penstock/penstock/internal/sys"
)

// view is all that the next process can learn from a ledger, as values that can be compared.
type view struct {
	flows  [viewSlots]flowView // by slot; generation 0: none
	note   noteView
	newest uint32
	stats  [5]counter
}

const viewSlots = 8

type flowView struct {
	gen, flags, listener uint32
	name                 string // the listener's
	kind, cause, crashes uint8
	state                uint8
	errno                uint16
	start, first         int64
	blob                 string
	half                 [2]halfView
	gram                 gramView
}

type halfView struct {
	// The turn note has the first three while the half has something in its hands.
	in, out, spliced int64
	inBase, outBase  int32
	pipe, errno      uint32
	block            content
}

type gramView struct {
	client, local     Addr
	requests, answers uint64
	moved             [2][4]int64
	socket, active    uint32
}

type noteView struct {
	slot, gen uint32
	half      uint8
	phase     Phase
	n         int
	scratch   content // of the bytes that were read and are being sent
	counted   [4]int64
}

type counter struct {
	name string
	n    uint64
}

// content is what a piece of memory has: n bytes of the owner id, or of more than one.
type content struct {
	id    uint64
	n     int
	mixed bool
}

// paint makes p the memory of an owner.
func paint(p []byte, id uint64) {
	for i := range min(8, len(p)) {
		p[i] = byte(id >> (8 * i))
	}
	for n := 8; n < len(p); n *= 2 { // few instructions: TestEachInstruction counts them
		copy(p[n:], p[:n])
	}
}

func contentOf(p []byte) (c content) {
	c.n = len(p)
	for i := range min(8, len(p)) {
		c.id |= uint64(p[i]) << (8 * i)
	}
	if len(p) > 8 && !bytes.Equal(p[8:], p[:len(p)-8]) {
		return content{n: len(p), mixed: true}
	}
	return c
}

// painted is what contentOf tells of n bytes that were painted.
func painted(id uint64, n int) content {
	if n < 8 {
		id &= 1<<(8*n) - 1
	}
	return content{id: id, n: n}
}

// look returns what the next process finds in the ledger behind a descriptor, which it leaves as it is. names
// are the strings that must be there. An error says what can never be true of a ledger, whenever its writer has
// died.
func look(fd int, names map[string]uint32) (v view, err error) {
	dup, e := sys.Dup(fd)
	if e != 0 {
		return v, e
	}
	l, err := Open(sys.Linux{}, dup)
	if err != nil {
		sys.Linux{}.Close(dup)
		return v, err
	}
	defer l.Close()
	for s, ref := range names {
		if got, ok := l.String(ref); got != s || !ok {
			return v, fmt.Errorf("string %d is %q, want %q", ref, got, s)
		}
	}
	if n := len(l.strings.names); n > len(names) { // one more than there must be, because "" is never written
		return v, fmt.Errorf("%d strings, of which %d were written", n, len(names))
	}
	note := l.Turn().Note()
	v.newest = l.Turn().Newest()
	v.note = noteView{slot: note.Slot, gen: note.Generation, phase: note.Phase, n: note.N}
	if note.Phase != PhaseNone {
		v.note.half = note.Half
	}
	if note.Phase == PhaseRead {
		if note.N > ScratchSize {
			return v, fmt.Errorf("%d bytes in the scratch buffer", note.N)
		}
		v.note.scratch = contentOf(l.Scratch()[:note.N])
	}
	for half := range uint8(2) {
		if in, out, spliced, ok := l.Turn().Counted(half); ok {
			v.note.counted = [4]int64{in, out, spliced, int64(half) + 1}
		}
	}
	for slot, r := range l.All() {
		if slot >= viewSlots {
			return v, fmt.Errorf("slot %d has a record", slot)
		}
		if !l.Reserve(r) {
			return v, fmt.Errorf("slot %d: a block that is not there, or another record's", slot)
		}
		f := flowView{
			gen: r.Generation(), flags: r.Flags(), listener: r.Listener(), kind: r.Kind(), cause: r.Cause(), crashes: r.Crashes(),
			state: r.State(), errno: r.Errno(), start: r.Start(), first: r.FirstByte(),
		}
		name, ok := l.String(f.listener)
		blob, ok2 := l.Blob(r)
		if !ok || !ok2 || len(blob) > MaxBlob {
			return v, fmt.Errorf("slot %d: listener %d (%v), a blob of %d bytes (%v)", slot, f.listener, ok, len(blob), ok2)
		}
		f.name, f.blob = name, string(blob)
		switch f.kind {
		case KindStream:
			for i := range f.half {
				if f.half[i], err = lookHalf(l, r.Half(i)); err != nil {
					return v, fmt.Errorf("slot %d: %w", slot, err)
				}
			}
			if h := &f.half[note.Half]; note.Slot == slot && note.Generation == f.gen && note.Phase != PhaseNone {
				h.in, h.out = l.Turn().Counts()
				if note.Phase == PhaseEmptying {
					h.spliced = l.Turn().Spliced()
				}
			}
		case KindDatagram:
			g := r.Gram()
			f.gram = gramView{client: g.Client(), local: g.Local(), requests: g.Requests(), answers: g.Answers(), socket: g.Socket(), active: g.Active()}
			for i := range f.gram.moved {
				m := g.Moved(i)
				f.gram.moved[i] = [4]int64{m.Read(), m.Written(), m.Datagrams(), m.Dropped()}
			}
		default:
			return v, fmt.Errorf("slot %d is of kind %d", slot, f.kind)
		}
		v.flows[slot] = f
	}
	text, words := l.statsHalf(int(l.word(statsAt) & 1))
	if text != "" {
		for i, name := range strings.Split(text, "\n") {
			if i >= len(v.stats) {
				return v, fmt.Errorf("counters %q", text)
			}
			v.stats[i] = counter{name, sys.Load64(words[8*i:])}
		}
	}
	return v, nil
}

func lookHalf(l *Ledger, r Half) (h halfView, err error) {
	h = halfView{in: r.In(), out: r.Out(), spliced: r.Spliced(), inBase: r.InBase(), outBase: r.OutBase(), pipe: r.Pipe(), errno: r.Errno()}
	ref, n := r.Block()
	if ref == 0 {
		return h, nil
	}
	b, ok := l.Arena().Bytes(ref, n)
	if !ok {
		return h, fmt.Errorf("a block of %d bytes at %#x", n, ref)
	}
	h.block = contentOf(b)
	return h, nil
}

// differ says how two views differ, in a few lines.
func differ(got, want *view) string {
	var b strings.Builder
	line := func(what string, got, want any) {
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			fmt.Fprintf(&b, "\n%s: %.600s\nwant %.600s", what, g, w)
		}
	}
	for slot := range got.flows {
		line(fmt.Sprintf("slot %d", slot), got.flows[slot], want.flows[slot])
	}
	line("note", got.note, want.note)
	line("newest", got.newest, want.newest)
	line("counters", got.stats, want.stats)
	return b.String()
}
