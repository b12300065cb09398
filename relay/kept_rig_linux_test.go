package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/origin"
	"github.com/penstock/penstock/relay/overload"
	"github.com/penstock/penstock/relay/stats"
)

// A keptProcess is an engine in a child process that may be killed: the test holds its descriptors,
// and gives them to the next one.

// keptEnv carries the order to the child.
const keptEnv = "PENSTOCK_RELAY_KEPT"

type keptOrder struct {
	Loops     int
	After     time.Duration // Keep.After; 0: at once
	Listen    []string      // addresses
	Upstream  string        // of all flows
	Next      string        // the upstream after that
	Replies   int           // DatagramConfig.Replies
	TOS       TOSAction     // DatagramConfig.TOS
	Named     string        // each, first: datagrams have headers that name clients, by which flows have their Value
	Timeouts  Timeouts
	Socket    SocketOptions
	Bandwidth int64
	NoPipes   bool
	Pair      string        // the child dials it and Upstream, and gives both to Relay, if nothing is held
	LatePair  bool          // the child gives them to Relay while it hands over
	Sniff     int           // bytes that are sniffed
	Poison    string        // the client of the flow whose Hooks.Decode kills the child
	Connected int           // flows that are connected; later ones are queued. 0: all are connected
	Retry     bool          // each attempt is made to Upstream
	Decoded   int           // flows that Hooks.Decode must have seen before Hooks.Upstream is called
	Preface   int           // bytes that are sent to the upstream first
	Each      bool          // they are in front of each datagram
	Expect    string        // what it must answer
	Welcome   int           // bytes that are sent to the client once its upstream is connected
	Reply     string        // to each question mark of a client that is sniffed; anything else is refused
	Items     int           // that the child is given
	Datagrams int           // Config.MaxDatagramFlows
	Rest      time.Duration // how long the sockets of ended flows rest; 0: as long as always
	NoOwn     bool          // no flow gets a socket of its own
	Several   bool          // an address has several flows: datagrams begin with their names, which are the Value of flows
}

// origin reads the headers of datagrams, if there are any.
func (o *keptOrder) origin() *origin.Config {
	if o.Named == "" {
		return nil
	}
	c := testOrigin(o.Named == "first")
	c.Begin = nil
	return c
}

// keptCall is what the test asks of the child, on its standard input, and keptAnswer the answer.
type keptCall struct{ Do string }

type keptAnswer struct {
	Addrs    []string
	Restored hold.Restored
	Stats    stats.Engine
	Record   *keptRecord // at any time
	Lent     int64       // by the arenas
	Err      string
}

type keptRecord struct {
	ID           uint64
	Peer, Value  string
	Up, Down     Transfer
	Cause        Cause
	Begun, Known time.Duration // Start, as the time since now, and Duration
}

// keptTable is what the test holds.
type keptTable struct {
	t  *testing.T
	mu sync.Mutex
	m  map[holdKey]hold.Held
}

func newKeptTable(t *testing.T) *keptTable {
	testnet.CheckLeaks(t)
	k := &keptTable{t: t, m: make(map[holdKey]hold.Held)}
	t.Cleanup(k.release)
	return k
}

// release lets go of everything.
func (k *keptTable) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, x := range k.m {
		k.closeAll(x.FDs)
	}
	clear(k.m)
}

func (k *keptTable) closeAll(fds []int) {
	for _, fd := range fds {
		sys.Linux{}.Close(fd)
	}
}

// expect waits until n of a kind are held: what the child says comes by another way than its answers.
func (k *keptTable) expect(kind holdKind, n int) {
	k.t.Helper()
	held := 0
	if !testwait.For(func() bool { held = len(k.heldOf(kind)); return held == n }) {
		k.t.Fatalf("%d of kind %d are held, want %d", held, kind, n)
	}
}

