package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// lastCallEnv carries the order to a child process of the tests that let each system call be the last.
const lastCallEnv = "PENSTOCK_RELAY_LAST_CALL"

// lastCallOrder is what such a child does: it relays from Listen to Upstream, and dies.
type lastCallOrder struct {
	Listen, Upstream string
	At               int  // the system call at which it dies; 0: none
	After            bool // behind the call, instead of in front of it
	Refuse           bool // the kernel refuses to splice out of a pipe
	Pace             int64
	Pipes            int // Config.MaxPipes
	Lowat            int
}

// lastCallMessage goes between a child and the test, on descriptor 3 of the child, with descriptors.
type lastCallMessage struct {
	Op       string // to the child: item, go, end; from it: hold, drop, ready, count
	Key      [2]uint64
	Label    string
	Count    int
	Restored *hold.Restored
	Err      string
}

// lastCallLine is one end of the connection between a child and the test.
type lastCallLine struct {
	f  *os.File
	mu sync.Mutex
	b  sys.FDBuffer // for sending
	in sys.FDBuffer
}

func newLastCallLine(fd int) *lastCallLine {
	return &lastCallLine{f: os.NewFile(uintptr(fd), "line")}
}

// send sends a message, and waits while the socket is full.
func (l *lastCallLine) send(m lastCallMessage, fds []int) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c, err := l.f.SyscallConn()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var e sys.Errno
	if err := c.Write(func(fd uintptr) bool {
		e = l.b.Send(int(fd), text, fds)
		return e != sys.EAGAIN
	}); err != nil {
		return err
	}
	if e != 0 {
		return e
	}
	return nil
}

// receive waits for a message; io.EOF: the other process is gone.
func (l *lastCallLine) receive() (m lastCallMessage, fds []int, err error) {
	c, err := l.f.SyscallConn()
	if err != nil {
		return m, nil, err
	}
	var p [4096]byte
	var n int
	var lost bool
	var e sys.Errno
	if err := c.Read(func(fd uintptr) bool {
		n, fds, lost, e = l.in.Recv(int(fd), p[:], nil)
		return e != sys.EAGAIN
	}); err != nil {
		return m, nil, err
	}
	switch {
	case e == sys.ECONNRESET, e == 0 && n == 0:
		return m, nil, io.EOF
	case e != 0:
		return m, nil, e
	case lost:
		return m, fds, errors.New("a message or its descriptors did not fit")
	}
	return m, fds, json.Unmarshal(p[:n], &m)
}

// refusingKernel does not splice out of a pipe, as if the socket could not.
type refusingKernel struct{ *testkernel.Deadly }

func (k refusingKernel) Splice(rfd, wfd, n int) (int, sys.Errno) {
	if name, err := os.Readlink(fmt.Sprint("/proc/self/fd/", rfd)); err == nil && len(name) > 5 && name[:5] == "pipe:" {
		return 0, sys.EINVAL
	}
	return k.Deadly.Splice(rfd, wfd, n)
}

// lastCallHolder is the child's end of what the test holds.
type lastCallHolder struct {
	line *lastCallLine
	k    *testkernel.Deadly
}

func (h *lastCallHolder) Hold(key [2]uint64, label string, fds []int) (err error) {
	h.k.Check("hold", func() { err = h.line.send(lastCallMessage{Op: "hold", Key: key, Label: label}, fds) })
	return err
}

func (h *lastCallHolder) Drop(key [2]uint64) {
	h.k.Check("drop", func() { h.line.send(lastCallMessage{Op: "drop", Key: key}, nil) })
}

// Flush returns nil at once: what has been sent arrives, whatever becomes of this process.
func (h *lastCallHolder) Flush() error { return nil }

