package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// HoldConn waits for a keeper that has too much to read, and what it was given is held when it returns.
func TestHoldConn(t *testing.T) {
	const n = 2000
	r := newRig(t)
	w := r.runningWorker()
	sys.Signal(r.cmd.Process.Pid, syscall.SIGSTOP)
	w.send(command{Do: "conns", Key: 1000, N: n})
	time.Sleep(50 * time.Millisecond) // it waits by now, in most runs
	sys.Signal(r.cmd.Process.Pid, syscall.SIGCONT)
	var x reply
	w.conn.SetReadDeadline(time.Now().Add(patience))
	if err := w.in.Decode(&x); err != nil || !strings.Contains(x.Err, "closed") {
		t.Fatalf("%+v, %v: want the error of a listener that is closed", x, err)
	}
	w.kill()
	if held := r.runningWorker().do("held"); held.FDs != n || held.Missing != 0 {
		t.Errorf("%d items of %d, %d missing", held.FDs, n, held.Missing)
	}
	c, err := net.Dial("tcp", x.Text) // in whose queue clients wait
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A connection is not held before the worker may go on, nor by a keeper that has gone.
func TestHoldConnInVain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var w Worker
	if err := w.HoldConn([2]uint64{1}, "", l.(syscall.Conn)); err != ErrLost {
		t.Errorf("without a keeper: %v", err)
	}
	keeper, theirs, e := sys.Pair()
	if e != 0 {
		t.Fatal(e)
	}
	worker, err := newWorker(theirs)
	if err != nil {
		t.Fatal(err)
	}
	welcome := make([]uint64, startWords+reasonCount)
	welcome[0], welcome[9], welcome[10] = protocol, 100, 100 // its limits
	var fb sys.FDBuffer
	fb.Send(keeper, appendControl(nil, kindWelcome, 0, welcome, ""), nil)
	fb.Send(keeper, appendHeader(nil, kindMark, 0), nil)
	<-worker.mark
	if err := worker.HoldConn([2]uint64{1}, "", l.(syscall.Conn)); err != ErrBusy {
		t.Errorf("before Prepared: %v", err)
	}
	if s := worker.Stats(); s.Items != 0 || s.Queued != 0 {
		t.Errorf("it is queued: %+v", s)
	}
	if err := worker.Hold([2]uint64{1}, "label", nil); err != ErrItem {
		t.Errorf("held nothing: %v", err)
	}
	if err := worker.HoldConn([2]uint64{1}, strings.Repeat("x", MaxLabel+1), l.(syscall.Conn)); err != ErrItem {
		t.Errorf("a long label: %v", err)
	}
	sys.Linux{}.Close(keeper)
	<-worker.Lost()
	if err := worker.HoldConn([2]uint64{1}, "", l.(syscall.Conn)); err != ErrLost {
		t.Errorf("without a keeper any more: %v", err)
	}
}

