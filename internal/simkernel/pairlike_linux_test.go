package simkernel

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// pairRun is a script of a pair of sockets that pass descriptors, on one of the kernels.
type pairRun struct {
	k    sys.Kernel
	fds  [2]int // -1: closed
	pipe [2]int // its ends are passed
	got  []int
}

func newPairRun(t *testing.T, k sys.Kernel) *pairRun {
	r := &pairRun{k: k}
	var e sys.Errno
	if p, ok := k.(*Process); ok {
		r.fds[0], r.fds[1], e = p.NewPair(p)
	} else {
		r.fds[0], r.fds[1], e = sys.Pair()
	}
	if e != 0 {
		t.Fatal(e)
	}
	if r.pipe[0], r.pipe[1], _, e = k.Pipe(4096); e != 0 {
		t.Fatal(e)
	}
	return r
}

func (r *pairRun) send(fd int, b []byte, fds []int) sys.Errno {
	if p, ok := r.k.(*Process); ok {
		return p.SendFDs(fd, b, fds)
	}
	return new(sys.FDBuffer).Send(fd, b, fds)
}

func (r *pairRun) recv(fd int, b []byte) (int, []int, bool, sys.Errno) {
	if p, ok := r.k.(*Process); ok {
		return p.RecvFDs(fd, b, nil)
	}
	return new(sys.FDBuffer).Recv(fd, b, nil)
}

// do makes a call, which x stands for, and tells what came of it.
func (r *pairRun) do(op, end, n int) string {
	fd := r.fds[end]
	if fd < 0 {
		return "closed"
	}
	switch op {
	case 0, 1, 2: // with no descriptor, one, or both ends of the pipe
		fds := [...][]int{nil, r.pipe[:1], r.pipe[:]}[op]
		return r.send(fd, []byte(strings.Repeat("x", n)), fds).Error()
	case 3: // one of them is bad
		return r.send(fd, []byte("x"), []int{r.pipe[0], 1 << 30}).Error()
	case 4, 5, 6: // into enough room, or too little
		n, fds, lost, e := r.recv(fd, make([]byte, 100<<(4*(op-4))))
		r.got = append(r.got, fds...)
		text := fmt.Sprint(n, len(fds), lost, e)
		for i, fd := range fds { // what is read from is the reading end
			in, e := r.k.ReadQueued(fd)
			text += fmt.Sprint(" ", i, in, e)
		}
		return text
	case 7:
		r.fds[end] = -1
		return r.k.Close(fd).Error()
	}
	return "?"
}

func (r *pairRun) state() (text string) {
	for _, fd := range r.fds {
		if fd >= 0 {
			text += fmt.Sprintf("poll %#x; ", r.k.Poll(fd, sys.PollIn|sys.PollOut|sys.PollRdHup))
		}
	}
	return text
}

func (r *pairRun) close() {
	for _, fd := range append(r.got, r.fds[0], r.fds[1], r.pipe[0], r.pipe[1]) {
		if fd >= 0 {
			r.k.Close(fd)
		}
	}
}

// TestPairLikeLinux runs random scripts of calls on both kernels, which must agree about all that they say.
func TestPairLikeLinux(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		real, simulated := newPairRun(t, sys.Linux{}), newPairRun(t, New().NewProcess())
		var script []string
		for range 30 {
			op, end, n := rnd.IntN(8), rnd.IntN(2), 1+rnd.IntN(3000)
			if op == 7 && rnd.IntN(4) > 0 {
				op = 4
			}
			if rnd.IntN(20) == 0 {
				n = 300_000
			}
			script = append(script, fmt.Sprint(op, end, n))
			a, b := real.do(op, end, n)+" "+real.state(), simulated.do(op, end, n)+" "+simulated.state()
			if a != b {
				t.Errorf("seed %d, %s:\nLinux     %s\nsimulated %s", seed, strings.Join(script, ", "), a, b)
				break
			}
		}
		real.close()
		simulated.close()
	}
}

// TestPassedFilesAreClosed closes what was on its way when nobody is left who could get it, or who has no room for it.
func TestPassedFilesAreClosed(t *testing.T) {
	w := New()
	a, b := w.NewProcess(), w.NewProcess()
	own, theirs, _ := a.NewPair(b)
	var refs []*file
	for range 3 {
		r, wr, _, _ := a.Pipe(4096)
		refs = append(refs, a.file(r), a.file(wr))
		if e := a.SendFDs(own, []byte("x"), []int{r, wr}); e != 0 {
			t.Fatal(e)
		}
		a.Close(r)
		a.Close(wr)
	}
	b.Limit = 2 // beside its end of the pair
	if _, fds, lost, e := b.RecvFDs(theirs, make([]byte, 10), nil); len(fds) != 1 || !lost || e != 0 {
		t.Fatalf("got %d, lost %v: %v", len(fds), lost, e)
	}
	if refs[0].refs != 1 || refs[1].refs != 0 {
		t.Errorf("the first two have %d and %d references", refs[0].refs, refs[1].refs)
	}
	b.Exit()
	for i, f := range refs {
		if f.refs != 0 {
			t.Errorf("file %d has %d references when all have gone", i, f.refs)
		}
	}
	if w.flying != 0 {
		t.Errorf("%d descriptors are on their way", w.flying)
	}
}