// runLastCall is the main function of a child.
func runLastCall(text string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	var o lastCallOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fail(err)
	}
	listen, err := ParseAddr(o.Listen)
	if err != nil {
		return fail(err)
	}
	upstream, err := ParseAddr(o.Upstream)
	if err != nil {
		return fail(err)
	}
	k := testkernel.NewDeadly(o.At, o.After)
	k.Tell(os.Stderr)
	var kernel sys.Kernel = k
	if o.Refuse {
		kernel = refusingKernel{k}
	}
	h := &lastCallHolder{line: newLastCallLine(3), k: k}
	var held []hold.Held
	for {
		m, fds, err := h.line.receive()
		if err != nil {
			return fail(err)
		}
		if m.Op == "go" {
			break
		}
		held = append(held, hold.Held{Key: m.Key, Label: m.Label, FDs: fds})
	}
	e, err := newEngine(Config{Loops: 1, MaxPipes: o.Pipes, LowWaterMark: o.Lowat, Keep: &hold.Keep{After: -1, Holder: h, Held: held}}, kernel)
	if err != nil {
		return fail(err)
	}
	_, err = e.Listen(listen, ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			if o.Pace > 0 {
				f.SetBandwidth(o.Pace)
			}
			return CauseNone
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			if attempt > 0 {
				return nil
			}
			return &upstream
		},
		Encode: func(f *Flow, e *hold.Encoder) { e.Uint(4711); e.String("a name"); e.Bytes([]byte{1, 2, 3}) },
		Decode: func(f *Flow, d *hold.Decoder) error {
			if n, s, b := d.Uint(), d.String(), d.Bytes(); n != 4711 || s != "a name" || !bytes.Equal(b, []byte{1, 2, 3}) {
				return fmt.Errorf("decoded %d, %q, %v", n, s, b)
			}
			if o.Pace > 0 {
				f.SetBandwidth(o.Pace)
			}
			return d.Err()
		},
	}})
	if err != nil {
		return fail(fmt.Errorf("listen: %w", err))
	}
	restored, err := e.Restore(RestoreConfig{})
	m := lastCallMessage{Op: "ready", Restored: &restored}
	if err != nil {
		m.Err = err.Error()
	}
	if err := h.line.send(m, nil); err != nil {
		return fail(err)
	}
	if m, _, err := h.line.receive(); err != nil || m.Op != "end" {
		return fail(fmt.Errorf("instead of the end: %q, %v", m.Op, err))
	}
	// The flows of the test have ended: the engine must have none.
	if !testwait.For(func() bool { s := e.Stats(); return s.Flows() == 0 }) {
		return fail(fmt.Errorf("%d flows are left: %+v", e.Stats().Flows(), e.Stats().Total()))
	}
	if err := h.line.send(lastCallMessage{Op: "count", Count: k.Count()}, nil); err != nil {
		return fail(err)
	}
	h.line.receive() // the test is done with what came before
	return 0
}

// lastCallItem is what the test holds for its children under one key.
type lastCallItem struct {
	label string
	fds   []int
}

// nursery starts one child after the other, and gives each what it holds for the one before.
type nursery struct {
	t     *testing.T
	order lastCallOrder
	dies  []int // the system call at which each child dies; children beyond do not

	ready chan struct{} // closed when the first child is ready
	ended chan struct{} // closed when the last child has ended

	mu       sync.Mutex
	line     *lastCallLine // to the child that is ready; nil: none is
	finish   bool          // the flows of the test have ended, and so may the child
	child    *os.Process
	held     map[[2]uint64]lastCallItem
	deaths   []lastCallDeath
	restored []hold.Restored
	count    int
	stopped  bool
	err      error
	stderr   bytes.Buffer
}

// lastCallDeath is what was held when a child died.
type lastCallDeath struct {
	flows int  // of kind 4
	ready bool // the child had restored
}

const lastCallFlowKind = 4

func startNursery(t *testing.T, order lastCallOrder, dies ...int) *nursery {
	n := &nursery{t: t, order: order, dies: dies, held: make(map[[2]uint64]lastCallItem), ready: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(n.ended)
		for i := 0; ; i++ {
			again, err := n.run(i)
			if err != nil {
				n.mu.Lock()
				n.err = err
				n.mu.Unlock()
			}
			if !again {
				return
			}
		}
	}()
	return n
}

