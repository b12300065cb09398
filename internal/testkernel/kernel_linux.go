package testkernel

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// Call is a kind of system call.
type Call uint8

// The kinds. Splices are counted by direction: In fills a pipe, Out empties one.
const (
	Recv Call = iota
	Discard
	Send
	SpliceIn
	SpliceOut
	AtMark
	ReadPipe
	Pipe
	Socket
	Connect
	Accept
	Shutdown
	RcvLowat
	Close
	Datagram
	RecvBatch
	SendBatch
	SendRun // a SendBatch whose first message is a GSO run
	RecvOne
	SendOne
	Disconnect
	ShutdownBoth
	calls
)

var callNames = [calls]string{"recv", "discard", "send", "splice-in", "splice-out", "at-mark", "read-pipe", "pipe", "socket", "connect", "accept",
	"shutdown", "rcvlowat", "close", "datagram", "recv-batch", "send-batch", "send-run", "recv-one", "send-one", "disconnect", "shutdown-both"}

func (c Call) String() string { return callNames[c] }

// Kernel is the real kernel with counters and faults. Each test makes its own. It is safe for
// concurrent use; calls without faults do not allocate.
type Kernel struct {
	sys.Linux // what is not counted
	real      sys.Linux
	counts    [calls]atomic.Int64
	armed     atomic.Bool // there are faults
	passed    atomic.Int64
	stopped   atomic.Pointer[time.Time] // nil: the clock goes

	mu     sync.Mutex
	rules  [calls][]*rule
	random *random
	pipes  map[int]bool // both ends of open pipes
	lowat  map[int]int  // SO_RCVLOWAT by descriptor
	wrong  []string
}

// New returns a kernel without faults.
func New() *Kernel {
	return &Kernel{pipes: make(map[int]bool), lowat: make(map[int]int)}
}

var _ sys.Kernel = (*Kernel)(nil)

// Now returns the time, or that of [Kernel.StopClock], and what [Kernel.Pass] has added to it.
func (k *Kernel) Now() time.Time {
	if stopped := k.stopped.Load(); stopped != nil {
		return stopped.Add(time.Duration(k.passed.Add(1)))
	}
	return k.real.Now().Add(time.Duration(k.passed.Load()))
}

// StopClock stops the clock: from now on only [Kernel.Pass] lets time pass, and a nanosecond with each look at the clock, since code may rely
// on that it never stands still. So nothing is due because a machine is slow. A loop that waits for what is due waits again.
func (k *Kernel) StopClock() {
	now := k.real.Now()
	k.stopped.Store(&now)
}

// Pass lets time pass: the clock of everything that has this kernel is later by d. A loop that sleeps does not notice until it is woken.
func (k *Kernel) Pass(d time.Duration) { k.passed.Add(int64(d)) }

// rule is one fault.
type rule struct {
	errno sys.Errno
	limit int // maximum number of bytes to move; 0 means to return errno
	skip  int // number of calls that succeed before
	times int // how often; negative means always
}

// random holds seeded random faults.
type random struct {
	rand  *rand.Rand
	n     int // one call in n
	kinds map[Call][]sys.Errno
	short map[Call]bool
}

// Fail makes the next calls of a kind fail with errno, times times; negative means from now on.
func (k *Kernel) Fail(c Call, errno sys.Errno, times int) {
	k.add(c, &rule{errno: errno, times: times})
}

// FailAfter is like Fail, after skip calls that succeed.
func (k *Kernel) FailAfter(skip int, c Call, errno sys.Errno, times int) {
	k.add(c, &rule{errno: errno, skip: skip, times: times})
}

// Short lets the next calls of a kind move at most n bytes, times times; negative means from now
// on. For Pipe, n is the size that the kernel grants.
func (k *Kernel) Short(c Call, n, times int) { k.add(c, &rule{limit: n, times: times}) }

func (k *Kernel) add(c Call, r *rule) {
	k.mu.Lock()
	k.rules[c] = append(k.rules[c], r)
	k.mu.Unlock()
	k.armed.Store(true)
}

// Random makes a call of the kinds in errnos fail with one of their errors, and a call of the kinds
// in short move only its first bytes, each with a probability of 1/n.
func (k *Kernel) Random(seed uint64, n int, errnos map[Call][]sys.Errno, short ...Call) {
	r := &random{rand: rand.New(rand.NewPCG(seed, 0)), n: n, kinds: errnos, short: make(map[Call]bool)}
	for _, c := range short {
		r.short[c] = true
	}
	k.mu.Lock()
	k.random = r
	k.mu.Unlock()
	k.armed.Store(true)
}

// Heal removes all faults.
func (k *Kernel) Heal() {
	k.armed.Store(false)
	k.mu.Lock()
	k.rules = [calls][]*rule{}
	k.random = nil
	k.mu.Unlock()
}

// Count returns how many calls of a kind were made, including failed ones.
func (k *Kernel) Count(c Call) int { return int(k.counts[c].Load()) }

// Counts returns the counters that are not zero, for messages.
func (k *Kernel) Counts() string {
	s := ""
	for c := range calls {
		if n := k.counts[c].Load(); n > 0 {
			s += fmt.Sprintf(" %s=%d", c, n)
		}
	}
	return s
}

