package relay

import (
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// noAllocs runs f often enough for what grows once to have grown, and then
// wants not one allocation in the whole process, the loops among it.
func noAllocs(t *testing.T, runs int, f func()) {
	t.Helper()
	if testnet.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	// All of the process is counted, also what the timers of pools allocate that tests before have left, such as those of processes that
	// died in the simulation: up to 1,500 at a time, for a second or two. Theirs end; what f allocates is in each measurement.
	n := testing.AllocsPerRun(runs, f)
	for tries := 0; n != 0 && tries < 20; tries++ {
		n = testing.AllocsPerRun(runs, f)
	}
	if n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

// plainEngine is an engine on the kernel itself.
func plainEngine(t *testing.T, cfg Config) *Engine {
	t.Helper()
	testnet.CheckLeaks(t)
	e, err := newEngine(cfg, sys.Linux{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// The steady state of a flow allocates nothing, whatever its sockets and its path.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
	}{{"pingpong", 64}, {"bulk", 1 << 20}} {
		for _, p := range pairs {
			t.Run("load="+c.name+"/a="+p[0]+"/b="+p[1], func(t *testing.T) {
				e := plainEngine(t, Config{Loops: 2})
				steadyState(t, e, p, c.size, PairConfig{})
			})
			t.Run("load="+c.name+"/kept/a="+p[0]+"/b="+p[1], func(t *testing.T) {
				e := plainEngine(t, Config{Loops: 2, Keep: &hold.Keep{After: -1, Holder: nobody{}}})
				steadyState(t, e, p, c.size, PairConfig{Name: "pair"})
			})
		}
	}
}

// nobody is a Holder that holds nothing.
type nobody struct{}

func (nobody) Hold([2]uint64, string, []int) error { return nil }
func (nobody) Drop([2]uint64)                      {}
func (nobody) Flush() error                        { return nil }

func steadyState(t *testing.T, e *Engine, p [2]string, size int, cfg PairConfig) {
	t.Helper()
	a, innerA := testnet.Pair(t, p[0])
	innerB, b := testnet.Pair(t, p[1])
	if err := e.Relay(innerA, innerB, cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Name != "" {
		testwait.Until(t, "the pair is kept", func() bool { return e.Stats().Total().Kept == 1 })
	}
	send, recv := make([]byte, size), make([]byte, size)
	go1, done := make(chan net.Conn), make(chan error)
	go func() {
		for c := range go1 {
			_, err := c.Write(send)
			done <- err
		}
	}()
	defer close(go1)
	pass := func(from, to net.Conn) {
		go1 <- from
		if _, err := io.ReadFull(to, recv); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	noAllocs(t, 100, func() {
		pass(a, b)
		pass(b, a)
	})
}

// To hand a pair over allocates nothing, from the call to the record. (Where a
// Unix peer has a path, its name in the record is the one allocation; here the
// inner ends were accepted from peers without.)
func TestRelayDoesNotAllocate(t *testing.T) {
	const runs, warm = 100, 200
	for _, p := range pairs {
		t.Run("a="+p[0]+"/b="+p[1], func(t *testing.T) {
			e := plainEngine(t, Config{Loops: 1})
			type pair struct{ a, innerA, innerB, b net.Conn }
			var made []pair
			for range warm + runs + 1 { // AllocsPerRun runs once to warm up
				a, innerA := testnet.Pair(t, p[0])
				b, innerB := testnet.Pair(t, p[1])
				made = append(made, pair{a, innerA, innerB, b})
			}
			ended := make(chan Cause, 1)
			opt := PairConfig{Done: func(r *Record) { ended <- r.Cause }}
			hand := func() {
				x := made[0]
				made = made[1:]
				if err := e.Relay(x.innerA, x.innerB, opt); err != nil {
					t.Fatal(err)
				}
				x.a.Close()
				x.b.Close()
				<-ended
			}
			for range warm {
				hand()
			}
			noAllocs(t, runs, hand)
		})
	}
}
