package relay

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// A full descriptor table rests the listeners: clients wait. That nothing spins is shown by TestSimulateRest.
func TestAcceptWithoutDescriptors(t *testing.T) {
	for _, e := range []sys.Errno{sys.EMFILE, sys.ENFILE, sys.ENOBUFS, sys.ENOMEM} {
		for _, network := range []string{"tcp4", "unix"} {
			if network == "unix" && e != sys.EMFILE {
				continue
			}
			t.Run(fmt.Sprintf("%s/net=%s", errnoName(e), network), func(t *testing.T) {
				r := newRig(t, Config{Loops: 1})
				l := r.listen(network, ListenConfig{}, &Addr{Network: Echo})
				before := dial(t, l)
				say(t, before, before, "hello")
				r.k.Fail(testkernel.Accept, e, -1)
				c := dial(t, l)
				testwait.Until(t, "the listener rests", func() bool {
					s := r.e.Stats()
					sum := s.Total()
					return sum.AcceptPauses > 0 && sum.AcceptErrors > 0
				})
				say(t, before, before, "flows go on")
				r.k.Heal()
				say(t, c, c, "at last")
				before.Close()
				c.Close()
				r.expect(CauseEnd)
				r.expect(CauseEnd)
			})
		}
	}
}

func errnoName(e sys.Errno) string { return fmt.Sprintf("errno=%d", int(e)) }

// The end of a flow frees a descriptor: listeners that rest for want of one are
// woken at once, on whichever loop that was, and by nothing else here.
func TestEndWakesListeners(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		for _, loops := range []int{1, 2} {
			t.Run(fmt.Sprintf("net=%s/loops=%d", network, loops), func(t *testing.T) {
				r := newRig(t, Config{Loops: loops})
				r.e.streams.paused.most = time.Hour
				l := r.listen(network, ListenConfig{}, &Addr{Network: Echo})
				x, y := r.adopted("tcp4", "unix", PairConfig{}) // on the last loop
				say(t, x, y, "hello")
				r.k.Fail(testkernel.Accept, sys.EMFILE, loops)
				// Every loop rests, and one client waits at least.
				var clients []net.Conn
				testwait.Until(t, "all loops rest", func() bool {
					clients = append(clients, dial(t, l))
					return r.e.streams.paused.loops.Load() == int32(loops)
				})
				x.Close()
				y.Close()
				r.expect(CauseEnd)
				for _, c := range clients {
					say(t, c, c, "hello")
					c.Close()
					r.expect(CauseEnd)
				}
			})
		}
	}
}

// A connection that failed before it was accepted is passed over; a listener
// that answers with nothing but errors can be closed. TestSimulateRest shows that it does not spin.
func TestAcceptErrors(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	r.k.Fail(testkernel.Accept, sys.ECONNABORTED, 3)
	r.k.Fail(testkernel.Accept, sys.EINTR, 2)
	c := dial(t, l)
	say(t, c, c, "hello")
	c.Close()
	r.expect(CauseEnd)
	s := r.e.Stats()
	if sum := s.Total(); sum.AcceptErrors < 3 || sum.AcceptPauses != 0 {
		t.Errorf("%d errors, %d pauses", sum.AcceptErrors, sum.AcceptPauses)
	}
	r.k.Fail(testkernel.Accept, sys.EINVAL, -1) // as after a shutdown(2) of the listener
	before := r.k.Count(testkernel.Accept)
	d := dial(t, l)
	defer d.Close()
	testwait.Until(t, "it fails", func() bool { return r.k.Count(testkernel.Accept) > before })
	closed := make(chan error)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("a broken listener cannot be closed")
		r.k.Heal()
		<-closed
	}
}

// limitEnv makes the test binary a child with a low limit of descriptors.
const limitEnv = "PENSTOCK_RELAY_LIMIT"

