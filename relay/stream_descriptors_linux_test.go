package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

// A flow that finds no descriptor for its upstream has the next one that becomes
// free, before a client that comes later. TestSimulateRest shows that nothing is tried in between.
func TestFlowWaitsForDescriptor(t *testing.T) {
	for _, loops := range []int{1, 2} {
		t.Run(fmt.Sprint("loops=", loops), func(t *testing.T) {
			r := newRig(t, Config{Loops: loops})
			r.e.streams.paused.most = time.Hour
			far := r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4"))
			near := r.listen("unix", ListenConfig{}, &Addr{Network: Echo}) // all loops accept from it
			x, y := r.adopted("tcp4", "unix", PairConfig{})
			say(t, x, y, "hello")
			r.k.Fail(testkernel.Socket, sys.EMFILE, -1)
			first := dial(t, far)
			testwait.Until(t, "it waits", func() bool { return r.e.streams.short.flows.Load() == 1 })
			second := dial(t, near)
			r.k.Heal()
			x.Close()
			y.Close()
			r.expect(CauseEnd)
			for _, c := range []net.Conn{first, second} {
				say(t, c, c, "at last")
				c.Close()
				if rec := r.expect(CauseEnd); rec.Attempts != 1 || rec.Err != nil {
					t.Errorf("%+v", rec)
				}
			}
		})
	}
}

// A flow that waits for a descriptor ends as others do, and then the listeners
// accept again.
func TestFlowEndsWhileItWaitsForDescriptor(t *testing.T) {
	for _, how := range []string{"reset", "hung up", "killed", "closed"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, Config{Loops: 2})
			r.e.streams.paused.most = time.Hour
			network := "tcp4"
			if how == "hung up" {
				network = "unix" // where no error says so
			}
			far := r.listen(network, ListenConfig{}, echoServer(t, "tcp4"))
			near := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
			r.k.Fail(testkernel.Socket, sys.EMFILE, -1)
			c := dial(t, far)
			testwait.Until(t, "it waits", func() bool { return r.e.streams.short.flows.Load() == 1 })
			switch how {
			case "reset", "hung up":
				reset(t, c)
				r.expect(CauseClientGone)
			case "killed":
				r.e.endFlows(CauseRemoved)
				r.expect(CauseRemoved)
			case "closed":
				r.e.Close()
				r.expect(CauseClosed)
				return
			}
			next := dial(t, near)
			say(t, next, next, "hello")
			next.Close()
			r.expect(CauseEnd)
		})
	}
}

// A descriptor that a timer makes free is used at once, too: nothing else may happen.
func TestTimerFreesDescriptor(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.e.streams.paused.most = time.Hour
	far := r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4"))
	x, y := r.adopted("tcp4", "unix", PairConfig{Timeouts: Timeouts{Idle: time.Hour}})
	say(t, x, y, "hello")
	r.k.Fail(testkernel.Socket, sys.EMFILE, -1)
	c := dial(t, far)
	testwait.Until(t, "it waits", func() bool { return r.e.streams.short.flows.Load() == 1 })
	r.k.Heal()
	r.e.onLoops(func(f *Flow) {
		if f.Listener() == nil {
			f.SetTimeouts(Timeouts{Idle: time.Since(r.e.start) - f.active + 4*tick})
		}
	})
	r.expect(CauseIdle)
	testwait.Until(t, "it does not wait any more", func() bool { return r.e.streams.short.flows.Load() == 0 }) // which wakes no loop
	say(t, c, c, "at last")
	c.Close()
	r.expect(CauseEnd)
}

