package dgram

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
)

// reader receives batches. It keeps what a call needs from one call to the next, so that a
// call does not allocate: the headers, and the function for the netpoller. mu is held while
// a call waits, as the socket's own read lock is.
type reader struct {
	k     *kernel
	mu    sync.Mutex
	vec   *sys.Vector
	step  func(fd uintptr) bool
	one   bool // the batch has one message
	try   bool // the call does not wait
	n     int
	errno sys.Errno
	zones zones
	paths paths
}

func (r *reader) init(k *kernel) {
	r.k = k
	r.step = r.receive
}

func (r *reader) read(ms []Message, wait bool) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ms = ms[:min(len(ms), sys.MaxVector)]
	if r.vec == nil || r.vec.Len() < len(ms) {
		n := grown(len(ms))
		r.vec = sys.NewVector(n, n, r.k.family)
		if r.k.c.mode.Time {
			r.vec.OfferTime()
		}
	}
	for i := range ms {
		if b := ms[i].Buf; len(b) < MaxSize && r.k.c.mode.GRO {
			r.vec.Release()
			return 0, r.k.c.short(len(b))
		}
		r.vec.SetBuf(i, ms[i].Buf)
	}
	r.one, r.try = len(ms) == 1, !wait
	err := r.wait()
	if err == nil {
		r.take(ms[:r.n])
	}
	r.vec.Release()
	return r.n, err
}

// grown returns how many headers to make for a batch of n, so that slowly growing batches do
// not make new ones each time.
func grown(n int) int {
	size := 8
	for size < n {
		size *= 2
	}
	return size
}

// receive makes one attempt. It is called with the socket's read lock held. For one message
// it uses a raw system call, which is short and does not involve the scheduler.
func (r *reader) receive(fd uintptr) bool {
	for {
		if r.one {
			r.n, r.errno = r.vec.RecvRaw(fd, r.k.family)
		} else {
			r.n, r.errno = r.vec.Recv(fd, r.k.family)
		}
		r.k.c.readCalls.Add(1)
		if r.errno != sys.EINTR {
			return r.errno != sys.EAGAIN || r.try
		}
	}
}

// wait receives at least one message or returns an error. A call that does not wait may
// receive none.
func (r *reader) wait() error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		r.n, r.errno = 0, 0
		err := r.k.raw.Read(r.step)
		if err == nil && r.errno == 0 {
			return nil
		}
		r.n = 0
		if err == nil {
			return r.failed()
		}
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return r.k.c.failWait("read", err)
		}
		// After an event with an error and nothing else, the netpoller fails all reads until
		// the next event of any kind (runtime/netpoll.go, eventErr). That happens when the
		// error queue is not empty and the send buffer is full. So empty the queue, and check
		// for messages at intervals until there is another event.
		if r.k.family != sys.Unix { // which has no queue, and where MSG_ERRQUEUE takes a datagram
			r.k.c.drainErrors()
		}
		if err := r.k.raw.Control(func(fd uintptr) { r.receive(fd) }); err != nil {
			return r.k.c.failWait("read", err)
		}
		if r.errno == 0 {
			return nil
		}
		r.n = 0
		if r.errno != sys.EAGAIN || r.try {
			return r.failed()
		}
		time.Sleep(pause)
	}
}

// failed returns the error of a receive: nil if there was nothing to receive for a call that
// does not wait.
func (r *reader) failed() error {
	if r.errno == sys.EAGAIN && r.try {
		return nil
	}
	return r.k.c.failCall("read", "recvmmsg", r.errno)
}

// take sets the fields of the messages received.
func (r *reader) take(ms []Message) {
	c := r.k.c
	fresh := false
	var datagrams, bytes, truncated int64
	for i := range ms {
		m := &ms[i]
		n, flags, name, control := r.vec.Received(i)
		m.N, m.Segment, m.Flags = n, 0, 0
		m.ECN, m.Local, m.Interface, m.Time = 0, netip.Addr{}, 0, time.Time{}
		m.Control = m.Control[:0]
		if flags&(sys.MsgTrunc|sys.MsgCtrunc) != 0 {
			if flags&sys.MsgTrunc != 0 {
				m.Flags |= Truncated
				truncated++
			}
			if flags&sys.MsgCtrunc != 0 {
				m.Flags |= ControlTruncated
			}
		}
		if r.k.family == sys.Unix {
			m.Addr, m.Path = netip.AddrPort{}, r.paths.get(sys.GetPath(name))
		} else {
			m.Path = ""
			var scope uint32
			if m.Addr, scope = sys.GetAddrPort(name); scope != 0 {
				if !fresh {
					r.zones.refresh()
					fresh = true
				}
				m.Addr = withAddr(m.Addr, r.zones.attach(m.Addr.Addr(), scope))
			}
		}
		if len(control) > 0 {
			r.setMetadata(m, control)
		}
		datagrams += int64(segment.Count(n, m.Segment))
		bytes += int64(n)
	}
	c.readMessages.Add(int64(len(ms)))
	c.readDatagrams.Add(datagrams)
	c.readBytes.Add(bytes)
	if truncated > 0 {
		c.truncated.Add(truncated)
	}
}

// setMetadata sets the fields of m from control messages.
func (r *reader) setMetadata(m *Message, control []byte) {
	c := sys.ParseControl(control)
	if 0 < c.Segment && c.Segment < m.N {
		m.Segment = c.Segment
	}
	m.ECN = ECN(c.TOS & 3)
	m.Local, m.Interface = c.Local, c.Interface
	if c.Sec != 0 {
		m.Time = time.Unix(c.Sec, c.Nsec)
	}
	if c.HasDrops {
		r.k.c.drops.observe(c.Drops)
	}
	if room := cap(m.Control); room > 0 {
		n, whole := sys.CopyControl(m.Control[:room], control)
		m.Control = m.Control[:n]
		if !whole {
			m.Flags |= ControlTruncated
		}
	}
}
