package keeper

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// lies are what a worker sends to a real keeper, with real descriptors.
var lies = map[string]func(w *Worker, send func(b []byte, fds ...int)){
	"garbage": func(w *Worker, send func([]byte, ...int)) { send([]byte("garbage"), 0, 1, 2) },
	"empty": func(w *Worker, send func([]byte, ...int)) {
		send(holdOf(1, "", 64).encode(), make([]int, 64)...)
		send(appendHeader(nil, kindAlive, 0)[:1])
	},
	"descriptors with nothing": func(w *Worker, send func([]byte, ...int)) {
		send(appendHeader(nil, kindAlive, 0), make([]int, maxBatchFDs)...)
	},
	"fewer than it says": func(w *Worker, send func([]byte, ...int)) { send(holdOf(1, "", 64).encode(), make([]int, 63)...) },
	"more than it says": func(w *Worker, send func([]byte, ...int)) {
		send(holdOf(1, "", 1).encode(), make([]int, maxBatchFDs)...)
	},
	"its own end of the connection": func(w *Worker, send func([]byte, ...int)) {
		// The keeper never sees the end of this connection; it has to notice the end of the process.
		send(holdOf(1, "", 1).encode(), w.out.fd)
		send(appendHeader(nil, kindGo, 0))
	},
	"random bytes": func(w *Worker, send func([]byte, ...int)) {
		for range 1000 {
			b := make([]byte, 1+rand.IntN(100))
			for i := range b {
				b[i] = byte(rand.Uint32())
			}
			b[0] = byte(rand.IntN(48))
			send(b, make([]int, rand.IntN(4))...)
		}
	},
	"second policy": func(w *Worker, send func([]byte, ...int)) {
		send(message{kind: kindPolicy, words: []uint64{0, 1}}.encode())
		send(message{kind: kindPolicy, words: []uint64{0}, texts: []string{"/"}}.encode())
	},
	"too many requests": func(w *Worker, send func([]byte, ...int)) {
		send(message{kind: kindPolicy, words: []uint64{0, 1}}.encode())
		for i := range uint32(10_000) {
			send(message{kind: kindAsk, seq: i, texts: []string{"open /etc/passwd"}}.encode())
		}
		send(appendHeader(nil, kindGo, 0))
	},
	"flood": func(w *Worker, send func([]byte, ...int)) {
		for i := range 6000 { // more than it may hold
			send(holdOf(uint64(i), "label", 1).encode(), 0)
			send(message{kind: kindUpgrade, words: []uint64{1}, texts: []string{"/nonexistent"}}.encode())
		}
		send(appendHeader(nil, kindHello, 0))
	},
}

// lie sends what it can until the keeper has ended this process.
func lie(w *Worker, name string) error {
	var fb sys.FDBuffer
	lies[name](w, func(b []byte, fds ...int) {
		w.raw.Write(func(uintptr) bool { return fb.Send(w.out.fd, b, fds) != sys.EAGAIN })
	})
	select {}
}

// A worker that lies costs the keeper nothing: after each one its descriptors are what they were.
func TestLiesWithDescriptors(t *testing.T) {
	r := newRig(t, func(c *childConfig) { c.Config.MaxItems, c.Config.Good = 5000, -1 })
	w := r.runningWorker()
	w.kill()
	for name := range lies {
		w = r.runningWorker()
		w.do("held")
		before := countFDs(r.cmd.Process.Pid)
		w.send(command{Do: "lie", Text: name})
		r.event("worker-killed")
		w = r.runningWorker()
		if held := w.do("held"); held.Missing != 0 || held.FDs > 5000 {
			t.Errorf("%s: %d items, %d missing", name, held.FDs, held.Missing)
		}
		w.do("drop-held")
		r.settled(name+": descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) <= before })
		w.kill()
	}
	w = r.runningWorker()
	if held := w.do("held"); held.FDs != 0 {
		t.Errorf("%d items", held.FDs)
	}
}

// Descriptors of any kind are held: the keeper does nothing with them.
func TestOddDescriptors(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.do("odd")
	w.kill()
	w = r.runningWorker()
	held := w.do("held")
	if held.FDs < 5 || held.Missing != 0 {
		t.Errorf("%d items, %d missing", held.FDs, held.Missing)
	}
	w.order(command{Do: "drop-held"})
	r.settled("descriptors of the keeper", func() bool { return countFDs(r.cmd.Process.Pid) < 40 })
}

// holdOdd holds one item of each odd kind.
func holdOdd(w *Worker) error {
	var fds []int
	for _, path := range []string{"/", os.DevNull, "/proc/self/maps", "/proc/self/exe", "/proc/self/ns/net", "/proc/self/fd"} {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		fds = append(fds, int(f.Fd()))
	}
	a, b, e := sys.Pair()
	if e != 0 {
		return e
	}
	var fb sys.FDBuffer
	if e := fb.Send(a, []byte("x"), []int{a, b}); e != 0 { // a socket that has itself in its queue
		return e
	}
	fds = append(fds, a, b)
	for i, fd := range fds {
		if err := w.Hold([2]uint64{uint64(i), 9}, "odd", []int{fd}); err != nil {
			return err
		}
	}
	return flush(w)
}

// More descriptors in flight than the limit of the user allows: Flush says so, and nothing is lost.
func TestTooManyInFlight(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	sys.Signal(r.cmd.Process.Pid, syscall.SIGSTOP)
	n := w.do("crowd").FDs
	sys.Signal(r.cmd.Process.Pid, syscall.SIGCONT)
	w.do("flush")
	w.kill()
	w = r.runningWorker()
	if held := w.do("held"); held.FDs != n || held.Missing != 0 {
		t.Errorf("%d items of %d, %d missing", held.FDs, n, held.Missing)
	}
}

// A closed descriptor among good ones: only its item is not held.
func TestBadDescriptor(t *testing.T) {
	r := newRig(t)
	w := r.runningWorker()
	w.order(command{Do: "bad"})
	w.kill()
	w = r.runningWorker()
	if held := w.do("held"); held.FDs != 2 {
		t.Errorf("%d items", held.FDs)
	}
}

func holdBad(w *Worker) error {
	for i, fd := range []int{0, 9999, 1} {
		w.Hold([2]uint64{uint64(i), 1}, "", []int{fd})
	}
	if err := w.Flush(); err == nil || !strings.Contains(err.Error(), "bad file descriptor") {
		return fmt.Errorf("Flush: %v", err)
	}
	return w.Flush()
}

// All labels together are bounded, and what is dropped makes room.
func TestLabelsAreBounded(t *testing.T) {
	w := newWorld(t, Config{}, 1000)
	w.ready(1)
	label := strings.Repeat("x", MaxLabel)
	most := (labelBytes + labelBytesPerFD*w.m.limit) / MaxLabel
	for key := range most + 10 {
		w.say(1, holdOf(uint64(key), label, 1), w.fds(1)...)
	}
	if n := w.m.table.len(); n != most {
		t.Errorf("%d items with long labels, want %d", n, most)
	}
	w.say(1, message{kind: kindDrop, keys: [][2]uint64{{0, 0}}})
	w.say(1, holdOf(9999, label, 1), w.fds(1)...)
	if n := w.m.table.len(); n != most || w.saw("lied") {
		t.Errorf("%d items after one was dropped, want %d: %v", n, most, w.lines)
	}
}