// The same with a table that is really full, in a process of its own.
func TestRealDescriptorLimit(t *testing.T) {
	if os.Getenv(limitEnv) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", `ulimit -n 128 && exec "$0" -test.run='^TestRealDescriptorLimit$' -test.v`, exe)
		cmd.Env = append(os.Environ(), limitEnv+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("the child: %v\n%s", err, out)
		}
		return
	}
	r := newRig(t, Config{Loops: 1})
	up := newServer(t, "unix")
	echo := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	var fill func()
	var full atomic.Bool // the next flow's hook takes what is left
	far := r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(_ *Flow, attempt int) *Addr {
		if attempt > 0 {
			return nil
		}
		if full.Swap(false) {
			fill()
		}
		return up.addr
	}}})
	path := socketPath(t)
	warm := dial(t, far) // so that nothing below needs a descriptor for the first time
	end := up.accept(t)
	say(t, warm, end, "hello")
	warm.Close()
	end.Close() // now, and not when the table is full
	r.expect(CauseEnd)
	first := dial(t, echo)
	say(t, first, first, "hello")

	var filler []*os.File
	fill = func() {
		for {
			f, err := os.Open("/dev/null")
			if err != nil {
				return
			}
			filler = append(filler, f)
		}
	}
	free := func(n int) {
		for range n {
			filler[len(filler)-1].Close()
			filler = filler[:len(filler)-1]
		}
	}
	defer func() { free(len(filler)) }()

	fill()
	free(1)            // for the client's own end
	c := dial(t, echo) // which waits, as what is left is for the rest of the program
	began := time.Now()
	// The kernel may be the first to say that there is none, as long as the budget has not measured again.
	var s stats.Engine
	if !testwait.For(func() bool { s = r.e.Stats(); return s.Total().AcceptPauses > 1 && s.Descriptors.Waits > 0 }) {
		t.Fatalf("%d pauses, %+v", s.Total().AcceptPauses, s.Descriptors)
	}
	if n, took := s.Total().AcceptPauses, time.Since(began); n > int64(20+took/(10*time.Millisecond)) {
		t.Errorf("%d pauses in %v", n, took)
	}
	const inherited = 4 // descriptors above the limit count as open, and take no room
	free(int(s.Descriptors.Reserved) + flowDescriptors + inherited)
	say(t, c, c, "at last")

	free(len(filler) - flowDescriptors)
	full.Store(true) // when a client is accepted, the rest of the program takes all: none is left for the upstream
	wantTurnedAway(t, far)
	if rec := r.expect(CauseNoDescriptors); rec.Err != sys.EMFILE {
		t.Errorf("%+v", rec)
	}

	// Bulk without descriptors for a pipe is copied.
	fill()
	if rep := testnet.Play(c, testnet.Script{Send: 8 << 20, SendChunk: 1 << 20, Recv: 8 << 20}); rep.Err != "" {
		t.Error(rep.Err)
	}
	rec := r.expect(CauseEnd)
	if rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhyPipes {
		t.Logf("spliced, with a pipe from before: %+v", rec.Up)
	}
	first.Close()
	r.expect(CauseEnd)

	// Nothing is left behind by what could not be made.
	x, y := testnet.Pair(t, "unix")
	for n := range 4 {
		fill()
		free(n)
		if e, err := New(Config{Loops: 3}); !errors.Is(err, sys.EMFILE) {
			t.Errorf("an engine with %d descriptors: %v", n, err)
			if err == nil {
				e.Close()
			}
		}
		if n < 2 {
			if err := r.e.Relay(x, y, PairConfig{Done: r.done}); !errors.Is(err, sys.EMFILE) {
				t.Fatalf("Relay with %d descriptors: %v", n, err)
			}
			say(t, x, y, "still mine")
		}
	}
	fill()
	for _, network := range []string{"tcp4", "unix"} {
		at := Addr{Network: TCP, AddrPort: loopback}
		if network == "unix" {
			at = Addr{Network: Unix, Path: path}
		}
		if _, err := r.e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return nil }}}); !errors.Is(err, sys.EMFILE) {
			t.Errorf("a listener on %s without descriptors: %v", network, err)
		}
	}
}

