package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

var update = flag.Bool("update", false, "write the golden files")

// write fills a ledger with a bit of everything.
func write(t testing.TB, l *Ledger) {
	t.Helper()
	a := l.Arena()
	name, _ := l.Intern("tcp://[::]:443")
	for slot := range uint32(4) {
		r := l.Begin(slot)
		r.SetListener(name)
		r.SetStart(1e9 + int64(slot))
		r.SetFlags(1 << slot)
		switch slot {
		case 0, 1:
			r.SetKind(KindStream)
			h := r.Half(int(slot))
			h.SetIn(1 << 40)
			h.SetOut(1<<40 - 5)
			h.SetInBase(-3)
			h.SetPipe(7)
			b := a.Get(5)
			copy(b, "bytes")
			ref, _ := a.Ref(b)
			h.SetBlock(ref, 5)
			l.SetBlob(r, []byte("of a stream"))
		case 2, 3:
			r.SetKind(KindDatagram)
			g := r.Gram()
			g.SetClient(Addr{IP: [16]byte{192, 0, 2, 1}, Len: 4, Port: 53})
			g.SetRequests(12)
			g.Moved(1).SetDatagrams(34)
			l.SetBlob(r, bytes.Repeat([]byte("of a datagram flow "), 10))
		}
		l.Publish(slot, 2*slot+1)
	}
	l.Free(3)
	l.Turn().Begin(1, 3)
	l.Turn().SetCounts(1<<40, 1<<40-5)
	l.Turn().Set(1, PhaseFlushing, 0)
	copy(l.Scratch()[100:], "scratch")
	s, err := StatsOf[struct{ Accepted, Ended int64 }](l)
	if err != nil {
		t.Fatal(err)
	}
	s.Accepted, s.Ended = 4, 1
}

// check checks what write has written, with whatever version.
func check(t *testing.T, l *Ledger) {
	t.Helper()
	r := maps.Collect(l.All())
	if len(r) != 3 || r[0].Generation() != 1 || r[1].Generation() != 3 || r[2].Generation() != 5 {
		t.Fatalf("records %v", r)
	}
	for slot, r := range r {
		if s, ok := l.String(r.Listener()); s != "tcp://[::]:443" || !ok || r.Start() != 1e9+int64(slot) || r.Flags() != 1<<slot || !l.Reserve(r) {
			t.Errorf("slot %d: listener %q, start %d, flags %#x", slot, s, r.Start(), r.Flags())
		}
	}
	h := r[1].Half(1)
	ref, n := h.Block()
	block, ok := l.Arena().Bytes(ref, n)
	blob, _ := l.Blob(r[1])
	if h.In() != 1<<40 || h.Out() != 1<<40-5 || h.InBase() != -3 || h.Pipe() != 7 || string(block) != "bytes" || !ok || string(blob) != "of a stream" {
		t.Errorf("half: in %d, out %d, base %d, pipe %d, block %q, blob %q", h.In(), h.Out(), h.InBase(), h.Pipe(), block, blob)
	}
	g := r[2].Gram()
	blob, ok = l.Blob(r[2])
	if c := g.Client(); c != (Addr{IP: [16]byte{192, 0, 2, 1}, Len: 4, Port: 53}) || g.Requests() != 12 || g.Moved(1).Datagrams() != 34 || len(blob) != 190 || !ok {
		t.Errorf("datagram flow: client %v, requests %d, blob %q", c, g.Requests(), blob)
	}
	if got, want := l.Turn().Note(), (Note{Slot: 1, Generation: 3, Half: 1, Phase: PhaseFlushing}); got != want {
		t.Errorf("note %+v", got)
	}
	if in, out := l.Turn().Counts(); in != 1<<40 || out != 1<<40-5 {
		t.Errorf("counts %d, %d", in, out)
	}
	if string(l.Scratch()[100:107]) != "scratch" {
		t.Errorf("scratch %q", l.Scratch()[:200])
	}
	s, err := StatsOf[struct{ Ended, Accepted int64 }](l)
	if err != nil || s.Accepted != 4 || s.Ended != 1 {
		t.Errorf("stats %+v, %v", s, err)
	}
}

// headerOf returns the layout of a program of another format.
func headerOf(other string) header {
	format = other
	defer func() { format = "" }()
	return layout(2, 8, 4*MaxBlock)
}

// made makes a ledger of a given layout.
func made(t testing.TB, h header) *Ledger {
	t.Helper()
	return opened(t, h.fileBytes, func(mem []byte) { h.write(mem) })
}

