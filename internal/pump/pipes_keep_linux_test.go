package pump

import (
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// heldPipes is a PipeHolder that has duplicates, as another process would.
type heldPipes struct {
	t testing.TB

	mu     sync.Mutex
	full   bool // hold no more
	held   map[PipeKey][2]int
	used   map[PipeKey]bool // all keys that ever were
	strays int              // dropped without being held
}

func newHeldPipes(t testing.TB) *heldPipes {
	h := &heldPipes{t: t, held: make(map[PipeKey][2]int), used: make(map[PipeKey]bool)}
	t.Cleanup(func() {
		for k := range h.held {
			t.Errorf("pipe %v is held at the end", k)
			h.DropPipe(k)
		}
	})
	return h
}

func (h *heldPipes) HoldPipe(k PipeKey, r, w int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.used[k] {
		h.t.Errorf("key %v is used again", k)
	}
	h.used[k] = true
	if h.full {
		return false
	}
	var fds [2]int
	for i, fd := range []int{r, w} {
		var e sys.Errno
		if fds[i], e = sys.Dup(fd); e != 0 {
			h.t.Errorf("dup: %v", e)
		}
	}
	h.held[k] = fds
	return true
}

func (h *heldPipes) DropPipe(k PipeKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fds, ok := h.held[k]
	if !ok {
		h.strays++
		return
	}
	delete(h.held, k)
	for _, fd := range fds {
		sys.Linux{}.Close(fd)
	}
}

// handOut returns what a process that starts now gets: duplicates of all that is held.
func (h *heldPipes) handOut() (all []HeldPipe) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, fds := range h.held {
		p := HeldPipe{Key: k}
		p.R, _ = sys.Dup(fds[0])
		p.W, _ = sys.Dup(fds[1])
		all = append(all, p)
	}
	return all
}

// die closes the pipes of a budget as the end of its process does: nobody is told.
func die(ps *Pipes, leased ...*Pipe) {
	for p := ps.idle.pop(ps.slots); p != nil; p = ps.idle.pop(ps.slots) {
		leased = append(leased, p)
	}
	for _, p := range leased {
		sys.Linux{}.Close(p.r)
		sys.Linux{}.Close(p.w)
	}
}

func put(t *testing.T, p *Pipe, text string) {
	t.Helper()
	fd, _ := sys.Dup(p.w)
	f := os.NewFile(uintptr(fd), "pipe")
	defer f.Close()
	if n, err := f.WriteString(text); err != nil {
		t.Fatal(n, err)
	}
}

func get(t *testing.T, p *Pipe, text string) {
	t.Helper()
	b := make([]byte, 100)
	if n, e := (sys.Linux{}).ReadPipe(p.r, b); e != 0 || string(b[:n]) != text {
		t.Fatalf("read %q, %v; want %q", b[:max(n, 0)], e, text)
	}
}

// A pipe is held from when it is made until it is closed, and one that cannot be held is not used.
func TestPipesAreHeld(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newHeldPipes(t)
	ps := NewKeptPipes(sys.Linux{}, 0, 2, h, nil)
	ps.Settle()
	a, b := ps.Get(), ps.Get()
	if a == nil || b == nil || len(h.held) != 2 {
		t.Fatalf("%v and %v leased, %d held", a, b, len(h.held))
	}
	ps.Put(a)
	first := b.Key()
	ps.Destroy(b)
	if _, ok := h.held[first]; ok || len(h.held) != 1 {
		t.Errorf("after one was destroyed: %v", h.held)
	}
	h.full = true
	if a = ps.Get(); a == nil { // the idle one
		t.Fatal("refused, with an idle pipe")
	}
	if ps.Get() != nil {
		t.Error("a pipe that is not held was lent")
	}
	if s := ps.Stats(); s.Refused != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	h.full = false
	if b = ps.Get(); b == nil || b.Key() == first || b.Key().Number != first.Number {
		t.Errorf("after %v the slot has %v", first, b)
	}
	ps.Put(a)
	ps.Put(b)
	ps.Drain()
	if s := ps.Stats(); s.Open != 0 || s.Leased != 0 {
		t.Errorf("%+v", s)
	}
}