// A message is: what ('h' hold, 'd' drop), key, label.
func (k *keptTable) message(p []byte, fds []int) {
	key := holdKey{binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:])}
	k.mu.Lock()
	defer k.mu.Unlock()
	old, ok := k.m[key]
	if p[0] == 'd' {
		delete(k.m, key)
		k.closeAll(old.FDs)
		return
	}
	if ok {
		k.t.Errorf("key %x is held already", key)
		k.closeAll(old.FDs)
	}
	k.m[key] = hold.Held{Key: key, Label: string(p[17:]), FDs: fds}
}

func keptMessage(what byte, key holdKey, label string) []byte {
	p := binary.LittleEndian.AppendUint64([]byte{what}, key[0])
	return append(binary.LittleEndian.AppendUint64(p, key[1]), label...)
}

// keptHolder is the child's Holder.
type keptHolder struct {
	mu  sync.Mutex
	fd  int
	buf sys.FDBuffer
}

func (h *keptHolder) send(p []byte, fds []int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var e sys.Errno
	testwait.For(func() bool { e = h.buf.Send(h.fd, p, fds); return e != sys.EAGAIN && e != sys.EINTR }) // the test reads
	if e != 0 {
		return e
	}
	return nil
}

func (h *keptHolder) Hold(key [2]uint64, label string, fds []int) error {
	return h.send(keptMessage('h', key, label), fds)
}

func (h *keptHolder) Drop(key [2]uint64) { h.send(keptMessage('d', key, ""), nil) }

func (h *keptHolder) Flush() error { return nil }

// keptProcess is the test's end of a child.
type keptProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan keptAnswer
	records chan keptRecord
	told    chan struct{} // closed when all that the child has said is in the table
	gone    chan struct{} // closed when its standard output has ended
	addrs   []Addr
	keptAnswer
}

// begin starts a child, which is given all that is held.
func (k *keptTable) begin(o keptOrder) *keptProcess {
	k.t.Helper()
	if o.Loops == 0 {
		o.Loops = 2
	}
	own, its, e := sys.Pair()
	if e != 0 {
		k.t.Fatal(e)
	}
	k.mu.Lock()
	var items []hold.Held
	for _, x := range k.m {
		items = append(items, x)
	}
	k.mu.Unlock()
	o.Items = len(items)
	text, err := json.Marshal(o)
	if err != nil {
		k.t.Fatal(err)
	}
	p := &keptProcess{t: k.t, answers: make(chan keptAnswer, 1), records: make(chan keptRecord, 100_000), told: make(chan struct{}), gone: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", keptEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	file := os.NewFile(uintptr(its), "holder")
	p.cmd.ExtraFiles = []*os.File{file}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		k.t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	file.Close()
	k.t.Cleanup(func() {
		p.end()
		k.release() // peers wait for the ends of their connections
	})
	go p.hear(stdout)
	conn := seqpacket(k.t, own)
	go func() {
		defer close(p.told)
		defer conn.Close()
		var buf sys.FDBuffer
		for _, x := range items {
			b := keptMessage('h', x.Key, x.Label)
			untilReady(conn.raw.Write, func(fd int) sys.Errno { return buf.Send(fd, b, x.FDs) })
		}
		b := make([]byte, 1024)
		for {
			var n int
			var fds []int
			var lost bool
			err := untilReady(conn.raw.Read, func(fd int) (e sys.Errno) {
				n, fds, lost, e = buf.Recv(fd, b, nil)
				return e
			})
			if err != nil || n == 0 {
				return
			}
			if lost {
				k.t.Error("descriptors of the child were lost")
			}
			k.message(b[:n], fds)
		}
	}()
	return p
}

// start is begin, and waits until the child has restored its flows.
func (k *keptTable) start(o keptOrder) *keptProcess {
	k.t.Helper()
	p := k.begin(o)
	p.keptAnswer = p.answer()
	for _, a := range p.Addrs {
		at, err := ParseAddr(a)
		if err != nil {
			k.t.Fatal(err)
		}
		p.addrs = append(p.addrs, at)
	}
	return p
}

// rawConn is one end of a pair of sockets, on the netpoller.
type rawConn struct {
	net.Conn
	raw syscall.RawConn
}

func seqpacket(t *testing.T, fd int) *rawConn {
	f := os.NewFile(uintptr(fd), "holder")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return &rawConn{c, rc}
}

// untilReady calls do when the socket is ready, until the error is another than EAGAIN.
func untilReady(ready func(func(uintptr) bool) error, do func(fd int) sys.Errno) error {
	var e sys.Errno
	err := ready(func(fd uintptr) bool {
		e = do(int(fd))
		return e != sys.EAGAIN && e != sys.EINTR
	})
	if err == nil && e != 0 {
		err = e
	}
	return err
}

func (p *keptProcess) hear(stdout io.Reader) {
	defer close(p.gone)
	d := json.NewDecoder(bufio.NewReader(stdout))
	for {
		var a keptAnswer
		if d.Decode(&a) != nil {
			return
		}
		if a.Record != nil {
			p.records <- *a.Record
		} else {
			p.answers <- a
		}
	}
}

func (p *keptProcess) answer() keptAnswer {
	p.t.Helper()
	select {
	case a := <-p.answers:
		if a.Err != "" {
			p.t.Fatal("child: ", a.Err)
		}
		return a
	case <-p.gone:
		p.t.Fatal("the child is gone")
	case <-time.After(patience):
		p.t.Fatal("no answer from the child")
	}
	return keptAnswer{}
}

func (p *keptProcess) ask(do string) keptAnswer {
	p.t.Helper()
	if err := json.NewEncoder(p.stdin).Encode(keptCall{do}); err != nil {
		p.t.Fatal(err)
	}
	return p.answer()
}

// kill kills the child, and returns when its last word is in the table.
func (p *keptProcess) kill() {
	p.cmd.Process.Kill()
	<-p.told
	<-p.gone
	p.cmd.Wait()
	p.stdin.Close()
}

// end makes the child close its engine, unless it was killed, and balance it.
func (p *keptProcess) end() {
	p.stdin.Close()
	select {
	case <-p.gone:
	case <-time.After(patience):
	}
	p.kill()
	if code := p.cmd.ProcessState.ExitCode(); code > 0 {
		p.t.Errorf("a child has ended with exit code %d", code)
	}
}

// runKept is the child's main function.
func runKept(text string) int {
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	say := func(a keptAnswer) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(a)
	}
	if err := serveKept(text, say); err != nil {
		say(keptAnswer{Err: err.Error()})
		fmt.Fprintln(os.Stderr, "kept:", err)
		return 1
	}
	return 0
}

