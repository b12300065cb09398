package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of a datagram's data path in the engine. Like those of streams they use RawSyscall,
// which must not wait: see recvFlags.

func (Linux) Datagram(family Family) (int, Errno) {
	fd, _, e := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if e != 0 {
		return -1, e
	}
	return int(fd), 0
}

func (Linux) RecvBatch(fd int, family Family, v *Vector, from, n int) (int, Errno) {
	v.offer(family)
	got, _, e := syscall.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.hdrs[from])), uintptr(n), recvFlags, 0, 0)
	return v.received(family, from, got, e)
}

func (Linux) SendBatch(fd int, v *Vector, from, n int) (int, Errno) {
	v.sending(from, from+n)
	sent, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&v.hdrs[from])), uintptr(n), sendFlags, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(sent), 0
}

// Rearm makes messages from to from+n-1, whose buffers were set before, ready to be received into
// again. They keep their buffers.
func (v *Vector) Rearm(from, n int) {
	for i := from; i < from+n; i++ {
		h := &v.hdrs[i].hdr
		h.Namelen = uint32(v.name)
		h.SetControllen(v.room)
	}
}

// Reset forgets the opened messages. Unlike Release it keeps the pointers to the buffers; it is for
// buffers that live at least as long as the vector.
func (v *Vector) Reset() { v.nhdr, v.niov = 0, 0 }

// Buf returns the memory that message i is received into.
func (v *Vector) Buf(i int) []byte {
	iov := &v.iovs[i]
	return unsafe.Slice(iov.Base, int(iov.Len))
}

// Replace makes b the only buffer of message 0.
func (v *Vector) Replace(b []byte) {
	v.niov = 0
	h := &v.hdrs[0].hdr
	h.Iov = &v.iovs[0]
	h.SetIovlen(0)
	v.nhdr = 1
	v.Add(b)
}

// NameLen returns how many bytes of Name(i) are the destination.
func (v *Vector) NameLen(i int) int { return int(v.hdrs[i].hdr.Namelen) }

// Segmented reports whether opened message i is a run, and the size of its datagrams.
func (v *Vector) Segmented(i int) (size int, ok bool) {
	b := v.ctrl[i*ControlSize:][:v.hdrs[i].hdr.Controllen]
	for {
		level, typ, data, rest, ok := cutControl(b)
		if !ok {
			return 0, false
		}
		if level == unix.SOL_UDP && typ == unix.UDP_SEGMENT && len(data) >= 2 {
			return int(binary.NativeEndian.Uint16(data)), true
		}
		b = rest
	}
}

// Bind binds fd to the address sa. For a Unix socket, an address without a path makes the kernel
// choose an abstract name (unix(7), autobind), so that others can answer. bind(2).
func Bind(fd int, sa *Sockaddr) Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&sa.raw)), uintptr(sa.n))
	return e
}

// BindShared is Bind for a UDP socket whose port others may share (SO_REUSEPORT). Port 0 finds a
// port that nobody has: it is bound exclusively and shared afterwards, because with the option set
// the kernel considers a port free that others of this user share (udp_lib_get_port, Linux 6.18).
func BindShared(k Sockets, fd int, sa *Sockaddr) Errno {
	alone := sa.AddrPort().Port() == 0
	if !alone {
		if e := SetReusePort(k, fd); e != 0 {
			return e
		}
	}
	e := k.Bind(fd, sa)
	if e == 0 && alone {
		e = SetReusePort(k, fd)
	}
	return e
}

// ReceiveNothing makes a UDP socket that is bound to a port receive nothing more: it connects the socket to its
// own address, or if it has none to loopback. What it has received stays, and it can send to others. udp(7).
func ReceiveNothing(k Kernel, fd int) Errno {
	var sa Sockaddr
	if e := k.LocalAddr(fd, &sa); e != 0 {
		return e
	}
	k.SetOption(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1) // its own address may be a broadcast address
	e := EINVAL
	for _, ip := range []netip.Addr{sa.AddrPort().Addr(), netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})} {
		if ip.IsUnspecified() || sa.Family() == IPv4 && !ip.Is4() {
			continue
		}
		var own Sockaddr
		_, scope := GetAddrPort(sa.Raw())
		own.PutAddrPort(sa.Family(), netip.AddrPortFrom(ip, sa.AddrPort().Port()), scope)
		if e = k.Connect(fd, &own); e == 0 || !sa.AddrPort().Addr().IsUnspecified() {
			break
		}
	}
	return e
}

// Connected reports whether a socket is connected.
func Connected(k Sockets, fd int) bool {
	var sa Sockaddr
	return k.PeerAddr(fd, &sa) == 0
}

// SetV6Only has an IPv6 socket that is not bound yet have nothing to do with IPv4. ipv6(7).
func SetV6Only(k Sockets, fd int) Errno {
	return k.SetOption(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
}

// SetUnnamed fills sa with the Unix address without a name; see [Bind].
func (s *Sockaddr) SetUnnamed() {
	*s = Sockaddr{n: 2}
	binary.NativeEndian.PutUint16(s.raw[:], unix.AF_UNIX)
}

// SetRecvBuffer asks for n bytes of receive buffer, beyond the system's limit if the process may.
// socket(7), SO_RCVBUF, SO_RCVBUFFORCE.
func SetRecvBuffer(k Sockets, fd, n int) Errno {
	if k.SetOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) == 0 {
		return 0
	}
	return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n)
}

// SockDgram is the type of a datagram socket, as returned by SocketKind.
const SockDgram = unix.SOCK_DGRAM

// The error numbers that sending a datagram, starting a program, or a descriptor that is none may end with.
const (
	EIO          = syscall.EIO
	EMSGSIZE     = syscall.EMSGSIZE
	EHOSTUNREACH = syscall.EHOSTUNREACH
	ENETUNREACH  = syscall.ENETUNREACH
	EHOSTDOWN    = syscall.EHOSTDOWN
	ENONET       = syscall.ENONET
	ENETDOWN     = syscall.ENETDOWN
	ENOPROTOOPT  = syscall.ENOPROTOOPT
	EPROTO       = syscall.EPROTO
	ENOTCONN     = syscall.ENOTCONN
	EBADF        = syscall.EBADF
	EBADMSG      = syscall.EBADMSG
	ENOENT       = syscall.ENOENT
	ENOEXEC      = syscall.ENOEXEC
	EACCES       = syscall.EACCES
	ENODEV       = syscall.ENODEV
)
