package ledger

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lent is a block as the test remembers it: each byte of its capacity tells whose it is.
type lent struct {
	b   []byte
	ref uint32
	own uint64
}

func (x lent) fill() {
	b := x.b[:cap(x.b)]
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], x.own)
	}
}

func (x lent) intact(b []byte) bool {
	return bytes.Equal(b[:cap(b)], bytes.Repeat(binary.LittleEndian.AppendUint64(nil, x.own), cap(b)/8))
}

// TestArena: random calls. Blocks never overlap, keep their bytes, and are found again by reference,
// in this process and in the next, which goes on where this one ended.
func TestArena(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	l := small(t)
	var blocks []lent
	var used int64
	for next := range uint64(20000) {
		a := l.Arena()
		switch n := r.IntN(100); {
		case n < 48 || len(blocks) == 0 && n < 99:
			size := r.IntN(1 << r.IntN(17))
			b := a.Get(size)
			if len(b) != size {
				t.Fatalf("Get(%d) has %d bytes", size, len(b))
			}
			ref, ok := a.Ref(b)
			if !ok { // the arena is full: ordinary memory
				if used < 2<<20 {
					t.Fatalf("Get(%d) is not from the arena, of which %d bytes are used", size, used)
				}
				a.Put(b)
				continue
			}
			if cap(b) < max(size, minBlock) || cap(b) >= 2*max(size, minBlock) {
				t.Fatalf("Get(%d) has a capacity of %d", size, cap(b))
			}
			x := lent{b, ref, next}
			x.fill()
			blocks = append(blocks, x)
			used += int64(cap(b))
		case n < 96:
			i := r.IntN(len(blocks))
			x := blocks[i]
			if !x.intact(x.b) {
				t.Fatalf("block %#x of %d bytes is not its owner's", x.ref, len(x.b))
			}
			used -= int64(cap(x.b))
			a.Put(x.b)
			blocks[i] = blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
		case n < 98:
			a.Trim()
		default:
			if r.IntN(20) != 0 {
				continue
			}
			m := reopen(t, l)
			r.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
			for i, x := range blocks {
				if !m.Arena().Reserve(x.ref) || m.Arena().Reserve(x.ref) {
					t.Fatalf("block %#x cannot be reserved, or twice", x.ref)
				}
				b, ok := m.Arena().Bytes(x.ref, len(x.b))
				if !ok || cap(b) != cap(x.b) {
					t.Fatalf("block %#x: %d bytes, want %d", x.ref, cap(b), cap(x.b))
				}
				blocks[i].b = b
			}
			m.Arena().Sweep()
			l = m
		}
		if l.Arena().Used() != used {
			t.Fatalf("%d bytes used, want %d", l.Arena().Used(), used)
		}
	}
	for _, x := range blocks {
		if !x.intact(x.b) {
			t.Fatalf("block %#x of %d bytes is not its owner's", x.ref, len(x.b))
		}
		l.Arena().Put(x.b)
	}
	if l.Arena().Used() != 0 {
		t.Errorf("%d bytes used at the end", l.Arena().Used())
	}
}

func TestArenaReferences(t *testing.T) {
	l := small(t)
	a := l.Arena()
	big := a.Get(MaxBlock + 1)
	if _, ok := a.Ref(big); ok || len(big) != MaxBlock+1 {
		t.Error("a block that is too large has a reference")
	}
	a.Put(big)
	a.Put(nil)
	if _, ok := a.Ref(nil); ok {
		t.Error("nil has a reference")
	}
	b := a.Get(0)
	ref, ok := a.Ref(b)
	if got, found := a.Bytes(ref, 64); !ok || !found || len(got) != 64 {
		t.Error("the smallest block is not found")
	}
	for _, bad := range []uint32{0, 1, ref + 1<<unitBits + 1, 12 << unitBits, 15 << unitBits, 1<<unitBits | 1<<20} {
		if _, ok := a.Bytes(bad, 1); ok || a.Reserve(bad) {
			t.Errorf("there is a block %#x", bad)
		}
	}
	for _, n := range []int{-1, 65, 1<<31 - 1} {
		if _, ok := a.Bytes(ref, n); ok {
			t.Errorf("%d bytes of a block of 64", n)
		}
	}
	if a.Reserve(ref) {
		t.Error("a block that is lent can be reserved")
	}
	if a.Reserve(2<<unitBits | 2) {
		t.Error("a block of 128 bytes in a chunk of blocks of 64")
	}
	a.Put(b)
	defer func() {
		if recover() == nil {
			t.Error("a block can be put twice")
		}
	}()
	a.Put(b)
}

// shared returns the memory that mappings of a ledger take.
func shared(t *testing.T) (kB int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "memfd:") {
			inside = strings.Contains(line, "memfd:penstock-ledger")
		}
		if f := strings.Fields(line); inside && len(f) == 3 && f[0] == "Rss:" {
			n, _ := strconv.Atoi(f[1])
			kB += n
			inside = false
		}
	}
	return kB
}

// TestArenaGivesBack: after a burst the kernel gets the memory back, and an idle ledger takes next to
// nothing, however many records it has room for.
func TestArenaGivesBack(t *testing.T) {
	l, err := Create(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	idle := shared(t)
	if idle > 200 {
		t.Errorf("an idle ledger takes %d kB", idle)
	}
	a := l.Arena()
	var blocks [][]byte
	get := func() {
		for range 200 {
			b := a.Get(MaxBlock)
			clear(b)
			blocks = append(blocks, b)
		}
	}
	put := func() {
		for _, b := range blocks {
			a.Put(b)
		}
		blocks = nil
	}
	get()
	if kB := shared(t); kB < idle+200*64 {
		t.Errorf("200 blocks take %d kB", kB-idle)
	}
	put()
	if kB := shared(t); kB > idle+maxFree*64+64 {
		t.Errorf("at the end of the burst %d kB", kB-idle)
	}
	a.Trim() // they were in use since the last one
	a.Trim()
	if kB := shared(t); kB > idle+64 {
		t.Errorf("after the burst %d kB", kB-idle)
	}
	// A process that dies leaves what it had; the next one gives back what no record names.
	get()
	ref, _ := a.Ref(blocks[100])
	m := reopen(t, l)
	if !m.Arena().Reserve(ref) {
		t.Fatal("not reserved")
	}
	m.Arena().Sweep()
	if kB := shared(t); kB > idle+2*64+64 { // mapped once more
		t.Errorf("after a sweep %d kB", kB-idle)
	}
	put()
}

// TestArenaAllocs: in its steady state the arena allocates nothing.
func TestArenaAllocs(t *testing.T) {
	a := small(t).Arena()
	sizes := []int{1, 64, 100, 5000, MaxBlock}
	for _, n := range sizes {
		a.Put(a.Get(n))
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, n := range sizes {
			b := a.Get(n)
			a.Ref(b)
			a.Put(b)
		}
		a.Trim()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkArena(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run("size="+strconv.Itoa(n), func(b *testing.B) {
			a := small(b).Arena()
			for b.Loop() {
				a.Put(a.Get(n))
			}
		})
	}
}