// sealed returns a file of size bytes that fill has filled.
func sealed(t testing.TB, size uint64, fill func(mem []byte)) (fd int) {
	t.Helper()
	fd, e := sys.Memfd("penstock-test", int64(size))
	if e != 0 {
		t.Fatal(e)
	}
	if size == 0 {
		return fd
	}
	mem, e := sys.Map(fd, int64(size))
	if e != 0 {
		t.Fatal(e)
	}
	fill(mem)
	sys.Unmap(mem)
	return fd
}

// opened returns a ledger from such a file.
func opened(t testing.TB, size uint64, fill func(mem []byte)) *Ledger {
	t.Helper()
	fd := sealed(t, size, fill)
	l, err := Open(sys.Linux{}, fd)
	if err != nil {
		sys.Linux{}.Close(fd)
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestGolden: files of earlier versions are understood, and a file of this one is what it always was.
func TestGolden(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the files are of a little-endian machine")
	}
	for name, h := range map[string]header{
		"v1":       layout(2, 8, 4*MaxBlock),
		"v1-later": headerOf("longer"),
	} {
		t.Run(name, func(t *testing.T) {
			l := made(t, h)
			write(t, l)
			if name == "v1-later" {
				for slot := range uint32(8) {
					copy(l.records[int(slot)*l.stride+RecordSize:int(slot+1)*l.stride], bytes.Repeat([]byte{0xee}, 64))
				}
			}
			file := filepath.Join("testdata", name+".gz")
			if *update {
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				z.Write(l.mem)
				z.Close()
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			z, err := gzip.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			golden, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(golden, l.mem) {
				at := 0
				for at < min(len(golden), len(l.mem)) && golden[at] == l.mem[at] {
					at++
				}
				t.Errorf("%s differs from what this version writes, at %#x", file, at)
			}
			g := opened(t, uint64(len(golden)), func(mem []byte) { copy(mem, golden) })
			check(t, g)
			// A slot that is used again keeps nothing, not even what this version does not know.
			g.Begin(2)
			g.Publish(2, 7)
			if b := g.records[2*g.stride+4 : 3*g.stride]; !bytes.Equal(b, make([]byte, len(b))) {
				t.Error("a record that begins is not empty")
			}
			if g.header.optional != h.optional {
				t.Errorf("optional features %#x", g.header.optional)
			}
		})
	}
}

// TestRefused: a file that this version cannot understand is refused, with the reason.
func TestRefused(t *testing.T) {
	h := layout(0, 8, MaxBlock)
	base := func(mem []byte) { h.write(mem) }
	word := func(i int, v uint64) func(mem []byte) {
		return func(mem []byte) { base(mem); binary.LittleEndian.PutUint64(mem[8+8*i:], v) }
	}
	at := func(i int, v uint64) func(mem []byte) {
		return func(mem []byte) { base(mem); binary.LittleEndian.PutUint64(mem[i:], v) }
	}
	for what, c := range map[string]struct {
		size uint64
		fill func(mem []byte)
		want error
	}{
		"empty":            {0, nil, ErrInvalid},
		"short":            {100, func([]byte) {}, ErrInvalid},
		"huge":             {maxFile + page, func([]byte) {}, ErrInvalid}, // and not an error of mmap, which another process may not get
		"zeros":            {h.fileBytes, func([]byte) {}, ErrInvalid},
		"cut off":          {h.fileBytes - page, base, ErrInvalid},
		"longer":           {h.fileBytes + page, base, ErrInvalid},
		"version":          {h.fileBytes, word(0, 2), ErrVersion},
		"required feature": {h.fileBytes, word(1, 1<<63), ErrVersion},
		"newer program":    {h.fileBytes, func(mem []byte) { n := headerOf("required"); n.write(mem) }, ErrVersion},
		"byte order":       {h.fileBytes, word(3, 0x0d0c0b0a), ErrInvalid},
		"loop":             {h.fileBytes, word(4, 256), ErrInvalid},
		"no slots":         {h.fileBytes, word(5, 0), ErrInvalid},
		"slots":            {h.fileBytes, word(5, 1<<20), ErrInvalid},
		"slots, overflow":  {h.fileBytes, word(5, 1<<56), ErrInvalid},
		"stride":           {h.fileBytes, word(6, 64), ErrInvalid},
		"stride, odd":      {h.fileBytes, word(6, RecordSize+4), ErrInvalid},
		"place":            {h.fileBytes, word(9, 0), ErrInvalid},
		"place, overflow":  {h.fileBytes, word(13, ^uint64(0)&^(page-1)), ErrInvalid},
		"order":            {h.fileBytes, word(17, headerSize), ErrInvalid},
		"size":             {h.fileBytes, word(20, h.fileBytes), ErrInvalid},
		"arena":            {h.fileBytes, word(20, MaxBlock-page), ErrInvalid},
		"strings":          {h.fileBytes, at(stringsAt, StringsSize+1), ErrInvalid},
		"a string": {h.fileBytes, func(mem []byte) {
			at(stringsAt, 10)(mem)
			mem[h.strings.offset] = 10
		}, ErrInvalid},
	} {
		fd := sealed(t, c.size, c.fill)
		l, err := Open(sys.Linux{}, fd)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if l != nil {
			l.Close()
		} else {
			sys.Linux{}.Close(fd)
		}
	}
	// A file that could shrink under the mapping, and no file at all.
	f, err := os.Create(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, fd := range []int{int(f.Fd()), -1} {
		if _, err := Open(sys.Linux{}, fd); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	for _, cfg := range []Config{{Slots: MaxSlots + 1}, {Slots: -1}, {Loop: 256}, {Arena: maxArena + 1}, {Arena: -1}} {
		if _, err := Create(cfg); err == nil || strings.Contains(err.Error(), "memfd") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// FuzzOpen: whatever the bytes of a file are, opening it and reading all of it is bounded and does not
// panic, and what is read lies within the file.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(nil), false)
	f.Add([]byte(magic), false)
	patch := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	h := layout(2, 8, 4*MaxBlock)
	rec := h.records.offset
	f.Add(patch(), true)
	f.Add(patch(topAt, 1<<40, rec+32, 11<<unitBits|1<<40, rec+halvesAt+40, 1<<62), true)
	f.Add(patch(h.turn.offset, 1<<32, h.turn.offset+8, ^uint64(0)), true)
	f.Add(patch(h.stats.offset, 1<<16, statsAt, 1, stringsAt, 3), true)
	f.Fuzz(func(t *testing.T, b []byte, patched bool) {
		var fd int
		if patched {
			// A good ledger, of which single words are replaced.
			l := made(t, h)
			write(t, l)
			for ; len(b) >= 16; b = b[16:] {
				at := binary.LittleEndian.Uint64(b) % (h.fileBytes - 8)
				copy(l.mem[at:], b[8:16])
			}
			var e sys.Errno
			if fd, e = sys.Dup(l.FD()); e != 0 {
				t.Fatal(e)
			}
		} else {
			fd = sealed(t, uint64(len(b)), func(mem []byte) { copy(mem, b) })
		}
		l, err := Open(sys.Linux{}, fd)
		if err != nil {
			sys.Linux{}.Close(fd)
			return
		}
		defer l.Close()
		read(t, l)
	})
}

// read uses all that a restoring process uses.
func read(t *testing.T, l *Ledger) {
	note := l.Turn().Note()
	_ = note
	l.Turn().Counts()
	l.Turn().ReadMessage().Moved()
	if len(l.Scratch()) != ScratchSize {
		t.Fatal("scratch")
	}
	var lost []uint32
	for slot, r := range l.All() {
		l.String(r.Listener())
		if b, ok := l.Blob(r); ok && len(b) > MaxBlock {
			t.Fatalf("a blob of %d bytes", len(b))
		}
		for i := range 2 {
			ref, n := r.Half(i).Block()
			if b, ok := l.Arena().Bytes(ref, n); ok {
				b[:cap(b)][cap(b)-1]++
			}
		}
		r.Gram().Client()
		if !l.Reserve(r) {
			lost = append(lost, slot)
		}
	}
	for _, slot := range lost {
		l.Free(slot)
	}
	l.Arena().Sweep()
	for slot, r := range l.All() {
		if !l.SetBlob(r, make([]byte, 100)) || !l.SetBlob(r, nil) {
			continue // the arena may be full
		}
		l.Free(slot)
	}
	if _, err := StatsOf[struct{ A, B int64 }](l); err != nil {
		t.Fatal(err)
	}
	l.Intern("a new one")
	l.Begin(uint32(l.Slots() - 1))
	l.Publish(uint32(l.Slots()-1), 1)
	for range 10 {
		l.Arena().Put(l.Arena().Get(1000))
	}
}
