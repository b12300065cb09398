package relay

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// limitedEnv makes the test binary a child with a low limit of descriptors, which relays.
const limitedEnv = "PENSTOCK_RELAY_LIMITED"

// limitedChild is such a child.
type limitedChild struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startLimited runs the test again in a process that may have so many descriptors.
func startLimited(t *testing.T, limit int, args string) *limitedChild {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &limitedChild{t: t, cmd: exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" -test.run='^%s$' -test.v`, limit, t.Name()), exe)}
	c.cmd.Env = append(os.Environ(), limitedEnv+"="+args)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	t.Cleanup(func() {
		c.in.Close()
		c.cmd.Wait()
	})
	return c
}

// line returns the rest of the next line that begins with key and "=".
func (c *limitedChild) line(key string) string {
	c.t.Helper()
	var said []string
	for c.out.Scan() {
		said = append(said, c.out.Text())
		if v, ok := strings.CutPrefix(c.out.Text(), key+"="); ok {
			return v
		}
	}
	c.t.Fatalf("the child ended without %s: %s", key, strings.Join(said, "\n"))
	return ""
}

// With more clients than there are descriptors for, each is served once it is accepted, and
// flows of datagrams keep theirs.
func TestDescriptorsAreShared(t *testing.T) {
	if args := os.Getenv(limitedEnv); args != "" {
		relayLimited(args)
		return
	}
	const clients, rounds, steady = 80, 4, 8
	stream := echoServer(t, "unix")
	datagrams := packetSocket(t, "udp4")
	go echoDatagrams(datagrams)
	for _, loops := range []int{1, 2} {
		c := startLimited(t, 96, fmt.Sprintf("%d %s %s", loops, stream.Path, datagrams.LocalAddr()))
		tcp, udp := c.line("tcp"), c.line("udp")
		var wg, open sync.WaitGroup
		open.Add(steady)
		var over atomic.Bool
		for i := range steady {
			wg.Go(func() {
				conn, err := net.Dial("udp", udp)
				if err != nil {
					t.Error(err)
					open.Done()
					return
				}
				defer conn.Close()
				text := fmt.Sprint("flow ", i)
				b := make([]byte, 64)
				for n := 0; n == 0 || !over.Load(); n++ {
					answered := false
					for until := time.Now().Add(patience); !answered && time.Now().Before(until); {
						conn.Write([]byte(text))
						conn.SetReadDeadline(time.Now().Add(time.Second)) // loopback loses some under load
						k, err := conn.Read(b)
						answered = err == nil && string(b[:k]) == text
					}
					if n == 0 {
						open.Done()
					}
					if !answered {
						t.Errorf("loops=%d: %s has no answer", loops, text)
						return
					}
				}
			})
		}
		open.Wait()
		var streams sync.WaitGroup
		for i := range clients {
			streams.Go(func() {
				for n := range rounds {
					conn, err := net.Dial("tcp", tcp)
					if err != nil {
						t.Error(err)
						return
					}
					conn.SetDeadline(time.Now().Add(patience))
					text := fmt.Sprint("client ", i, " ", n)
					if err := said(conn, conn, text); err != nil {
						t.Errorf("loops=%d: %s: %v", loops, text, err)
					}
					conn.Close()
				}
			})
		}
		streams.Wait()
		over.Store(true)
		wg.Wait()
		c.in.Close()
		if got, want := c.line("result"), fmt.Sprint("no-descriptors 0, evicted 0, no-room 0, steady ", steady, ", waited true"); got != want {
			t.Errorf("loops=%d: %s; want %s", loops, got, want)
		}
	}
}

// relayLimited relays until its standard input ends.
func relayLimited(args string) {
	var loops int
	var stream, datagrams string
	fmt.Sscan(args, &loops, &stream, &datagrams)
	e, err := New(Config{Loops: loops})
	if err != nil {
		panic(err)
	}
	to, err := ParseAddr("udp://" + datagrams)
	if err != nil {
		panic(err)
	}
	for i, up := range []*Addr{{Network: Unix, Path: stream}, &to} {
		name, at := "tcp", Addr{Network: TCP, AddrPort: loopback}
		if i > 0 {
			name, at.Network = "udp", UDP
		}
		l, err := e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(_ *Flow, attempt int) *Addr {
			if attempt > 0 {
				return nil
			}
			return up
		}}})
		if err != nil {
			panic(err)
		}
		fmt.Printf("\n%s=%v\n", name, l.Addr().AddrPort)
	}
	os.Stdin.Read(make([]byte, 1))
	s := e.Stats()
	sum := s.Total()
	fmt.Printf("\nresult=no-descriptors %d, evicted %d, no-room %d, steady %d, waited %v\n", sum.Ended[CauseNoDescriptors.String()], sum.Ended[CauseEvicted.String()], sum.Datagrams.Dropped.Get(stats.DropNoRoom),
		sum.Datagrams.Begun, s.Descriptors.Waits > 0)
	e.Close()
}

func echoDatagrams(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		c.WriteTo(b[:n], from)
	}
}