// run starts a child and returns when it has ended; again says that it was killed, as ordered.
func (n *nursery) run(i int) (again bool, err error) {
	order := n.order
	order.At = 0
	if i < len(n.dies) {
		order.At = n.dies[i]
	}
	text, err := json.Marshal(order)
	if err != nil {
		return false, err
	}
	exe, err := os.Executable()
	if err != nil {
		return false, err
	}
	a, b, e := sys.Pair()
	if e != 0 {
		return false, e
	}
	line, other := newLastCallLine(a), os.NewFile(uintptr(b), "other")
	defer line.f.Close()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "GOTRACEBACK=all", lastCallEnv+"="+string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.ExtraFiles = []*os.File{other}
	err = cmd.Start()
	other.Close()
	if err != nil {
		return false, err
	}
	n.mu.Lock()
	n.child = cmd.Process
	for key, item := range n.held {
		if err == nil {
			err = line.send(lastCallMessage{Op: "item", Key: key, Label: item.label}, item.fds)
		}
	}
	n.mu.Unlock()
	if err == nil {
		err = line.send(lastCallMessage{Op: "go"}, nil)
	}
	ready := false
	for err == nil {
		var m lastCallMessage
		var fds []int
		if m, fds, err = line.receive(); err == nil {
			n.take(m, fds)
			if m.Op == "ready" && !ready {
				ready = true
				if m.Err != "" {
					err = errors.New(m.Err)
				}
				n.mu.Lock()
				n.line = line
				if n.finish {
					line.send(lastCallMessage{Op: "end"}, nil) // fails if the child has died meanwhile
				}
				n.mu.Unlock()
				select {
				case <-n.ready:
				default:
					close(n.ready)
				}
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		cmd.Process.Kill()
	} else {
		err = nil
	}
	werr := cmd.Wait()
	n.mu.Lock()
	n.line = nil
	defer n.mu.Unlock()
	n.stderr.Write(stderr.Bytes())
	if err != nil {
		return false, err
	}
	if werr == nil {
		return false, nil
	}
	if n.stopped || cmd.ProcessState.Exited() || order.At == 0 {
		return false, fmt.Errorf("child %d: %w\n%s", i, werr, stderr.Bytes())
	}
	d := lastCallDeath{ready: ready}
	for key := range n.held {
		if key[0]>>56 == lastCallFlowKind {
			d.flows++
		}
	}
	n.deaths = append(n.deaths, d)
	return true, nil
}

// take does what a child asks for.
func (n *nursery) take(m lastCallMessage, fds []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch m.Op {
	case "hold":
		if _, ok := n.held[m.Key]; ok {
			n.err = fmt.Errorf("key %x was held already", m.Key)
		}
		n.held[m.Key] = lastCallItem{m.Label, fds}
	case "drop":
		for _, fd := range n.held[m.Key].fds {
			sys.Linux{}.Close(fd)
		}
		delete(n.held, m.Key)
	case "ready":
		n.restored = append(n.restored, *m.Restored)
	case "count":
		n.count = m.Count
		if n.line != nil {
			n.line.send(lastCallMessage{Op: "done"}, nil)
		}
	}
}

// end ends the last child, whose flows have ended, and returns how many system calls it made. Nothing
// of a flow may be held any more.
func (n *nursery) end() (int, error) {
	n.mu.Lock()
	n.finish = true
	if n.line != nil {
		n.line.send(lastCallMessage{Op: "end"}, nil) // fails if the child has died: the next one is told
	}
	n.mu.Unlock()
	select {
	case <-n.ended:
	case <-time.After(2 * patience):
		n.mu.Lock()
		n.child.Signal(syscall.SIGABRT) // it says where it is
		n.mu.Unlock()
		<-n.ended
		return 0, errors.New("the last child does not end")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.held {
		if key[0]>>56 == lastCallFlowKind && n.err == nil {
			n.err = fmt.Errorf("flow %x is still held", key)
		}
	}
	return n.count, n.err
}

// stop kills the child there is, and closes what is held.
func (n *nursery) stop() {
	n.mu.Lock()
	n.stopped = true
	if n.child != nil {
		n.child.Kill()
	}
	n.mu.Unlock()
	<-n.ended
	for _, item := range n.held {
		for _, fd := range item.fds {
			sys.Linux{}.Close(fd)
		}
	}
	clear(n.held)
}

// was tells what happened, for messages.
func (n *nursery) was() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("deaths %+v, restored %+v, held %d\n%s", n.deaths, n.restored, len(maps.Clone(n.held)), n.stderr.Bytes())
}