func serveKept(text string, say func(keptAnswer)) error {
	var o keptOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	const fd = 3
	sys.SetNonblock(fd)
	h := &keptHolder{fd: fd}
	keep := &hold.Keep{After: o.After, Holder: h}
	if o.After == 0 {
		keep.After = -1
	}
	b := make([]byte, 1024)
	for len(keep.Held) < o.Items {
		var n int
		var fds []int
		var lost bool
		var e sys.Errno
		testwait.For(func() bool { n, fds, lost, e = h.buf.Recv(fd, b, nil); return e != sys.EAGAIN })
		switch {
		case e != 0 || n == 0 || lost:
			return fmt.Errorf("receive item %d: %w, %d bytes, lost %v", len(keep.Held), e, n, lost)
		}
		key := holdKey{binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])}
		keep.Held = append(keep.Held, hold.Held{Key: key, Label: string(b[17:n]), FDs: fds})
	}
	pipes := 0
	if o.NoPipes {
		pipes = -1
	}
	e, err := New(Config{Loops: o.Loops, MaxPipes: pipes, MaxDatagramFlows: o.Datagrams, Keep: keep})
	if err != nil {
		return err
	}
	if o.Rest > 0 {
		e.datagrams.restTime = o.Rest // before a loop has a datagram port
	}
	if o.NoOwn {
		e.datagrams.ownMost = 0
	}
	var to *Addr
	if o.Upstream != "" {
		to = new(Addr)
		if *to, err = ParseAddr(o.Upstream); err != nil {
			return err
		}
	}
	cfg := ListenConfig{Datagram: DatagramConfig{Replies: o.Replies, TOS: o.TOS, Origin: o.origin()}, Timeouts: o.Timeouts, Socket: o.Socket, Dial: &DialConfig{Socket: o.Socket, PrefaceEach: o.Each}, Hooks: keptHooks(to, &o, say)}
	var a keptAnswer
	var listeners []*Listener
	for _, url := range o.Listen {
		at, err := ParseAddr(url)
		if err != nil {
			return err
		}
		l, err := e.Listen(at, cfg)
		if err != nil {
			return err
		}
		a.Addrs = append(a.Addrs, l.Addr().String())
		listeners = append(listeners, l)
	}
	hooks := keptHooks(to, &o, say)
	pair := func(name string, d *hold.Decoder) (PairConfig, error) {
		return PairConfig{Name: name, Value: d.String() + "'", Done: hooks.Done}, d.Err()
	}
	if a.Restored, err = e.Restore(RestoreConfig{Pair: pair}); err != nil {
		return err
	}
	if o.Pair != "" && o.Items == 0 && !o.LatePair {
		if err := relayPair(e, o.Pair, o.Upstream, PairConfig{
			Name: "pair", Value: "value", Done: hooks.Done, Encode: func(e *hold.Encoder) { e.String("value") },
		}); err != nil {
			return err
		}
	}
	say(a)
	in := json.NewDecoder(os.Stdin)
	stopped := make(chan struct{})
	for {
		var c keptCall
		if in.Decode(&c) != nil {
			e.Close() // unless it was
			return unbalanced(e)
		}
		var a keptAnswer
		switch c.Do {
		case "stats":
			a.Stats = e.Stats()
		case "causes":
			e.onLoops(func(f *Flow) { a.Addrs = append(a.Addrs, f.cause.String()) })
		case "arenas":
			e.each(func(s *streams) { atomic.AddInt64(&a.Lent, s.keep.ledger.Arena().Used()) })
		case "turn": // of the first loop: it has seen what came before
			e.loops[0].Ask(func() {})
		case "turn of each loop":
			e.each(func(*streams) {})
		case "stop the last loop":
			begun := make(chan struct{})
			e.loops[len(e.loops)-1].Post(loop.Request{Do: func() {
				close(begun)
				<-stopped
			}})
			<-begun
		case "start the last loop":
			close(stopped)
		case "drain": // until the ports of datagrams are closed
			go e.Drain(context.Background())
			testwait.For(func() bool {
				closed := true
				for _, d := range e.datagrams.all {
					d.loop.Ask(func() {
						for _, p := range d.ports {
							closed = closed && p.state == portClosed
						}
					})
				}
				return closed
			})
		case "listen again": // as a reload does that removes a listener, and one that adds it again
			l := listeners[0]
			if err := l.Close(); err != nil {
				a.Err = err.Error()
			} else if _, err := e.Listen(l.Addr(), cfg); err != nil {
				a.Err = err.Error()
			}
		case "handover, closing":
			if err := closeAndHandOver(e, func() { close(stopped) }); err != nil {
				a.Err = err.Error()
			}
		case "handover, late pair":
			if err := handOverLatePair(e, o.Pair, o.Upstream, hooks.Done); err != nil {
				a.Err = err.Error()
			}
		case "shed": // the flow that has been idle for longest
			e.Overload().Shed(overload.Shedding{Idle: true, Bytes: 1})
		case "kill flows":
			e.endFlows(CauseKilled)
		case "handover":
			if err := e.HandOver(context.Background()); err != nil {
				a.Err = err.Error()
			}
		case "close":
			if err := errors.Join(e.Close(), unbalanced(e)); err != nil {
				a.Err = err.Error()
			}
		}
		say(a)
	}
}

