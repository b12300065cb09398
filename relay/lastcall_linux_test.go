package relay

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// Each system call of a whole transfer is the last one of its process, in turn: the process dies in front
// of it, and another time behind it, and the next process must deliver every byte once. By default only
// some calls are tried, other ones each time; all of them with -every-call.

var everyCall = flag.Bool("every-call", false, "let each system call of the transfers be the last one, instead of some")

// lastCallEnd is one end of a flow in the test.
type lastCallEnd struct {
	conn      net.Conn
	out, in   *testnet.Pattern
	sent, got int64
}

var errShort = errors.New("the stream ended too early")

func (e *lastCallEnd) send(n int) error {
	e.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := e.conn.Write(e.out.At(e.sent, n))
	e.sent += int64(n)
	return err
}

// receive reads exactly n bytes, in reads of at most size.
func (e *lastCallEnd) receive(n, size int, pause time.Duration) error {
	b := make([]byte, min(n, size))
	for n > 0 {
		e.conn.SetReadDeadline(time.Now().Add(patience))
		m, err := e.conn.Read(b[:min(n, len(b))])
		if err := e.in.Check(e.got, b[:m]); err != nil {
			return fmt.Errorf("after %d bytes: %w", e.got, err)
		}
		e.got += int64(m)
		n -= m
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: after %d bytes, %d are missing", errShort, e.got, n)
		}
		if err != nil {
			return err
		}
		if pause > 0 {
			time.Sleep(pause)
		}
	}
	return nil
}

// over waits for the end of the stream.
func (e *lastCallEnd) over() error {
	e.conn.SetReadDeadline(time.Now().Add(patience))
	var b [64]byte
	n, err := e.conn.Read(b[:])
	if n > 0 {
		return fmt.Errorf("%d bytes came after the last one", n)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (e *lastCallEnd) shutdown() error {
	return e.conn.(interface{ CloseWrite() error }).CloseWrite()
}

// lastCallShape is a transfer. client and upstream are functions that return when their end is done;
// with echo there is no upstream.
type lastCallShape struct {
	name             string
	listen, upstream string // tcp, unix; upstream also echo
	client, server   func(e *lastCallEnd) error
	order            lastCallOrder
	resets           bool // the client resets the connection: the upstream must see that, or get all bytes
	buffer           int  // receive buffer of the upstream
}

// steps does one thing after the other.
func steps(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func both(a, b func() error) error {
	c := make(chan error, 1)
	go func() { c <- a() }()
	err := b()
	return errors.Join(err, <-c)
}

// conversation sends messages of some sizes and gets answers of the same sizes.
func conversation(e *lastCallEnd, first bool, sizes ...int) error {
	for _, n := range sizes {
		if first {
			if err := e.send(n); err != nil {
				return err
			}
		}
		if err := e.receive(n, n, 0); err != nil {
			return err
		}
		if !first {
			if err := e.send(n); err != nil {
				return err
			}
		}
	}
	return steps(e.shutdown, e.over)
}

const (
	bulkUp, bulkDown = 600 << 10, 300 << 10
)

var conversationSizes = []int{1, 700, 9000, 3, 40_000, 12}

func lastCallShapes() []lastCallShape {
	talk := func(first bool) func(*lastCallEnd) error {
		return func(e *lastCallEnd) error { return conversation(e, first, conversationSizes...) }
	}
	bulk := func(out, in int) func(*lastCallEnd) error {
		return func(e *lastCallEnd) error {
			return both(func() error { return steps(func() error { return e.send(out) }, e.shutdown) },
				func() error { return steps(func() error { return e.receive(in, 64<<10, 0) }, e.over) })
		}
	}
	slow := func(out, in int) func(*lastCallEnd) error {
		return func(e *lastCallEnd) error {
			return both(func() error { return steps(func() error { return e.send(out) }, e.shutdown) },
				func() error { return steps(func() error { return e.receive(in, 24<<10, time.Millisecond) }, e.over) })
		}
	}
	half := func(e *lastCallEnd) error { // ends its stream first, and then gets the answer
		return steps(func() error { return e.send(5000) }, e.shutdown, func() error { return e.receive(bulkDown, 64<<10, 0) }, e.over)
	}
	answer := func(e *lastCallEnd) error {
		return steps(func() error { return e.receive(5000, 5000, 0) }, e.over, func() error { return e.send(bulkDown) }, e.shutdown)
	}
	return []lastCallShape{
		{name: "copy", listen: "tcp", upstream: "tcp", client: talk(true), server: talk(false), order: lastCallOrder{Pipes: -1}},
		{name: "splice", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, bulkDown), server: bulk(bulkDown, bulkUp), order: lastCallOrder{Lowat: -1}},
		{name: "streaming", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, 0), server: bulk(0, bulkUp)},
		{name: "slow reader", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, 100), server: slow(100, bulkUp), order: lastCallOrder{Pipes: -1}, buffer: 16 << 10},
		{name: "slow splice", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, 100), server: slow(100, bulkUp), buffer: 16 << 10},
		{name: "refused splice", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, bulkDown), server: bulk(bulkDown, bulkUp), order: lastCallOrder{Refuse: true, Lowat: -1}},
		{name: "half-close", listen: "tcp", upstream: "tcp", client: half, server: answer},
		{name: "paced", listen: "tcp", upstream: "tcp", client: bulk(bulkUp, 100), server: bulk(100, bulkUp), order: lastCallOrder{Pace: 4 << 20}},
		{name: "echo", listen: "tcp", upstream: "echo", client: bulk(bulkDown, bulkDown)},
		{name: "Unix to TCP", listen: "unix", upstream: "tcp", client: talk(true), server: talk(false)},
		{name: "TCP to Unix, bulk", listen: "tcp", upstream: "unix", client: bulk(bulkUp, bulkDown), server: bulk(bulkDown, bulkUp)},
		{name: "Unix to Unix", listen: "unix", upstream: "unix", client: talk(true), server: talk(false)},
		{name: "Unix to Unix, slow", listen: "unix", upstream: "unix", client: bulk(bulkUp, 100), server: slow(100, bulkUp), order: lastCallOrder{Pipes: -1}},
		{name: "Unix half-close", listen: "unix", upstream: "unix", client: half, server: answer},
		{name: "reset", listen: "tcp", upstream: "tcp", resets: true, client: func(e *lastCallEnd) error {
			if err := e.send(bulkDown); err != nil {
				return err
			}
			e.conn.(*net.TCPConn).SetLinger(0)
			return e.conn.Close()
		}, server: func(e *lastCallEnd) error {
			return steps(func() error { return e.receive(bulkDown, 32<<10, 100*time.Microsecond) }, e.over)
		}},
	}
}

