package simkernel

import (
	"cmp"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// first is the lowest descriptor of a simulated process: lower ones are of the process that simulates.
const first = 1 << 28

// Process is a process, and implements [sys.Kernel] for it.
type Process struct {
	// Limit is how many descriptors it may have; 0: as many as World.Limit says.
	Limit int

	// Fault, if it is not nil, is called before each call that can move up to n bytes, and says how many it may move at most, or what
	// it fails with. n is 0 for calls that move none. Behind EAGAIN there is an edge, before the next call: what was missing has come.
	Fault func(call Call, n int) (most int, errno sys.Errno)
	// Choose chooses one of n sockets that listen on one address; nil: always the first.
	Choose func(n int) int
	// Before, if it is not nil, is called before each call: others do something meanwhile.
	Before func()

	w      *World
	files  []*file // by descriptor
	mapped []*file
	free   int // no lower one is free
	open   int
	calls  int
	dies   int // the number of half calls until the process dies; 0: it does not
	edges  []edge
	moves  mover
}

// edge is one that is due before the next call.
type edge struct {
	file *file
	key  uint32
}

// Call is a kind of system call.
type Call string

// Died is what a process panics with when it dies in a call.
type Died struct{ Call Call }

// NewProcess returns a process without descriptors.
func (w *World) NewProcess() *Process { return &Process{w: w} }

// DieAfter makes the process die at its n-th place from now on: in front of a call, or behind it, when the kernel has done what was
// asked for and the process does not know it yet. The call panics with [Died].
func (p *Process) DieAfter(n int) { p.dies = n }

// Calls returns how many calls the process has made.
func (p *Process) Calls() int { return p.calls }

// Open returns how many descriptors the process has.
func (p *Process) Open() int { return p.open }

// WaitsUntil returns until when the process has said last that it waits, since [New], with that of its epoll instances that is over
// first; negative: for ever.
func (p *Process) WaitsUntil() time.Duration {
	until := time.Duration(-1)
	for _, f := range p.files {
		if f != nil && f.epoll != nil && f.epoll.until >= 0 && (until < 0 || f.epoll.until < until) {
			until = f.epoll.until
		}
	}
	return until
}

// Exit closes all descriptors, as the end of a process does.
func (p *Process) Exit() {
	for fd, f := range p.files {
		if f != nil {
			p.files[fd] = nil
			f.release()
		}
	}
	for _, f := range p.mapped {
		f.release()
	}
	p.files, p.mapped, p.open = nil, nil, 0
}

// Pass gives another process a descriptor of the same file, which it returns.
func (p *Process) Pass(fd int, to *Process) (int, sys.Errno) {
	f := p.file(fd)
	if f == nil {
		return -1, syscall.EBADF
	}
	f.refs++
	return to.install(f)
}

// Number returns a number that the socket of fd has and no other of this world, and that of the socket at the other end of its stream;
// 0: there is none.
func (p *Process) Number(fd int) (own, peer int) {
	s, e := p.socket(fd)
	if e != 0 {
		return 0, 0
	}
	switch s := s.(type) {
	case *tcpSocket:
		return s.number, s.origin
	case *unixSocket:
		return s.number, s.peer.numberOf()
	}
	return s.shared().number, 0
}

// Name returns the address of the socket of fd; the zero AddrPort if it has none.
func (p *Process) Name(fd int) netip.AddrPort {
	var sa sys.Sockaddr
	if p.LocalAddr(fd, &sa) != 0 {
		return netip.AddrPort{}
	}
	return sa.AddrPort()
}

// Point is a place where the process may die, in a call of something that the kernel does not simulate.
func (p *Process) Point(c Call) { p.point(c) }

// point is a place where the process may die.
func (p *Process) point(c Call) {
	if p.dies > 0 {
		if p.dies--; p.dies == 0 {
			panic(Died{c})
		}
	}
}

// begin begins a call that can move up to n bytes.
func (p *Process) begin(c Call, n int) (most int, e sys.Errno) {
	p.point(c)
	p.calls++
	if p.w.Trace != nil {
		p.w.Trace(c, n)
	}
	for _, x := range p.edges {
		x.file.wake(x.key)
	}
	p.edges = p.edges[:0]
	if p.Before != nil {
		p.Before()
	}
	if p.Fault != nil {
		return p.Fault(c, n)
	}
	return n, 0
}

// beginOn is begin for a call that waits, if it has to, until there is something to read from a file or room to write to it.
func (p *Process) beginOn(c Call, n, fd int, key uint32) (most int, e sys.Errno) {
	most, e = p.begin(c, n)
	if f := p.file(fd); e == sys.EAGAIN && f != nil {
		p.edges = append(p.edges, edge{f, key})
	}
	return most, e
}

func (p *Process) file(fd int) *file {
	if i := fd - first; i >= 0 && i < len(p.files) {
		return p.files[i]
	}
	return nil
}

func (p *Process) install(f *file) (int, sys.Errno) {
	for ; p.free < len(p.files) && p.files[p.free] != nil; p.free++ {
	}
	if p.free >= p.limit() {
		if f.refs > 0 {
			f.release()
		}
		return -1, sys.EMFILE
	}
	if p.free == len(p.files) {
		p.files = append(p.files, nil)
	}
	p.files[p.free] = f
	p.open++
	p.free++
	return first + p.free - 1, 0
}

// Socket implements [sys.Kernel].
func (p *Process) Socket(family sys.Family, mptcp bool) (int, sys.Errno) {
	if _, e := p.begin("socket", 0); e != 0 {
		return -1, e
	}
	var s stream
	if family == sys.Unix {
		s = newUnix(p.w)
	} else {
		s = newTCP(p.w)
	}
	fd, e := p.install(newFile(s))
	p.point("socket")
	return fd, e
}

// StreamPair implements [sys.Kernel].
func (p *Process) StreamPair() (a, b int, errno sys.Errno) {
	if _, e := p.begin("socketpair", 0); e != 0 {
		return -1, -1, e
	}
	x, y := newUnix(p.w), newUnix(p.w)
	x.state, x.peer, y.state, y.peer = unixEstablished, y, unixEstablished, x
	if a, errno = p.install(newFile(x)); errno != 0 {
		return -1, -1, errno
	}
	if b, errno = p.install(newFile(y)); errno != 0 {
		p.Close(a)
		return -1, -1, errno
	}
	p.point("socketpair")
	return a, b, 0
}

// Connect implements [sys.Kernel].
func (p *Process) Connect(fd int, sa *sys.Sockaddr) sys.Errno {
	if _, e := p.begin("connect", 0); e != 0 {
		return e
	}
	if g := p.gram(fd); g != nil {
		e := g.connect(sa)
		p.point("connect")
		return e
	}
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	choose := p.Choose
	if choose == nil {
		choose = func(int) int { return 0 }
	}
	e = s.connect(sa, choose)
	p.point("connect")
	return e
}

// Bind implements [sys.Kernel].
func (p *Process) Bind(fd int, sa *sys.Sockaddr) sys.Errno {
	if g := p.gram(fd); g != nil {
		return g.bindTo(sa)
	}
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	return s.bind(sa)
}

// Listen implements [sys.Kernel].
func (p *Process) Listen(fd, backlog int) sys.Errno {
	s, e := p.stream(fd)
	if e != 0 {
		return e
	}
	return s.listen(backlog)
}

// Accept implements [sys.Kernel].
func (p *Process) Accept(fd int, sa *sys.Sockaddr) (int, sys.Errno) {
	if _, e := p.beginOn("accept", 0, fd, wakeRead); e != 0 {
		return -1, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return -1, e
	}
	c, from, e := s.accept(p.open >= p.limit())
	if e != 0 {
		return -1, e
	}
	nfd, e := p.install(newFile(c))
	if e == 0 {
		*sa = from
	}
	p.point("accept")
	return nfd, e
}

// Close implements [sys.Kernel].
func (p *Process) Close(fd int) sys.Errno {
	p.point("close")
	f := p.file(fd)
	if f == nil {
		return syscall.EBADF
	}
	p.calls++
	p.files[fd-first] = nil
	p.open--
	p.free = min(p.free, fd-first)
	f.release()
	p.point("close")
	return 0
}

// Dup implements [sys.Kernel].
func (p *Process) Dup(fd int) (int, sys.Errno) { return p.Pass(fd, p) }

// Recv implements [sys.Kernel].
func (p *Process) Recv(fd int, b []byte) (int, sys.Errno) {
	most, e := p.beginOn("recv", len(b), fd, wakeRead)
	if e != 0 {
		return 0, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return 0, e
	}
	n, e := p.moves.recvInto(s, b, most)
	p.point("recv")
	return n, e
}

// Discard implements [sys.Kernel].
func (p *Process) Discard(fd int, b []byte, tcp bool) (int, sys.Errno) {
	if _, e := p.begin("discard", 0); e != 0 {
		return 0, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return 0, e
	}
	n := len(b)
	if tcp {
		n = 1 << 20
	}
	n, e = s.recv(n, func([]byte) {})
	p.point("discard")
	return n, e
}

// RecvOne implements [sys.Kernel]. recvmmsg(2) tells an error before what was received in front of it.
func (p *Process) RecvOne(fd int, m *sys.Message, b []byte) (int, sys.Errno) {
	p.point("recv-one") // what the last call has left there is still in m
	m.Clear()
	most, e := p.beginOn("recv-one", len(b), fd, wakeRead)
	if e != 0 {
		return 0, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return 0, e
	}
	if e = s.shared().takeError(); e != 0 {
		p.point("recv-one")
		return 0, e
	}
	n, e := p.moves.recvInto(s, b, most)
	if e == 0 {
		m.SetMoved(n)
	}
	p.point("recv-one")
	return n, e
}

// Send implements [sys.Kernel].
func (p *Process) Send(fd int, b []byte) (int, sys.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	most, e := p.beginOn("send", len(b), fd, wakeWrite)
	if e != 0 {
		return 0, e
	}
	if g := p.gram(fd); g != nil { // whole, or not at all
		n, e := g.send(b)
		p.point("send")
		return n, e
	}
	s, e := p.stream(fd)
	if e != 0 {
		return 0, e
	}
	n, e := p.moves.sendFrom(s, b[:most])
	p.point("send")
	return n, e
}

// SendOne implements [sys.Kernel].
func (p *Process) SendOne(fd int, m *sys.Message, b []byte) (int, sys.Errno) {
	p.point("send-one")
	m.Clear()
	n, e := 0, sys.Errno(0)
	if len(b) > 0 {
		most := 0
		if most, e = p.beginOn("send-one", len(b), fd, wakeWrite); e != 0 {
			return 0, e
		}
		s, bad := p.stream(fd)
		if bad != 0 {
			return 0, bad
		}
		n, e = p.moves.sendFrom(s, b[:most])
	}
	if e == 0 {
		m.SetMoved(n)
	}
	p.point("send-one")
	return n, e
}

// Splice implements [sys.Kernel].
func (p *Process) Splice(rfd, wfd, n int) (int, sys.Errno) {
	waits, key := rfd, uint32(wakeRead)
	if f := p.file(rfd); f != nil && f.pipe != nil {
		waits, key = wfd, wakeWrite
	}
	most, e := p.beginOn("splice", n, waits, key)
	if _, secure := p.secureSocket(rfd); e == sys.EINVAL && secure == 0 {
		most, e = n, 0 // a socket with kTLS has its own splice_read, which says so of what is no data, and of an error
	}
	if e != 0 {
		return 0, e
	}
	from, to := p.file(rfd), p.file(wfd)
	if from == nil || to == nil {
		return 0, syscall.EBADF
	}
	in, ok := from.socket.(stream)
	out, also := to.socket.(stream)
	switch {
	case ok && to.pipe != nil:
		n, e = spliceTo(in, p.w, to.pipe, most)
	case also && from.pipe != nil:
		n, e = spliceFrom(out, from.pipe, most)
	default:
		return 0, sys.EINVAL
	}
	p.point("splice")
	return n, e
}

// ReadPipe implements [sys.Kernel].
func (p *Process) ReadPipe(fd int, b []byte) (int, sys.Errno) {
	most, e := p.begin("read-pipe", len(b))
	if e != 0 {
		return 0, e
	}
	f := p.file(fd)
	switch {
	case f == nil || f.pipe == nil:
		return 0, syscall.EBADF
	case f.pipe.queued() == 0:
		return 0, sys.EAGAIN
	}
	n := 0
	f.pipe.take(min(most, f.pipe.queued()), func(in []byte) { n += copy(b[n:], in) })
	p.point("read-pipe")
	return n, 0
}

// Pipe implements [sys.Kernel].
func (p *Process) Pipe(size int) (r, w, got int, errno sys.Errno) {
	if _, e := p.begin("pipe", 0); e != 0 {
		return -1, -1, 0, e
	}
	slots := max(1, (size+pageSize-1)/pageSize)
	pi := &pipe{memory: p.w.memory, most: slots}
	r, e := p.install(&file{refs: 1, pipe: pi})
	if e != 0 {
		return -1, -1, 0, e
	}
	w, e = p.install(&file{refs: 1, pipe: pi, writes: true})
	if e != 0 {
		p.Close(r)
		return -1, -1, 0, e
	}
	p.point("pipe")
	return r, w, slots * pageSize, 0
}

// ShutdownWrite implements [sys.Kernel].
func (p *Process) ShutdownWrite(fd int) sys.Errno { return p.shutdown(fd, false) }

// ShutdownBoth implements [sys.Kernel].
func (p *Process) ShutdownBoth(fd int) sys.Errno { return p.shutdown(fd, true) }

func (p *Process) shutdown(fd int, both bool) sys.Errno {
	p.point("shutdown")
	if g := p.gram(fd); g != nil && g.family == sys.Unix && both {
		g.shutdownUnix()
		p.point("shutdown")
		return 0
	}
	s, e := p.stream(fd)
	if e != 0 {
		return e
	}
	p.calls++
	e = s.shutdown(both, true)
	p.point("shutdown")
	return e
}

// Disconnect implements [sys.Kernel].
func (p *Process) Disconnect(fd int) sys.Errno {
	p.point("disconnect")
	s, e := p.stream(fd)
	if e != 0 {
		return e
	}
	p.calls++
	e = s.disconnect()
	p.point("disconnect")
	return e
}

// RcvLowat implements [sys.Kernel].
func (p *Process) RcvLowat(fd, n int) sys.Errno {
	s, e := p.stream(fd)
	if e != 0 {
		return e
	}
	p.calls++
	s.setLowat(n)
	return 0
}

// CloseResets implements [sys.Kernel].
func (p *Process) CloseResets(fd int, on bool) sys.Errno {
	p.point("linger")
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	p.calls++
	if s, ok := s.(*tcpSocket); ok {
		s.closeResets = on
	}
	p.point("linger")
	return 0
}

// SetOption implements [sys.Kernel].
func (p *Process) SetOption(fd, level, name, value int) sys.Errno {
	if g := p.gram(fd); g != nil {
		return g.set(level, name, value)
	}
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	c := s.shared()
	switch {
	case sys.SendBuffer.Is(level, name):
		c.sendBuffer = 2 * value
	case sys.ReceiveBuffer.Is(level, name):
		c.receiveBuffer = 2 * value
	}
	if c.options == nil {
		c.options = make(map[[2]int]int)
	}
	c.options[[2]int{level, name}] = value
	return 0
}

// Option implements [sys.Kernel].
func (p *Process) Option(fd, level, name int) (int, sys.Errno) {
	if g := p.gram(fd); g != nil {
		return g.option(level, name), 0
	}
	s, e := p.socket(fd)
	if e != 0 {
		return 0, e
	}
	c := s.shared()
	switch {
	case sys.PendingError.Is(level, name):
		p.point("error")
		v := int(c.takeError())
		p.point("error")
		return v, 0
	case sys.Domain.Is(level, name):
		return int(s.family()), 0
	case sys.SocketType.Is(level, name):
		return sys.SockStream, 0
	case sys.SendBuffer.Is(level, name):
		return c.sendBuffer, 0
	case sys.ReceiveBuffer.Is(level, name):
		return c.receiveBuffer, 0
	}
	v, ok := c.options[[2]int{level, name}]
	if _, tcp := s.(*tcpSocket); tcp && !ok {
		v = defaultOfTCP(level, name)
	}
	return v, 0
}

// defaultOfTCP is what an option of TCP has that nobody has set: tcp(7).
func defaultOfTCP(level, name int) int {
	switch {
	case sys.KeepAliveIdle.Is(level, name):
		return 7200
	case sys.KeepAliveInterval.Is(level, name):
		return 75
	case sys.KeepAliveCount.Is(level, name):
		return 9
	}
	return 0
}

// Interface implements [sys.Kernel].
func (p *Process) Interface(int) (string, sys.Errno) { return "", 0 }

// SameSocket implements [sys.Kernel].
func (p *Process) SameSocket(a, b int) bool { return p.file(a) != nil && p.file(a) == p.file(b) }

// SetNonblock implements [sys.Kernel]: all is non-blocking here.
func (p *Process) SetNonblock(int) sys.Errno { return 0 }

// Poll implements [sys.Kernel].
func (p *Process) Poll(fd int, events int16) int16 {
	f := p.file(fd)
	if f == nil {
		return sys.PollNval
	}
	// The bits of poll(2) and epoll(7) are the same.
	return int16(f.poll()) & (events | sys.PollErr | sys.PollHup)
}

// ReadQueued implements [sys.Kernel].
func (p *Process) ReadQueued(fd int) (int, sys.Errno) {
	f := p.file(fd)
	switch {
	case f == nil:
		return 0, syscall.EBADF
	case f.pipe != nil:
		return f.pipe.queued(), 0
	case f.socket != nil:
		return f.socket.readQueued()
	case f.gram != nil && len(f.gram.queue) > 0:
		return len(f.gram.queue[0].b), 0
	case f.gram != nil:
		return 0, 0
	}
	return 0, sys.EINVAL
}

// HasUnread implements [sys.Kernel].
func (p *Process) HasUnread(fd int) (bool, sys.Errno) {
	s, e := p.socket(fd)
	if e != 0 {
		return false, e
	}
	return s.hasUnread()
}

// WriteQueued implements [sys.Kernel].
func (p *Process) WriteQueued(fd int) (int, sys.Errno) {
	if g := p.gram(fd); g != nil {
		return g.unsent, 0
	}
	s, e := p.socket(fd)
	if e != 0 {
		return 0, e
	}
	return s.writeQueued(), 0
}

// TCPCounts implements [sys.Kernel].
func (p *Process) TCPCounts(fd int) (sys.TCPCounts, sys.Errno) {
	s, e := p.tcp(fd)
	switch {
	case e != 0:
		return sys.TCPCounts{}, e
	case s.listening:
		return sys.TCPCounts{}, sys.EINVAL
	}
	return s.counts(), 0
}

// TCPInfo implements [sys.Kernel].
func (p *Process) TCPInfo(fd int, info *sys.TCPInfo) sys.Errno {
	*info = sys.TCPInfo{}
	s, e := p.tcp(fd)
	if e != 0 {
		return e
	}
	info.State = uint8(s.state)
	info.Last_data_sent = uint32((p.w.now - s.sentAt).Milliseconds())
	return 0
}

// LocalAddr implements [sys.Kernel].
func (p *Process) LocalAddr(fd int, sa *sys.Sockaddr) sys.Errno {
	if g := p.gram(fd); g != nil {
		return g.localAddr(sa)
	}
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	return s.local(sa)
}

// OriginalAddr implements [sys.Kernel]. There is no netfilter.
func (p *Process) OriginalAddr(fd int, sa *sys.Sockaddr) sys.Errno { return syscall.ENOPROTOOPT }

// PeerAddr implements [sys.Kernel].
func (p *Process) PeerAddr(fd int, sa *sys.Sockaddr) sys.Errno {
	if g := p.gram(fd); g != nil {
		return g.peerAddr(sa)
	}
	s, e := p.socket(fd)
	if e != 0 {
		return e
	}
	return s.remote(sa)
}

// Now implements [sys.Kernel].
func (p *Process) Now() time.Time { return p.w.Now() }

// Sleep implements [sys.Kernel]: time passes for all.
func (p *Process) Sleep(d time.Duration) { p.w.Sleep(d) }

// limit returns how many descriptors the process may have.
func (p *Process) limit() int { return cmp.Or(p.Limit, p.w.Limit) }

// FileLimit implements [sys.Kernel].
func (p *Process) FileLimit() (uint64, error) { return uint64(p.limit()), nil }

// OpenFiles implements [sys.Kernel].
func (p *Process) OpenFiles() (int, bool) { return p.open, true }

// FastOpenAlways implements [sys.Kernel].
func (p *Process) FastOpenAlways() bool { return false }

// GrowFiles implements [sys.Kernel].
func (p *Process) GrowFiles(int, int) {}

var _ sys.Kernel = (*Process)(nil)