// keptHooks are hooks whose flows have a value: the client and how often the flow was decoded.
func keptHooks(to *Addr, o *keptOrder, say func(keptAnswer)) Hooks {
	bandwidth := o.Bandwidth
	var decoded, connected atomic.Int32
	var early atomic.Bool
	hooks := Hooks{
		Sniff: func(f *Flow, b []byte, _ bool) (int, SniffNext) {
			switch {
			case o.Several:
				f.SetValue(connectionOf(b))
			case o.Reply != "" && len(b) > 0 && b[0] == '?':
				f.Reply([]byte(o.Reply))
				return 1, SniffMore
			case o.Reply != "" && len(b) > 0:
				return 0, SniffRefuse
			case len(b) < o.Sniff:
				return 0, SniffMore
			}
			return 0, SniffDone
		},
		Connected: func(f *Flow, _ *Addr, _ time.Duration, err error) {
			if err == nil && o.Preface > 0 {
				f.Preface(testnet.NewPattern(9).At(0, o.Preface))
			}
			if err == nil && o.Welcome > 0 {
				f.Reply(testnet.NewPattern(9).At(0, o.Welcome))
			}
			if err == nil && o.Expect != "" {
				f.Expect([]byte(o.Expect))
			}
		},
		Admit: func(f *Flow) Cause {
			f.SetValue(f.Client().String())
			if bandwidth > 0 {
				f.SetBandwidth(bandwidth)
			}
			if o.Sniff > 0 {
				f.StartSniff(o.Sniff, patience)
			}
			return CauseNone
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			if n := int(decoded.Load()); n < o.Decoded && early.CompareAndSwap(false, true) {
				say(keptAnswer{Err: fmt.Sprintf("an upstream is asked for after %d flows were decoded", n)})
			}
			if o.Connected > 0 && int(connected.Add(1)) > o.Connected {
				f.Queue()
				return nil
			}
			if o.Retry {
				attempt = 0
			}
			if o.Preface > 0 && to.Network.Datagrams() {
				f.Preface(testnet.NewPattern(9).At(0, o.Preface))
			}
			switch attempt {
			case 0:
				return to
			case 1:
				if a, err := ParseAddr(o.Next); err == nil {
					return &a
				}
			}
			return nil
		},
		Encode: func(f *Flow, e *hold.Encoder) { e.String(f.Value().(string)) },
		Decode: func(f *Flow, d *hold.Decoder) error {
			f.SetValue(d.String() + "'")
			decoded.Add(1)
			if o.Poison != "" && f.Peer().String() == o.Poison {
				sys.Signal(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return d.Err()
		},
		Done: func(r *Record) {
			value, _ := r.Value.(string)
			say(keptAnswer{Record: &keptRecord{
				ID: r.ID, Peer: r.Peer.String(), Value: value, Up: r.Up, Down: r.Down, Cause: r.Cause,
				Begun: time.Since(r.Start), Known: r.Duration,
			}})
		},
	}
	if o.Several {
		hooks.Choose = chooseConnection
	}
	return hooks
}

func (k *keptTable) labels(kind holdKind) (labels []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, x := range k.m {
		if kindOf(key) == kind {
			labels = append(labels, x.Label)
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

func (p *keptProcess) urls() []string { return strings.Fields(strings.Join(p.Addrs, " ")) }

func (k *keptTable) heldOf(kind holdKind) (all []hold.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, x := range k.m {
		if kindOf(key) == kind {
			all = append(all, x)
		}
	}
	return all
}

// exchange gives the items of a kind new numbers, and the descriptors of each other.
func (k *keptTable) exchange(kind holdKind) {
	list := k.heldOf(kind)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, x := range list {
		delete(k.m, x.Key)
		x.Key, x.FDs = [2]uint64{x.Key[0] + 1000, x.Key[1]}, list[(i+1)%len(list)].FDs
		k.m[x.Key] = x
	}
}

// stop stops the child where it is, until it is killed.
func (p *keptProcess) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	testwait.Until(p.t, "all threads are stopped", func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			if _, after, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(after, "T") {
				return false
			}
		}
		return len(tasks) > 0
	})
}

// relayPair gives connections to two addresses to Relay.
func relayPair(e *Engine, a, b string, cfg PairConfig) error {
	var conns [2]net.Conn
	for i, url := range []string{a, b} {
		at, err := ParseAddr(url)
		if err != nil {
			return err
		}
		if conns[i], err = net.Dial(toNet(at).Network(), toNet(at).String()); err != nil {
			return err
		}
	}
	return e.Relay(conns[0], conns[1], cfg)
}