// lastCallRun is one transfer with its deaths.
func lastCallRun(t *testing.T, s lastCallShape, dies ...int) (calls int, err error) {
	dir := t.TempDir()
	order := s.order
	// The port must be the same in each child, and is nobody else's: the address is the test's own.
	order.Listen = "unix://" + filepath.Join(dir, "listen")
	if s.listen == "tcp" {
		order.Listen = "tcp://" + ownAddress()
	}
	var l net.Listener
	switch s.upstream {
	case "tcp":
		l, err = net.Listen("tcp", "127.0.0.1:0")
	case "unix":
		l, err = net.Listen("unix", filepath.Join(dir, "upstream"))
	}
	if err != nil {
		t.Fatal(err)
	}
	order.Upstream = "echo:"
	if l != nil {
		defer l.Close()
		order.Upstream = s.upstream + "://" + l.Addr().String()
	}
	n := startNursery(t, order, dies...)
	defer n.stop()
	explain := func(err error) error { return fmt.Errorf("%w\n%s", err, n.was()) }
	select {
	case <-n.ready:
	case <-n.ended:
		return 0, explain(fmt.Errorf("no child was ready: %w", n.err))
	case <-time.After(2 * patience):
		return 0, explain(errors.New("no child is ready"))
	}
	up, down := testnet.NewPattern(1), testnet.NewPattern(2)
	server := make(chan error, 1)
	var nobody bool // no upstream was connected
	if l == nil {
		server <- nil
		down = up
	} else {
		go func() {
			conn, err := l.Accept()
			if err != nil {
				nobody = true
				server <- nil
				return
			}
			if c, ok := conn.(*net.TCPConn); ok && s.buffer > 0 {
				c.SetReadBuffer(s.buffer)
			}
			err = s.server(&lastCallEnd{conn: conn, out: down, in: up})
			conn.Close()
			server <- err
		}()
	}
	client := func() error {
		conn, err := net.Dial(s.listen, map[string]string{"tcp": order.Listen[len("tcp://"):], "unix": filepath.Join(dir, "listen")}[s.listen])
		if err != nil {
			return fmt.Errorf("refused: %w", err)
		}
		defer conn.Close()
		return s.client(&lastCallEnd{conn: conn, out: up, in: down})
	}()
	var upstream error
	done := time.Now()
	for waits := true; waits; {
		select {
		case upstream = <-server:
			waits = false
		case <-time.After(10 * time.Millisecond):
			// If the flow ended before its upstream was connected, nobody comes.
			if (client != nil && n.excused() || s.resets) && l != nil && time.Since(done) > time.Second {
				l.Close()
			}
		}
	}
	reset := func(err error) bool {
		return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
			errors.Is(err, syscall.ENOTCONN) // shutdown(2) of a connection that was reset
	}
	if client != nil || upstream != nil && !(s.resets && reset(upstream)) {
		n.settle() // the connection may say so before the child's end does
	}
	unix := func(network string) bool { return network == "unix" }
	for _, end := range []struct {
		name string
		err  error
		unix bool
	}{{"client", client, unix(s.listen)}, {"upstream", upstream, unix(s.upstream)}} {
		switch {
		case end.err == nil && end.name == "upstream" && s.resets && !nobody:
			err = errors.New("upstream: the client's reset came as the end of the stream")
		case end.err == nil:
		case end.name == "upstream" && s.resets && reset(end.err):
		case n.excused() && (reset(end.err) || end.unix && errors.Is(end.err, errShort)):
		default:
			err = errors.Join(err, fmt.Errorf("%s: %w", end.name, end.err))
		}
	}
	if err != nil {
		return 0, explain(err)
	}
	if calls, err = n.end(); err != nil {
		return 0, explain(err)
	}
	return calls, nil
}

