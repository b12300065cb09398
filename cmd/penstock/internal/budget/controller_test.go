package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/relay/overload"
)

// Actions begin in their order as the pressure rises, and end in the reverse one, each some way below
// where it began.
func TestThresholds(t *testing.T) {
	if !slices.IsSorted(thresholds[:]) || thresholds[Shrink] <= goShare {
		t.Fatal(thresholds)
	}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var now active
		for range 200 {
			p := 0.6 + rnd.Float64()/2
			was := now
			now = now.next(p)
			for a := range now {
				switch {
				case now[a] && p < thresholds[a]-hysteresis, !now[a] && p >= thresholds[a]:
					t.Fatalf("seed %d: %v at %v", seed, Action(a), p)
				case now[a] != was[a] && p < thresholds[a] && p >= thresholds[a]-hysteresis:
					t.Fatalf("seed %d: %v has changed at %v", seed, Action(a), p)
				case a > 0 && now[a] && !now[a-1]:
					t.Fatalf("seed %d: %v without the one before", seed, Action(a))
				}
			}
		}
	}
}

// engine is a relay of which nothing is real. Its flows are sizes; shed ends as many as asked for.
type engine struct {
	base             int64
	stalled, idle    []int64
	garbage          int64 // until it is collected
	log              []string
	gates            overload.State
	kernel           int64
	write            func(use int64)
	trims, sheddings int
}

func (e *engine) use() (n int64) {
	for _, x := range append(slices.Clone(e.stalled), e.idle...) {
		n += x
	}
	return n + e.base + e.garbage
}

func (e *engine) Set(o overload.State) {
	was := e.gates
	e.gates = o
	if was.HoldMost = o.HoldMost; o == was {
		return
	}
	e.log = append(e.log, fmt.Sprintf("less=%v datagrams=%v streams=%v", o.HoldLess, !o.NoDatagramFlows, !o.NoStreams))
}

func (e *engine) Shed(s overload.Shedding) (out overload.Shed) {
	e.sheddings++
	from, kind := &e.stalled, "stalled"
	if s.Idle {
		from, kind = &e.idle, "idle"
	}
	if s.Quiet <= 0 || s.Bytes <= 0 {
		e.log = append(e.log, "bad request")
	}
	for len(*from) > 0 && out.Bytes < s.Bytes {
		n := (*from)[0]
		*from = (*from)[1:]
		out.Bytes += n
		out.Flows++
		e.garbage += n
	}
	if out.Flows > 0 {
		e.log = append(e.log, "end "+kind)
	}
	e.write(e.use())
	return out
}

func (e *engine) Trim() { e.trims++ }

func (e *engine) MemoryUse() overload.MemoryUse { return overload.MemoryUse{Sockets: e.kernel} }

// rig is a controller in a control group with a limit of 100 MiB; ownMemory takes 8 of it.
type rig struct {
	*Controller
	*engine
	now time.Time
}

func newRig(t *testing.T) *rig {
	root := tree(t, unified)
	put(t, root, "cg/a/memory.stat", "anon 0\n")
	e := &engine{}
	e.write = func(use int64) { put(t, root, "cg/a/memory.current", fmt.Sprintln(use)) }
	c := newController(Config{Engine: e, Meter: Open(root, true, 0), KeepGoLimit: true})
	c.free = func() {
		e.garbage = 0
		e.write(e.use())
	}
	t.Cleanup(c.Meter.Close)
	return &rig{c, e, time.Now()}
}

// at sets what else is used, in MiB, and makes the controller look, after all pauses are over.
func (r *rig) at(base int64) float64 {
	r.base = base << 20
	r.write(r.use())
	r.now = r.now.Add(time.Hour)
	return r.tick(r.now)
}

func (r *rig) took() string {
	s := strings.Join(r.log, "; ")
	r.log = nil
	return s
}

// The order of the actions, as documented, and recovery.
func TestController(t *testing.T) {
	r := newRig(t)
	r.idle = append(r.idle, 1)
	for _, c := range []struct {
		base int64
		want string
	}{
		{20, ""},
		{66, ""},
		{68, "less=true datagrams=true streams=true"},
		{73, "less=true datagrams=false streams=true"},
		{78, "less=true datagrams=false streams=false"},
		{79, ""},
		{75, ""},
		{71, "less=true datagrams=false streams=true"},
		{66, "less=true datagrams=true streams=true"},
		{61, "less=false datagrams=true streams=true"},
	} {
		r.at(c.base)
		if got := r.took(); got != c.want {
			t.Errorf("at %d MiB: %q, want %q", c.base, got, c.want)
		}
	}
	if len(r.idle) != 1 {
		t.Error("an idle flow has ended")
	}
}