// An engine never waits for the kernel's table of descriptors to grow: it has room for all that there may be.
func TestRoomForDescriptors(t *testing.T) {
	if os.Getenv(limitedEnv) == "" {
		const limit = 2048
		size, err := strconv.Atoi(startLimited(t, limit, "size").line("size"))
		if err != nil || size < limit {
			t.Errorf("room for %d descriptors of %d: %v", size, limit, err)
		}
		return
	}
	e, err := New(Config{})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nFDSize:")
	size, _, _ := strings.Cut(rest, "\n")
	fmt.Printf("\nsize=%s\n", strings.TrimSpace(size))
}

// The budget follows the limit of the process, and what the rest of the program has open.
func TestDescriptorBudgetFollows(t *testing.T) {
	if os.Getenv(limitedEnv) == "" {
		c := startLimited(t, 128, "follow")
		if got := c.line("followed"); got != "true" {
			t.Error(got)
		}
		return
	}
	r := newRig(t, Config{Loops: 1})
	l := r.listen("tcp4", ListenConfig{}, &Addr{Network: Echo})
	first := dial(t, l)
	say(t, first, first, "hello")
	before := r.e.Stats().Descriptors
	// The rest of the program takes all but what is reserved for it.
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for n := before.InUse; n < before.Limit-before.Reserved; n++ {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	testwait.Until(t, "the budget is used up", func() bool { d := r.e.Stats().Descriptors; return d.InUse >= d.Limit-d.Reserved })
	second := dial(t, l)
	testwait.Until(t, "it waits", func() bool { return r.e.Stats().Descriptors.Waits > 0 })
	if e := sys.SetDescriptorLimit(sys.DescriptorLimit() / 2); e != 0 { // lower, and then as before
		t.Fatal(e)
	}
	testwait.Until(t, "the limit is lower", func() bool { return r.e.Stats().Descriptors.Limit == before.Limit/2 })
	if got, want := r.e.datagrams.most(), before.Limit/2*3/4; got != want {
		t.Errorf("%d flows of datagrams, want %d", got, want)
	}
	if e := sys.SetDescriptorLimit(int(before.Limit)); e != 0 {
		t.Fatal(e)
	}
	for _, f := range files[len(files)-8:] {
		f.Close()
	}
	files = files[:len(files)-8]
	say(t, second, second, "at last")
	for _, c := range []net.Conn{first, second} {
		c.Close()
		r.expect(CauseEnd)
	}
	if !t.Failed() {
		fmt.Printf("\nfollowed=true\n")
	}
}

// Without descriptors, sockets that rest and idle pipes are given up before a client waits.
func TestDispensableDescriptorsAreGivenUp(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.k.StopClock()
	l := r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4"))
	grams := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	x := packetSocket(t, "udp4")
	tellGram(t, x, grams.Addr(), "hello")
	hearGram(t, x, "hello")
	r.e.endFlows(CauseRemoved)
	r.expect(CauseRemoved)
	d := &r.e.descriptors
	if n := r.e.Stats().Total().Datagrams.Resting; n != 1 {
		t.Fatalf("%d sockets rest", n)
	}
	// One is free, and with that of the socket there are two. Nothing is measured meanwhile.
	d.mu.Lock()
	var free int64
	var wg sync.WaitGroup
	wg.Add(1)
	r.e.loops[0].Post(loop.Request{Do: func() {
		d.all[0].giveAhead()
		d.plenty.Store(math.MaxInt64)
		d.datagrams.Store(0)
		free = d.free.Swap(1)
	}, WG: &wg})
	wg.Wait()
	c := dial(t, l)
	say(t, c, c, "hello")
	if s := r.e.Stats().Total().Datagrams; s.Resting != 0 || s.RestingClosedEarly != 1 {
		t.Errorf("%d sockets rest, %d were closed early", s.Resting, s.RestingClosedEarly)
	}
	d.free.Add(free - 1)
	d.mu.Unlock()
	d.datagrams.Store(1)
	c.Close()
	r.expect(CauseEnd)
}

// What is for one kind alone is twice as much while that has to wait.
func TestSharesOfKinds(t *testing.T) {
	short, flows := false, int64(0)
	b := &descriptorBudget{flows: budgetFlows{
		streams: func() int64 { return flows }, short: func() bool { return short },
		datagrams: func() int64 { return flows }, mostDatagrams: func() int64 { return 1000 },
	}}
	b.total.Store(400)
	want := func(streams, datagrams int64) {
		t.Helper()
		if s, d := b.forStreams(), b.forDatagrams(); s != streams || d != datagrams {
			t.Errorf("%d for streams and %d for datagrams, want %d and %d", s, d, streams, datagrams)
		}
	}
	want(0, 0)
	b.streams.Store(1)
	b.datagrams.Store(1)
	want(100, 100)
	short = true
	b.denied.Store(1)
	b.measured.Store(int64(deniedFor))
	want(200, 200)
	b.measured.Add(1)
	want(200, 100)
	flows = 60
	want(80, 40)
}
