package xnet

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/net/ipv4"

	"github.com/penstock/penstock/dgram"
)

const (
	// inBatch is the maximum number of super-packets per read. 8 of them fill at most half a
	// mebibyte, which fits into a CPU's cache.
	inBatch = 8

	// controlSize is enough for all control messages of a super-packet.
	controlSize = 512
)

// reader receives messages and returns them as datagrams. With split, messages that were
// received and not yet returned are in in[next:got]; of the first of them, the bytes before
// off were returned. Without split, datagrams are received into the caller's buffers.
type reader struct {
	c     *net.UDPConn
	d     *dgram.Conn
	raw   syscall.RawConn
	split bool

	mu             sync.Mutex
	in             []dgram.Message
	next, got, off int
	views          []dgram.Message // for direct
	single         [1]ipv4.Message // for one
	buf            [1][]byte
	none           [1]byte
	addrs          addrs
}

func (r *reader) read(ms []ipv4.Message, wait bool) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readLocked(ms, wait)
}

// readOne reads a single datagram.
func (r *reader) readOne(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf[0] = b
	r.single[0] = ipv4.Message{Buffers: r.buf[:], OOB: oob}
	_, err = r.readLocked(r.single[:], true)
	m := r.single[0]
	r.buf[0], r.single[0] = nil, ipv4.Message{}
	if err != nil {
		return 0, 0, 0, nil, err
	}
	return m.N, m.NN, m.Flags, m.Addr.(*net.UDPAddr), nil
}

// usable is an argument for a RawConn's Read, which returns an error without calling it if
// the socket is closed or past its deadline.
func usable(uintptr) bool { return true }

func (r *reader) readLocked(ms []ipv4.Message, wait bool) (int, error) {
	switch {
	case r.d == nil:
		return 0, unmade("read")
	case len(ms) == 0:
		return 0, nil
	}
	if r.next < r.got { // there will be no system call
		if err := r.raw.Read(usable); err != nil {
			return 0, err
		}
	}
	if !r.split && whole(ms) {
		return r.direct(ms)
	}
	if r.next == r.got {
		if r.in == nil {
			r.in = dgram.MakeMessages(inBatch)
			for i := range r.in {
				r.in[i].Control = make([]byte, 0, controlSize)
			}
		}
		want := len(r.in)
		if !r.split {
			want = min(want, len(ms))
		}
		n, err := r.receive(r.in[:want], wait)
		if err != nil {
			return 0, err
		}
		r.next, r.got, r.off = 0, n, 0
	}
	n := 0
	for ; n < len(ms) && r.next < r.got; n++ {
		r.hand(&ms[n])
	}
	return n, nil
}

func (r *reader) receive(in []dgram.Message, wait bool) (int, error) {
	if wait {
		return r.d.ReadBatch(in)
	}
	n, err := r.d.TryReadBatch(in)
	if n == 0 && err == nil {
		err = &net.OpError{Op: "read", Net: "udp", Source: r.c.LocalAddr(), Addr: r.c.RemoteAddr(), Err: os.NewSyscallError("recvmmsg", syscall.EAGAIN)}
	}
	return n, err
}

// hand copies the next datagram to m.
func (r *reader) hand(m *ipv4.Message) {
	from := &r.in[r.next]
	d := from.Buf[r.off:from.N]
	if from.Segment > 0 && len(d) > from.Segment {
		d = d[:from.Segment]
	}
	m.N = 0
	for _, b := range m.Buffers {
		m.N += copy(b, d[m.N:])
	}
	r.describe(m, from, m.N < len(d))
	whole := false
	if m.NN, whole = from.CopyControl(m.OOB); !whole {
		m.Flags |= msgCtrunc
	}
	if r.off += len(d); r.off == from.N {
		r.next++
		r.off = 0
	}
}

// describe sets the fields of a message except for its buffers.
func (r *reader) describe(m *ipv4.Message, from *dgram.Message, cut bool) {
	m.Addr = r.addrs.get(from.Addr)
	m.Flags = 0
	if cut || from.Flags&dgram.Truncated != 0 {
		m.Flags |= msgTrunc
	}
	if from.Flags&dgram.ControlTruncated != 0 {
		m.Flags |= msgCtrunc
	}
}

// whole reports whether every message has exactly one buffer, which the kernel can fill.
func whole(ms []ipv4.Message) bool {
	for i := range ms {
		if len(ms[i].Buffers) != 1 {
			return false
		}
	}
	return true
}

// direct receives into the caller's buffers.
func (r *reader) direct(ms []ipv4.Message) (int, error) {
	for len(r.views) < len(ms) {
		r.views = append(r.views, dgram.Message{})
	}
	in := r.views[:len(ms)]
	for i := range ms {
		in[i] = dgram.Message{Buf: ms[i].Buffers[0], Control: ms[i].OOB[:0:len(ms[i].OOB)]}
		if len(ms[i].OOB) == 0 {
			in[i].Control = r.none[:0] // too short for a control message, so that Flags says that they were cut
		}
	}
	n, err := r.d.ReadBatch(in)
	for i := range ms[:n] {
		ms[i].N, ms[i].NN = in[i].N, len(in[i].Control)
		r.describe(&ms[i], &in[i], false)
	}
	clear(in) // do not keep the caller's buffers
	return n, err
}

// maxAddrs is the maximum number of addresses remembered. Beyond it all are forgotten.
const maxAddrs = 4096

// addrs keeps one *net.UDPAddr for each source, so that receiving does not allocate.
type addrs struct {
	v6    bool // an IPv6 socket, for which IPv4 addresses have 16 bytes, as in package net
	last  netip.AddrPort
	addr  *net.UDPAddr
	known map[netip.AddrPort]*net.UDPAddr
}

func (a *addrs) get(ap netip.AddrPort) *net.UDPAddr {
	if ap == a.last && a.addr != nil {
		return a.addr
	}
	addr, ok := a.known[ap]
	if !ok {
		if a.known == nil || len(a.known) >= maxAddrs {
			a.known = make(map[netip.AddrPort]*net.UDPAddr)
		}
		addr = net.UDPAddrFromAddrPort(ap)
		if a.v6 {
			addr.IP = addr.IP.To16()
		}
		a.known[ap] = addr
	}
	a.last, a.addr = ap, addr
	return addr
}