// What an item's socket is, is had back from it; anything else is an error, and no descriptor is left.
func TestItem(t *testing.T) {
	open := func() []string {
		names, _ := os.ReadDir("/proc/self/fd")
		var all []string
		for _, n := range names {
			all = append(all, n.Name())
		}
		return all
	}
	dup := func(c any) Item {
		var fd int
		rc, err := c.(syscall.Conn).SyscallConn()
		if err == nil {
			err = rc.Control(func(of uintptr) {
				var e sys.Errno
				if fd, e = sys.Dup(int(of)); e != 0 {
					t.Error(e)
				}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return Item{Key: [2]uint64{3, 4}, Label: "label", FDs: []int{fd}}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := len(open())

	again, err := dup(l).Listener()
	if err != nil || again.Addr().String() != l.Addr().String() {
		t.Fatalf("%v, %v", again, err)
	}
	b, err := again.Accept()
	if err != nil {
		t.Fatal(err)
	}
	same, err := dup(a).Conn()
	if _, tcp := same.(*net.TCPConn); err != nil || !tcp || same.LocalAddr().String() != a.LocalAddr().String() {
		t.Fatalf("%v, %v", same, err)
	}
	fmt.Fprint(same, "hello")
	buf := make([]byte, 5)
	if n, err := b.Read(buf); string(buf[:n]) != "hello" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	datagrams, err := dup(p).PacketConn()
	if err != nil || datagrams.LocalAddr().String() != p.LocalAddr().String() {
		t.Fatalf("%v, %v", datagrams, err)
	}
	for _, c := range []interface{ Close() error }{again, b, same, datagrams} {
		c.Close()
	}

	file, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if c, err := dup(file).Conn(); err == nil {
		t.Errorf("a file is %T", c)
	}
	if c, err := dup(l).PacketConn(); err == nil {
		t.Errorf("a listener is %T", c)
	}
	if now := len(open()); now != before+1 {
		t.Errorf("%d descriptors are open, %d were: %v", now, before, open())
	}
	for _, fds := range [][]int{nil, {0, 1}} {
		if _, err := (Item{Key: [2]uint64{3, 4}, Label: "label", FDs: fds}).Listener(); err == nil || !strings.Contains(err.Error(), "3:4 (label)") {
			t.Errorf("%d descriptors: %v", len(fds), err)
		}
	}
	if _, err := (Item{}).Conn(); err == nil || errors.Is(err, os.ErrInvalid) {
		t.Error(err)
	}

	// The descriptor is used up by the first call, and its number is another file's now.
	used := dup(l)
	if c, err := used.PacketConn(); err == nil {
		t.Errorf("a listener is %T", c)
	}
	other := dup(l)
	if other.FDs[0] < 0 || used.FDs[0] != -1 {
		t.Fatalf("%v, then %v", used.FDs, other.FDs)
	}
	if c, err := used.Listener(); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "3:4 (label)") {
		t.Errorf("the item was used up: %v, %v", c, err)
	}
	last, err := other.Listener()
	if err != nil {
		t.Fatalf("somebody else's descriptor: %v", err)
	}
	last.Close()
}

// What a worker on standby has, and the one before it drops, is not held by anybody: the new one is told.
func TestDropped(t *testing.T) {
	keeper, theirs, e := sys.Pair()
	if e != 0 {
		t.Fatal(e)
	}
	w, err := newWorker(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var fb sys.FDBuffer
	send := func(b []byte, fds ...int) {
		if e := fb.Send(keeper, b, fds); e != 0 {
			t.Fatal(e)
		}
	}
	items := func(keys ...uint64) {
		b, fds := appendHeader(nil, kindItems, 1), []int(nil)
		for _, k := range keys {
			b, fds = appendItem(b, [2]uint64{k}, "label", 1), append(fds, keeper)
		}
		setCount(b, len(keys))
		send(b, fds...)
	}
	start := make([]uint64, startWords+reasonCount)
	start[0] = protocol
	send(appendControl(nil, kindWelcome, 0, start, ""))
	items(1, 2, 3)
	send(appendHeader(nil, kindMark, 0))
	<-w.mark
	early := w.Held()
	if n := len(w.Dropped()); len(early) != 3 || n != 0 {
		t.Errorf("early: %d items, and %d of them dropped", len(early), n)
	}
	send(appendHeader(nil, kindBegin, 0))
	items(1, 3, 4)
	send(appendControl(nil, kindGo, 0, start, ""))
	<-w.goOn
	rest := w.Held()
	if dropped := w.Dropped(); len(dropped) != 1 || dropped[0] != [2]uint64{2} || len(rest) != 1 || rest[0].Key != [2]uint64{4} {
		t.Errorf("dropped %v, and the rest is %v", dropped, rest)
	}
	for _, item := range append(early, rest...) {
		closeAll(item.FDs)
	}
	sys.Linux{}.Close(keeper)
	<-w.Lost()
}