// excused reports whether the flow may end with a reset: a child died while it was not held, or two
// children died while they handled it.
func (n *nursery) excused() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.deaths {
		if d.flows == 0 {
			return true
		}
	}
	for _, r := range n.restored {
		if r.Lost.Get(hold.LossRepeated) > 0 {
			return true
		}
	}
	return false
}

// settle waits until the death of a child that was to die is known, and what the next one has restored.
func (n *nursery) settle() {
	testwait.For(func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return (len(n.deaths) > 0 || len(n.dies) == 0) && n.line != nil || n.err != nil
	})
}

var ownPort atomic.Uint32

// ownAddress returns an address of 127.0.0.0/8 with a port that ephemeral ports do not reach.
func ownAddress() string {
	port := uint16(20_000 + ownPort.Add(1)%10_000)
	b := time.Now().UnixNano()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(1 + b>>10%250), byte(b >> 18), byte(1 + b>>26%250)}), port).String()
}

func TestEachCallIsTheLast(t *testing.T) {
	for _, p := range []*feature.Probe{feature.Splice, feature.ReusePort, feature.EpollExclusive} {
		testnet.Need(t, p)
	}
	for _, s := range lastCallShapes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // most of the time goes by in waits for processes and for slow readers
			calls, err := lastCallRun(t, s)
			if err != nil {
				t.Fatalf("without a death: %v", err)
			}
			stride, first := max(calls/4, 1), 1+int(time.Now().UnixNano()%int64(max(calls/4, 1)))
			if *everyCall {
				stride, first = 1, 1
			}
			tried := 0
			for i, at := 0, first; at <= calls; i, at = i+1, at+stride {
				for _, after := range []bool{false, true} {
					if testnet.RaceEnabled && after == (i%2 == 0) {
						continue // each child takes several times as long to start; the run without -race tries both
					}
					s := s
					s.order.After = after
					tried++
					if _, err := lastCallRun(t, s, at); err != nil {
						t.Errorf("call %d of about %d, after %v: %v", at, calls, after, err)
						if *everyCall {
							continue
						}
						return
					}
				}
			}
			t.Logf("%d calls, %d deaths", calls, tried)
		})
	}
}

// TestEachCallOfRestoringIsTheLast: a process dies in the middle of a transfer, and the next one at each of
// the system calls with which it restores the flow and goes on.
func TestEachCallOfRestoringIsTheLast(t *testing.T) {
	for _, p := range []*feature.Probe{feature.Splice, feature.ReusePort, feature.EpollExclusive} {
		testnet.Need(t, p)
	}
	tried := map[string]bool{"slow reader": true, "slow splice": true, "half-close": true, "echo": true, "Unix to Unix, slow": true, "TCP to Unix, bulk": true}
	for _, s := range lastCallShapes() {
		if !tried[s.name] {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			calls, err := lastCallRun(t, s)
			if err != nil {
				t.Fatalf("without a death: %v", err)
			}
			const most = 24 // calls of the next process
			stride, first := 8, 1+int(time.Now().UnixNano()%8)
			if *everyCall {
				stride, first = 1, 1
			}
			for at := first; at <= most; at += stride {
				for _, after := range []bool{false, true} {
					s := s
					s.order.After = after
					if _, err := lastCallRun(t, s, calls/2, at); err != nil {
						t.Errorf("call %d, and then call %d of the next process, after %v: %v", calls/2, at, after, err)
						if !*everyCall {
							return
						}
					}
				}
			}
		})
	}
}