// While clients wait for descriptors, each flow that ends makes room for the next one, and the loop rests no second
// time for it. With several loops and room for one flow, all are served.
func TestClientsAreAcceptedSingly(t *testing.T) {
	const clients = 100
	for _, loops := range []int{1, 2} {
		t.Run(fmt.Sprint("loops=", loops), func(t *testing.T) {
			r := newRig(t, Config{Loops: loops})
			l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
			r.tighten(flowDescriptors)
			// A client that waits has its answer when another one leaves.
			var cs []net.Conn
			for range clients {
				cs = append(cs, dial(t, l))
			}
			answers := make(chan int, clients)
			var wg sync.WaitGroup
			for i, c := range cs {
				wg.Go(func() {
					if err := said(c, c, fmt.Sprint("client ", i)); err != nil {
						t.Errorf("client %d: %v", i, err)
					}
					answers <- i
				})
			}
			for range clients {
				cs[<-answers].Close()
				r.expect(CauseEnd)
			}
			wg.Wait()
			if n := r.e.Stats().Total().AcceptPauses; n > int64(2*loops) {
				t.Errorf("%d pauses", n)
			}
		})
	}
}

// With a table that is really full, and clients that come faster than others leave,
// each is served, and each byte is its own.
func TestFloodWithoutDescriptors(t *testing.T) {
	const clients, env = 300, limitEnv + "_FLOOD"
	if to := os.Getenv(env); to != "" {
		floodChild(to)
		return
	}
	up := echoServer(t, "unix")
	for _, loops := range []int{1, 3} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", `ulimit -n 64 && exec "$0" -test.run='^TestFloodWithoutDescriptors$' -test.v`, exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", env, loops, up.Path))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var at string
		for lines := bufio.NewScanner(out); at == "" && lines.Scan(); {
			if after, ok := strings.CutPrefix(lines.Text(), "at="); ok {
				at = after
			}
		}
		if at == "" {
			t.Fatal("the child does not say where it listens")
		}
		var wg sync.WaitGroup
		turns := make(chan int, clients)
		for i := range clients {
			turns <- i
		}
		close(turns)
		for range 100 {
			wg.Go(func() {
				for i := range turns {
					c, err := net.Dial("tcp", at)
					if err != nil {
						t.Error(err)
						continue
					}
					c.SetDeadline(time.Now().Add(patience))
					text := fmt.Sprint("client ", i)
					if err := said(c, c, text); err != nil {
						t.Errorf("loops=%d: %s: %v", loops, text, err)
					}
					c.Close()
				}
			})
		}
		wg.Wait()
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	}
}

// floodChild relays until its standard input ends.
func floodChild(to string) {
	var loops int
	var path string
	fmt.Sscan(to, &loops, &path)
	e, err := New(Config{Loops: loops})
	if err != nil {
		panic(err)
	}
	up := &Addr{Network: Unix, Path: path}
	l, err := e.Listen(Addr{Network: TCP, AddrPort: loopback}, ListenConfig{Hooks: Hooks{Upstream: func(_ *Flow, attempt int) *Addr {
		if attempt > 0 {
			return nil
		}
		return up
	}}})
	if err != nil {
		panic(err)
	}
	fmt.Printf("\nat=%v\n", l.Addr().AddrPort)
	os.Stdin.Read(make([]byte, 1))
	e.Close()
}

// A flow that waits for a descriptor is tried again, or ends, also where the loop rested before for want of descriptors
// in the budget.
func TestFlowWaitsForDescriptorWhileLoopRests(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	p := &preamble{max: 100, timeout: time.Hour}
	l := r.listen("tcp4", ListenConfig{Hooks: p.hooks()}, echoServer(t, "tcp4"))
	first := dial(t, l)
	testwait.Until(t, "it is sniffed", func() bool { return r.e.Stats().Total().Accepted == 1 })
	r.tighten(0)
	second := dial(t, l)
	testwait.Until(t, "the loop rests", func() bool { return r.e.Stats().Descriptors.LoopsPaused == 1 })
	r.k.Fail(testkernel.Socket, sys.EMFILE, -1)
	io.WriteString(first, "a line\n"+greeting)
	testwait.Until(t, "it is tried again", func() bool { return r.k.Count(testkernel.Socket) > 1 })
	r.k.Heal()
	hear(t, first, greeting)
	first.Close()
	r.expect(CauseEnd)
	io.WriteString(second, "a line\n"+greeting)
	hear(t, second, greeting)
	second.Close()
	r.expect(CauseEnd)
}
