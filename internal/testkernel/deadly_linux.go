package testkernel

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
)

// Deadly is the real kernel until the process makes its last system call: it kills the process in front
// of that call or behind it, before the caller learns the result. It belongs into a child process.
type Deadly struct {
	sys.Linux // what is not counted
	real      sys.Linux
	at        int64 // the number of the last call, from 1; 0: never
	after     bool
	tell      io.Writer
	n         atomic.Int64
}

// NewDeadly returns a kernel that kills the process in front of its call number at, or behind it. If at
// is 0 it only counts.
func NewDeadly(at int, after bool) *Deadly { return &Deadly{at: int64(at), after: after} }

var _ sys.Kernel = (*Deadly)(nil)

// Tell makes the process say where it dies, with a stack.
func (k *Deadly) Tell(w io.Writer) { k.tell = w }

// Count returns the number of calls so far.
func (k *Deadly) Count() int { return int(k.n.Load()) }

// Check does something that is no call of [sys.Kernel], such as to send a message to another process, and
// counts it as one: the process may also die in front of it or behind it.
func (k *Deadly) Check(name string, do func()) {
	n := k.ahead(name)
	do()
	k.behind(name, n)
}

// ahead is called in front of a call, and returns its number.
func (k *Deadly) ahead(name string) int64 {
	n := k.n.Add(1)
	if n == k.at && !k.after {
		k.die("in front of", name)
	}
	return n
}

// behind is called when the kernel has done what was asked for, and nobody knows it yet.
func (k *Deadly) behind(name string, n int64) {
	if n == k.at && k.after {
		k.die("behind", name)
	}
}

// die kills the process. It does not return.
func (k *Deadly) die(where, name string) {
	if k.tell != nil {
		fmt.Fprintf(k.tell, "testkernel: killed %s call %d, %s\n%s", where, k.at, name, debug.Stack())
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

// Recv implements [sys.Kernel].
func (k *Deadly) Recv(fd int, p []byte) (int, sys.Errno) {
	c := k.ahead("recv")
	n, e := k.real.Recv(fd, p)
	k.behind("recv", c)
	return n, e
}

// Discard implements [sys.Kernel].
func (k *Deadly) Discard(fd int, p []byte, tcp bool) (int, sys.Errno) {
	c := k.ahead("discard")
	n, e := k.real.Discard(fd, p, tcp)
	k.behind("discard", c)
	return n, e
}

// Send implements [sys.Kernel].
func (k *Deadly) Send(fd int, p []byte) (int, sys.Errno) {
	c := k.ahead("send")
	n, e := k.real.Send(fd, p)
	k.behind("send", c)
	return n, e
}

// RecvOne implements [sys.Kernel].
func (k *Deadly) RecvOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	c := k.ahead("recv-one")
	n, e := k.real.RecvOne(fd, m, p)
	k.behind("recv-one", c)
	return n, e
}

// SendOne implements [sys.Kernel].
func (k *Deadly) SendOne(fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	c := k.ahead("send-one")
	n, e := k.real.SendOne(fd, m, p)
	k.behind("send-one", c)
	return n, e
}

// Splice implements [sys.Kernel].
func (k *Deadly) Splice(rfd, wfd, n int) (int, sys.Errno) {
	c := k.ahead("splice")
	n, e := k.real.Splice(rfd, wfd, n)
	k.behind("splice", c)
	return n, e
}

// AtMark implements [sys.Kernel]. It changes nothing, and is no place to die.
func (k *Deadly) AtMark(fd int) bool { return k.real.AtMark(fd) }

// ReadPipe implements [sys.Kernel].
func (k *Deadly) ReadPipe(fd int, p []byte) (int, sys.Errno) {
	c := k.ahead("read-pipe")
	n, e := k.real.ReadPipe(fd, p)
	k.behind("read-pipe", c)
	return n, e
}

// Pipe implements [sys.Kernel].
func (k *Deadly) Pipe(size int) (r, w, got int, errno sys.Errno) {
	c := k.ahead("pipe")
	r, w, got, errno = k.real.Pipe(size)
	k.behind("pipe", c)
	return r, w, got, errno
}

// Socket implements [sys.Kernel].
func (k *Deadly) Socket(family sys.Family, mptcp bool) (int, sys.Errno) {
	c := k.ahead("socket")
	fd, e := k.real.Socket(family, mptcp)
	k.behind("socket", c)
	return fd, e
}

// Connect implements [sys.Kernel].
func (k *Deadly) Connect(fd int, sa *sys.Sockaddr) sys.Errno {
	c := k.ahead("connect")
	e := k.real.Connect(fd, sa)
	k.behind("connect", c)
	return e
}

// Accept implements [sys.Kernel].
func (k *Deadly) Accept(fd int, sa *sys.Sockaddr) (int, sys.Errno) {
	c := k.ahead("accept")
	n, e := k.real.Accept(fd, sa)
	k.behind("accept", c)
	return n, e
}

// ShutdownWrite implements [sys.Kernel].
func (k *Deadly) ShutdownWrite(fd int) sys.Errno {
	c := k.ahead("shutdown")
	e := k.real.ShutdownWrite(fd)
	k.behind("shutdown", c)
	return e
}

// ShutdownBoth implements [sys.Kernel].
func (k *Deadly) ShutdownBoth(fd int) sys.Errno {
	c := k.ahead("shutdown-both")
	e := k.real.ShutdownBoth(fd)
	k.behind("shutdown-both", c)
	return e
}

// Disconnect implements [sys.Kernel].
func (k *Deadly) Disconnect(fd int) sys.Errno {
	c := k.ahead("disconnect")
	e := k.real.Disconnect(fd)
	k.behind("disconnect", c)
	return e
}

// RcvLowat implements [sys.Kernel].
func (k *Deadly) RcvLowat(fd, n int) sys.Errno {
	c := k.ahead("rcvlowat")
	e := k.real.RcvLowat(fd, n)
	k.behind("rcvlowat", c)
	return e
}

// Close implements [sys.Kernel].
func (k *Deadly) Close(fd int) sys.Errno {
	c := k.ahead("close")
	e := k.real.Close(fd)
	k.behind("close", c)
	return e
}

// Datagram implements [sys.Kernel].
func (k *Deadly) Datagram(family sys.Family) (int, sys.Errno) {
	c := k.ahead("datagram")
	fd, e := k.real.Datagram(family)
	k.behind("datagram", c)
	return fd, e
}

// RecvBatch implements [sys.Kernel].
func (k *Deadly) RecvBatch(fd int, family sys.Family, v *sys.Vector, from, n int) (int, sys.Errno) {
	c := k.ahead("recv-batch")
	n, e := k.real.RecvBatch(fd, family, v, from, n)
	k.behind("recv-batch", c)
	return n, e
}

// SendBatch implements [sys.Kernel].
func (k *Deadly) SendBatch(fd int, v *sys.Vector, from, n int) (int, sys.Errno) {
	c := k.ahead("send-batch")
	n, e := k.real.SendBatch(fd, v, from, n)
	k.behind("send-batch", c)
	return n, e
}