// OpenPipes returns how many pipes are open.
func (k *Kernel) OpenPipes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pipes) / 2
}

// Lowat returns fd's low-water mark as set last, or 0 if it was never set.
func (k *Kernel) Lowat(fd int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lowat[fd]
}

// Wrong returns what callers did that is never allowed, such as closing a descriptor twice.
func (k *Kernel) Wrong() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wrong
}

// ask counts a call and decides about it: limit is the maximum number of bytes to move; errno, if
// not 0, is the result.
func (k *Kernel) ask(c Call, want int) (limit int, errno sys.Errno) {
	k.counts[c].Add(1)
	if !k.armed.Load() {
		return want, 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range k.rules[c] {
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.times--; r.times == 0 {
			k.rules[c] = append(k.rules[c][:i:i], k.rules[c][i+1:]...)
		}
		if r.limit > 0 {
			return min(want, r.limit), 0
		}
		return 0, r.errno
	}
	if r := k.random; r != nil && r.rand.IntN(r.n) == 0 {
		n := len(r.kinds[c])
		if r.short[c] && want > 1 && (n == 0 || r.rand.IntN(2) == 0) {
			return 1 + r.rand.IntN(want-1), 0
		}
		if n > 0 {
			return 0, r.kinds[c][r.rand.IntN(n)]
		}
	}
	return want, 0
}

// Recv implements [sys.Kernel].
func (k *Kernel) Recv(fd int, p []byte) (int, sys.Errno) {
	n, e := k.ask(Recv, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.Recv(fd, p[:n])
}

// Discard implements [sys.Kernel].
func (k *Kernel) Discard(fd int, p []byte, tcp bool) (int, sys.Errno) {
	n, e := k.ask(Discard, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.Discard(fd, p[:n], tcp)
}

// Send implements [sys.Kernel].
func (k *Kernel) Send(fd int, p []byte) (int, sys.Errno) {
	n, e := k.ask(Send, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.Send(fd, p[:n])
}

// Splice implements [sys.Kernel].
func (k *Kernel) Splice(rfd, wfd, n int) (int, sys.Errno) {
	c := SpliceIn
	k.mu.Lock()
	if k.pipes[rfd] {
		c = SpliceOut
	}
	k.mu.Unlock()
	n, e := k.ask(c, n)
	if e != 0 {
		return 0, e
	}
	return k.real.Splice(rfd, wfd, n)
}

// AtMark implements [sys.Kernel]. It cannot fail.
func (k *Kernel) AtMark(fd int) bool {
	k.counts[AtMark].Add(1)
	return k.real.AtMark(fd)
}

// ReadPipe implements [sys.Kernel].
func (k *Kernel) ReadPipe(fd int, p []byte) (int, sys.Errno) {
	n, e := k.ask(ReadPipe, len(p))
	if e != 0 {
		return 0, e
	}
	return k.real.ReadPipe(fd, p[:n])
}

// Pipe implements [sys.Kernel].
func (k *Kernel) Pipe(size int) (r, w, got int, errno sys.Errno) {
	n, e := k.ask(Pipe, size)
	if e != 0 {
		return -1, -1, 0, e
	}
	if r, w, got, errno = k.real.Pipe(n); errno == 0 {
		k.mu.Lock()
		k.pipes[r], k.pipes[w] = true, true
		k.mu.Unlock()
	}
	return r, w, got, errno
}

// Socket implements [sys.Kernel].
func (k *Kernel) Socket(family sys.Family, mptcp bool) (int, sys.Errno) {
	if _, e := k.ask(Socket, 0); e != 0 {
		return -1, e
	}
	return k.real.Socket(family, mptcp)
}

// Connect implements [sys.Kernel].
func (k *Kernel) Connect(fd int, sa *sys.Sockaddr) sys.Errno {
	if _, e := k.ask(Connect, 0); e != 0 {
		return e
	}
	return k.real.Connect(fd, sa)
}

// Accept implements [sys.Kernel].
func (k *Kernel) Accept(fd int, sa *sys.Sockaddr) (int, sys.Errno) {
	if _, e := k.ask(Accept, 0); e != 0 {
		return -1, e
	}
	return k.real.Accept(fd, sa)
}

// ShutdownWrite implements [sys.Kernel].
func (k *Kernel) ShutdownWrite(fd int) sys.Errno {
	if _, e := k.ask(Shutdown, 0); e != 0 {
		return e
	}
	return k.real.ShutdownWrite(fd)
}

// RcvLowat implements [sys.Kernel].
func (k *Kernel) RcvLowat(fd, n int) sys.Errno {
	if _, e := k.ask(RcvLowat, 0); e != 0 {
		return e
	}
	e := k.real.RcvLowat(fd, n)
	if e == 0 {
		k.mu.Lock()
		k.lowat[fd] = n
		k.mu.Unlock()
	}
	return e
}

// Close implements [sys.Kernel].
func (k *Kernel) Close(fd int) sys.Errno {
	k.counts[Close].Add(1)
	// Under the lock, so that no other thread gets the same descriptor number in between.
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.real.Close(fd)
	if e != 0 {
		k.wrong = append(k.wrong, fmt.Sprintf("close of fd %d: %v", fd, e))
	}
	delete(k.pipes, fd)
	delete(k.lowat, fd)
	return e
}
