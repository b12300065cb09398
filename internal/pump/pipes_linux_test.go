package pump

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
)

// budget returns a budget of pipes, and checks at the end of the test that all pipes were returned.
func budget(t *testing.T, size, max int) (*Pipes, *testkernel.Kernel) {
	testnet.CheckLeaks(t)
	k := testkernel.New()
	ps := NewPipes(k, size, max)
	t.Cleanup(func() {
		if s := ps.Stats(); s.Leased != 0 {
			t.Errorf("still on lease: %+v", s)
		}
		ps.Drain()
		if s := ps.Stats(); s.Open != 0 || k.OpenPipes() != 0 {
			t.Errorf("still open: %+v, %d by the kernel", s, k.OpenPipes())
		}
		for _, wrong := range k.Wrong() {
			t.Error(wrong)
		}
	})
	return ps, k
}

// A refused lease makes no system call, stops nobody and allocates nothing.
func TestRefusedLease(t *testing.T) {
	ps, k := budget(t, 0, 3)
	var held []*Pipe
	for p := ps.Get(); p != nil; p = ps.Get() {
		held = append(held, p)
	}
	if len(held) != 3 {
		t.Fatalf("%d pipes of 3", len(held))
	}
	const tries = 1000
	calls, stops := k.Counts(), stopsOfTheWorld()
	allocs := testing.AllocsPerRun(tries, func() {
		if ps.Get() != nil {
			t.Error("a fourth pipe")
		}
	})
	if n := stopsOfTheWorld() - stops; n > tries/10 {
		t.Errorf("%d refusals stopped the world %d times", tries, n)
	}
	if after := k.Counts(); after != calls || allocs != 0 {
		t.Errorf("%v allocations a refusal; calls before%s, after%s", allocs, calls, after)
	}
	if s := ps.Stats(); s.Refused < tries || s.Open != 3 || s.Leased != 3 {
		t.Errorf("%+v", s)
	}
	for _, p := range held {
		ps.Put(p)
	}
}

// stopsOfTheWorld returns how often the world was stopped since the start, by collections or
// otherwise.
func stopsOfTheWorld() (n uint64) {
	s := []metrics.Sample{{Name: "/sched/pauses/total/other:seconds"}, {Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	for i := range s {
		for _, c := range s[i].Value.Float64Histogram().Counts {
			n += c
		}
	}
	return n
}

// A pipe that was put back on one CPU can be leased on any other: as long as fewer than the maximum
// are leased, nobody is refused and none is created.
func TestIdlePipeIsForEveryone(t *testing.T) {
	const workers, rounds = 8, 2000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	ps, k := budget(t, 0, workers)
	var wg sync.WaitGroup
	var owner [workers + 1]atomic.Int32 // by slot: the worker that has it
	for id := range int32(workers) {
		wg.Go(func() {
			for range rounds {
				p := ps.Get()
				if p == nil {
					t.Error("refused, with pipes for everyone")
					return
				}
				if !owner[p.at].CompareAndSwap(0, id+1) {
					t.Error("a pipe was lent to two at once")
				}
				runtime.Gosched()
				owner[p.at].Store(0)
				ps.Put(p)
			}
		})
	}
	wg.Wait()
	if n := k.Count(testkernel.Pipe); n > workers {
		t.Errorf("%d pipes were made for %d workers", n, workers)
	}
}

// A slot that was taken and put back changes the head: a pop that was in progress meanwhile, and
// has an old next, must not succeed.
func TestStackNoticesChange(t *testing.T) {
	ps, _ := budget(t, 0, 2)
	before := ps.vacant.head.Load()
	a := ps.vacant.pop(ps.slots)
	b := ps.vacant.pop(ps.slots)
	ps.vacant.push(b)
	ps.vacant.push(a)
	if after := ps.vacant.head.Load(); uint32(after) != uint32(before) || after == before {
		t.Errorf("head %x, then %x", before, after)
	}
}

// The smallest useful pipe is minPipe, or the requested size if that is less.
func TestPipeTooSmall(t *testing.T) {
	for _, c := range []struct {
		size, granted int
		useful        bool
	}{
		{0, minPipe / 2, false},
		{0, minPipe, true},
		{16 << 10, 16 << 10, true},
		{16 << 10, 8 << 10, false},
	} {
		ps, k := budget(t, c.size, 1)
		k.Short(testkernel.Pipe, c.granted, 1)
		p := ps.Get()
		if (p != nil) != c.useful {
			t.Errorf("size %d, granted %d: lent %v", c.size, c.granted, p != nil)
		}
		if p != nil {
			ps.Put(p)
		}
	}
}

// A collection closes pipes that were not in use since the one before.
func TestIdlePipesAge(t *testing.T) {
	ps, _ := budget(t, 0, 8)
	var held []*Pipe
	for range 8 {
		held = append(held, ps.Get())
	}
	for _, p := range held {
		ps.Put(p)
	}
	testwait.Until(t, "idle pipes are closed", func() bool {
		p := ps.Get() // one stays in use
		if p == nil {
			t.Fatal("refused")
		}
		ps.Put(p)
		runtime.GC()
		return ps.Stats().Open == 1
	})
}

// slowClose is a kernel whose Close of a descriptor waits once, after the descriptor was closed.
type slowClose struct {
	*testkernel.Kernel
	once        sync.Once
	closed, end chan struct{}
}

func (k *slowClose) Close(fd int) sys.Errno {
	e := k.Kernel.Close(fd)
	k.once.Do(func() { close(k.closed); <-k.end })
	return e
}

// Drain leaves no pipe that a collection was about to close.
func TestDrainWhilePipesAge(t *testing.T) {
	testnet.CheckLeaks(t)
	k := &slowClose{Kernel: testkernel.New(), closed: make(chan struct{}), end: make(chan struct{})}
	ps := NewPipes(k, 0, 1)
	ps.Put(ps.Get())
	ps.age() // the pipe was in use since the collection before
	go ps.age()
	<-k.closed
	drained := make(chan struct{})
	go func() {
		ps.Drain()
		close(drained)
	}()
	for range 100 { // Drain has time to return too early
		runtime.Gosched()
	}
	select {
	case <-drained:
		t.Error("Drain has returned while a pipe is being closed")
	default:
	}
	close(k.end)
	<-drained
	if s := ps.Stats(); s.Open != 0 || k.OpenPipes() != 0 {
		t.Errorf("still open: %+v, %d by the kernel", s, k.OpenPipes())
	}
}

// A budget without references closes its pipes and is collected.
func TestPipesCollected(t *testing.T) {
	testnet.CheckLeaks(t)
	gone := make(chan struct{})
	func() {
		ps := NewPipes(sys.Linux{}, 0, 2)
		ps.Put(ps.Get())
		runtime.AddCleanup(ps, func(int) { close(gone) }, 0)
	}()
	testwait.Until(t, "it is collected, and its watch does not keep it alive", func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}