// The next process goes on with the pipes: a half leases its own with the bytes in it, empty ones
// are lent, and bytes that nobody names are gone.
func TestPipesOfEarlierProcess(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newHeldPipes(t)
	first := NewKeptPipes(sys.Linux{}, 0, 4, h, nil)
	first.Settle()
	named, empty, unnamed, idle := first.Get(), first.Get(), first.Get(), first.Get()
	put(t, named, "mine")
	put(t, unnamed, "whose?")
	first.Put(idle)
	die(first, named, empty, unnamed)

	ps := NewKeptPipes(sys.Linux{}, 0, 4, h, h.handOut())
	if s := ps.Stats(); s.Open != 4 || s.Leased != 0 || ps.Get() != nil {
		t.Errorf("before the halves have theirs: %+v", s)
	}
	p := ps.Lease(named.Key().Number)
	if p == nil || p.Key() != named.Key() {
		t.Fatalf("leased %v", p)
	}
	if ps.Lease(named.Key().Number) != nil || ps.Lease(99) != nil {
		t.Error("leased twice, or one that is not there")
	}
	ps.Settle()
	if s := ps.Stats(); s.Open != 3 || s.Leased != 1 || len(h.held) != 3 {
		t.Errorf("%+v, %d held", s, len(h.held))
	}
	get(t, p, "mine")
	ps.Put(p)
	var all []*Pipe
	keys := make(map[PipeKey]bool)
	for p := ps.Get(); p != nil; p = ps.Get() {
		all = append(all, p)
		keys[p.Key()] = true
		if sys.Readable(sys.Linux{}, p.r) {
			t.Errorf("pipe %v is lent with bytes in it", p.Key())
		}
	}
	if len(all) != 4 || keys[unnamed.Key()] || !keys[empty.Key()] || !keys[idle.Key()] {
		t.Errorf("%d pipes: %v", len(all), keys)
	}
	for _, p := range all {
		ps.Put(p)
	}
	ps.Drain()
}

// The next process may use fewer pipes, or none: a half still gets its own.
func TestFewerPipesThanBefore(t *testing.T) {
	for _, most := range []int{-1, 1} {
		testnet.CheckLeaks(t)
		h := newHeldPipes(t)
		first := NewKeptPipes(sys.Linux{}, 0, 8, h, nil)
		first.Settle()
		var leased []*Pipe
		for range 5 {
			leased = append(leased, first.Get())
		}
		put(t, leased[4], "mine")
		die(first, leased...)

		ps := NewKeptPipes(sys.Linux{}, 0, most, h, h.handOut())
		p := ps.Lease(leased[4].Key().Number)
		ps.Settle()
		if s := ps.Stats(); p == nil || s.Open != int64(max(most, 0))+1 || s.Max != int64(max(most, 0)) {
			t.Fatalf("%v, %+v", p, s)
		}
		get(t, p, "mine")
		ps.Put(p)
		p = ps.Get()
		if (p != nil) != (most > 0) {
			t.Errorf("a maximum of %d: leased %v", most, p)
		}
		if p != nil {
			if ps.Get() != nil {
				t.Error("a second one of one")
			}
			ps.Put(p)
		}
		ps.Drain()
		if s := ps.Stats(); s.Open != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// What the holder says may be old or wrong: of two pipes of a slot the younger one counts, and a
// number that no pipe has is closed and dropped.
func TestOddHeldPipes(t *testing.T) {
	testnet.CheckLeaks(t)
	h := newHeldPipes(t)
	for _, k := range []PipeKey{{1, 7}, {1, 9}, {1, 8}, {MaxPipeNumber + 1, 1}, {1<<32 - 1, 1}} {
		r, w, _, _ := sys.Linux{}.Pipe(4096)
		h.HoldPipe(k, r, w)
		sys.Linux{}.Close(r)
		sys.Linux{}.Close(w)
	}
	ps := NewKeptPipes(sys.Linux{}, 0, 2, h, h.handOut())
	if keys := slices.Collect(maps.Keys(h.held)); len(keys) != 1 || keys[0] != (PipeKey{1, 9}) {
		t.Errorf("held: %v", keys)
	}
	ps.Settle()
	a := ps.Get()
	if a.Key() != (PipeKey{1, 9}) {
		t.Errorf("leased %v", a.Key())
	}
	ps.Destroy(a)
	b := ps.Get()
	c := ps.Get()
	if k := map[PipeKey]bool{b.Key(): true, c.Key(): true}; !k[PipeKey{1, 10}] || !k[PipeKey{0, 1}] {
		t.Errorf("leased %v", k)
	}
	ps.Put(b)
	ps.Put(c)
	ps.Drain()
}

// Pipes are made, destroyed and aged by many goroutines; what is held is always what is open.
func TestHeldPipesOnManyGoroutines(t *testing.T) {
	const workers, rounds = 8, 300
	testnet.CheckLeaks(t)
	h := newHeldPipes(t)
	ps := NewKeptPipes(sys.Linux{}, 4096, workers, h, nil)
	ps.Settle()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				runtime.GC()
			}
		}
	})
	var work sync.WaitGroup
	for i := range uint64(workers) {
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(i, 1))
			for range rounds {
				p := ps.Get()
				if p == nil {
					t.Error("refused, with pipes for everyone")
					return
				}
				h.mu.Lock()
				_, held := h.held[p.Key()]
				h.mu.Unlock()
				if !held {
					t.Errorf("pipe %v is lent and not held", p.Key())
				}
				if rnd.IntN(4) == 0 {
					ps.Destroy(p)
				} else {
					ps.Put(p)
				}
			}
		})
	}
	work.Wait()
	close(stop)
	wg.Wait()
	ps.Drain()
	if s := ps.Stats(); s.Open != 0 || s.Leased != 0 || len(h.held) != 0 || h.strays != 0 {
		t.Errorf("%+v, held %v, %d dropped that were not held", s, h.held, h.strays)
	}
}