// What is neither an end nor a reset has causes of its own, and the error in
// the record.
func TestOtherFailures(t *testing.T) {
	for _, c := range []struct {
		call  testkernel.Call
		cause Cause
	}{{testkernel.Recv, CauseClientFailed}, {testkernel.Send, CauseUpstreamFailed}} {
		t.Run(c.call.String(), func(t *testing.T) {
			eachPair(t, Config{}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
				say(t, a, b, "hello")
				say(t, b, a, "hello")
				r.e.Stats() // a Unix source is read once more, to find nothing
				r.e.Stats()
				r.k.StopClock()
				r.k.Fail(c.call, syscall.ETIMEDOUT, 1)
				calls := r.k.Count(c.call)
				a.Write([]byte("lost"))
				testwait.Until(t, "the failure", func() bool { return r.k.Count(c.call) > calls })
				if c.call == testkernel.Send {
					// What B had sent is delivered first.
					io.WriteString(b, "last words")
					b.Close()
					hear(t, a, "last words")
				}
				wantReset(t, a)
				rec := r.expect(c.cause)
				if rec.Err != syscall.ETIMEDOUT {
					t.Errorf("error %v", rec.Err)
				}
				if c.call == testkernel.Send && rec.Up.BytesDropped() != 4 {
					t.Errorf("%d bytes dropped", rec.Up.BytesDropped())
				}
			})
		})
	}
}

// Whatever the kernel interrupts or cuts short, every flow carries its bytes,
// once each and in order. The seed is printed.
func TestFaultyKernel(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := newRig(t, Config{})
		rnd := rand.New(rand.NewPCG(seed, 2))
		// EAGAIN is not among them: with it the kernel promises an event.
		r.k.Random(seed, 2+rnd.IntN(10), map[testkernel.Call][]sys.Errno{
			testkernel.Recv: {sys.EINTR}, testkernel.Send: {sys.EINTR}, testkernel.SpliceIn: {sys.EINTR}, testkernel.SpliceOut: {sys.EINTR},
			testkernel.Pipe: {sys.EMFILE, sys.ENFILE}, testkernel.RcvLowat: {sys.EINVAL}, testkernel.Accept: {sys.EINTR, sys.ECONNABORTED, sys.EMFILE},
		}, testkernel.Send, testkernel.SpliceIn, testkernel.SpliceOut, testkernel.Pipe)
		var wg sync.WaitGroup
		const flows = 12
		for i := range flows {
			p := pairs[rnd.IntN(4)]
			s := newServer(t, p[1])
			a := dial(t, r.listen(p[0], ListenConfig{}, s.addr))
			b := s.accept(t)
			up, down := int64(rnd.IntN(1<<rnd.IntN(22))), int64(rnd.IntN(1<<rnd.IntN(22)))
			chunk := 1 + rnd.IntN(1<<rnd.IntN(20))
			both := func(who string, c net.Conn, s testnet.Script) {
				if rep := testnet.Play(c, s); rep.Err != "" {
					t.Errorf("flow %d, %s: %+v", i, who, rep)
				}
			}
			if up/int64(chunk) > 20_000 || down/int64(chunk) > 20_000 {
				chunk = 5000
			}
			one, two := uint64(2*i), uint64(2*i+1)
			wg.Go(func() {
				both("client", a, testnet.Script{Send: up, SendSeed: one, SendChunk: chunk, Recv: down, RecvSeed: two})
			})
			wg.Go(func() {
				both("upstream", b, testnet.Script{Send: down, SendSeed: two, SendChunk: chunk, Recv: up, RecvSeed: one})
			})
		}
		wg.Wait()
		for range flows {
			r.expect(CauseEnd)
		}
		r.k.Heal()
		r.e.Close()
	}
}