// Stalled flows end first, as many as needed; then idle ones.
func TestControllerSheds(t *testing.T) {
	r := newRig(t)
	for range 20 {
		r.stalled = append(r.stalled, 1<<20)
		r.idle = append(r.idle, 1<<20)
	}
	r.at(45) // 93 with the flows and the program
	if got := r.took(); got != "less=true datagrams=false streams=false; end stalled" {
		t.Error(got)
	}
	// Down to 80, which is the threshold less the hysteresis and the overshoot.
	if n := 20 - len(r.stalled); n != 13 || len(r.idle) != 20 {
		t.Errorf("%d stalled flows have ended and %d idle ones, want 13 and 0", n, 20-len(r.idle))
	}
	r.at(75)
	if got := r.took(); got != "end stalled" || len(r.idle) != 20 {
		t.Error(got, len(r.idle))
	}
	r.at(75)
	if got := r.took(); got != "end idle" {
		t.Error(got)
	}
	if len(r.stalled) != 0 || len(r.idle) == 0 {
		t.Errorf("%d stalled flows and %d idle ones are left", len(r.stalled), len(r.idle))
	}
	if n := r.Counts[EndStalled].Load(); n != 20 {
		t.Errorf("%d stalled flows are counted", n)
	}
	if s := r.State(); s.Limit != 100<<20 || !s.Active[EndStalled] {
		t.Errorf("%+v", s)
	}
	r.stalled, r.idle = nil, nil
	r.at(10)
	if s := r.State(); s.Active != [NumActions]bool{} {
		t.Errorf("%+v", s)
	}
}

// Stalled flows keep new streams out for a moment only, and idle ones do not end for these.
func TestControllerOpensAgain(t *testing.T) {
	r := newRig(t)
	for range 20 {
		r.stalled = append(r.stalled, 1<<20+4096)
		r.idle = append(r.idle, 1<<20)
	}
	r.at(39) // 87
	r.now = r.now.Add(shutMost - 1)
	r.tick(r.now)
	if got := r.took(); got != "less=true datagrams=false streams=false" {
		t.Error(got)
	}
	r.now = r.now.Add(1)
	p := r.tick(r.now)
	if got := r.took(); got != "end stalled; less=true datagrams=true streams=true" || p >= thresholds[NoStreams]-hysteresis {
		t.Errorf("%s, pressure %v", got, p)
	}
	if s := r.State(); s.Active[EndStalled] || len(r.stalled) != 7 || len(r.idle) != 20 {
		t.Errorf("%+v, %d stalled flows and %d idle ones are left", s, len(r.stalled), len(r.idle))
	}
	r.at(52) // again, but it is not shut any more
	if got := r.took(); got != "less=true datagrams=false streams=false" {
		t.Error(got)
	}
	r.stalled = nil
	r.at(59)
	if got := r.took(); got != "" || len(r.idle) != 20 {
		t.Error(got, len(r.idle))
	}
}

// Garbage is collected before anything is done that costs flows.
func TestControllerCollectsFirst(t *testing.T) {
	r := newRig(t)
	r.stalled = append(r.stalled, 1<<20)
	r.garbage = 70 << 20
	if p := r.at(20); p > 0.3 {
		t.Errorf("the pressure is %v", p)
	}
	if got := r.took(); got != "" || len(r.stalled) != 1 {
		t.Error(got)
	}
}

// A controller that finds no flow to end pauses before it tries again.
func TestControllerInVain(t *testing.T) {
	r := newRig(t)
	r.at(99)
	n := r.sheddings
	if n != 2 {
		t.Errorf("%d rounds, want 2", n)
	}
	for range 10 {
		r.tick(time.Now())
	}
	trims := r.trims
	if r.sheddings > n+2 || trims > 3 {
		t.Errorf("%d rounds, trimmed %d times", r.sheddings, trims)
	}
}

// The controller starts above its limit, and ends.
func TestControllerRuns(t *testing.T) {
	root := tree(t, unified)
	put(t, root, "cg/a/memory.current", "209715200\n")
	began := make(chan Action, 100)
	limits := make(chan int64, 10)
	e := &engine{write: func(int64) {}}
	c := Start(Config{Engine: e, Meter: Open(root, true, 0), KeepGoLimit: true,
		Changed: func(a Action, active bool, _ Reading) { began <- a }, Limited: func(n int64) { limits <- n }})
	for a := range Action(NumActions) {
		if got := <-began; got != a {
			t.Errorf("%v began, want %v", got, a)
		}
	}
	if n := <-limits; n != 100<<20 {
		t.Errorf("the limit is %d", n)
	}
	put(t, root, "cg/a/memory.max", "max\n") // no limit any more
	for a := range Action(NumActions) {
		if got := <-began; got != a {
			t.Errorf("%v ended, want %v", got, a)
		}
	}
	c.Close()
	if e.gates != (overload.State{}) {
		t.Errorf("%+v", e.gates)
	}
	(*Controller)(nil).Close()
}
