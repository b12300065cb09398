package sys

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PutAddrPort writes ap into b as a destination for a socket of the given family and returns its
// length: an IPv4 address becomes 4-in-6 on an IPv6 socket, and 4-in-6 becomes IPv4 on an IPv4
// socket. It returns 0 if the family cannot represent the address. scope is the index of ap's zone.
func PutAddrPort(b []byte, family Family, ap netip.AddrPort, scope uint32) int {
	a := ap.Addr()
	if family == IPv4 {
		if a = a.Unmap(); !a.Is4() {
			return 0
		}
		_ = b[unix.SizeofSockaddrInet4-1]
		binary.NativeEndian.PutUint16(b, unix.AF_INET)
		binary.BigEndian.PutUint16(b[2:], ap.Port())
		ip := a.As4()
		copy(b[4:8], ip[:])
		return unix.SizeofSockaddrInet4
	}
	if family != IPv6 || !a.IsValid() {
		return 0
	}
	_ = b[unix.SizeofSockaddrInet6-1]
	binary.NativeEndian.PutUint16(b, unix.AF_INET6)
	binary.BigEndian.PutUint16(b[2:], ap.Port())
	binary.NativeEndian.PutUint32(b[4:], 0)
	ip := a.As16()
	copy(b[8:24], ip[:])
	binary.NativeEndian.PutUint32(b[24:], scope)
	return unix.SizeofSockaddrInet6
}

// GetAddrPort parses an address that the kernel wrote. It unmaps IPv4 in IPv6 and returns no zone;
// scope is the index of the zone, or 0 for none. It returns the zero AddrPort for no address, or
// one of another family.
func GetAddrPort(b []byte) (ap netip.AddrPort, scope uint32) {
	if len(b) < unix.SizeofSockaddrInet4 {
		return ap, 0
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), 0
	case family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if a.Is4In6() {
			return netip.AddrPortFrom(a.Unmap(), port), 0
		}
		return netip.AddrPortFrom(a, port), binary.NativeEndian.Uint32(b[24:])
	}
	return ap, 0
}

// PutPath writes a Unix socket's path into b and returns the address's length, or 0 if the path is
// too long. A leading @ denotes the abstract namespace.
func PutPath(b []byte, path string) int {
	if path == "" || len(path) > MaxUnixPath {
		return 0
	}
	binary.NativeEndian.PutUint16(b, unix.AF_UNIX)
	n := 2 + copy(b[2:], path)
	if path[0] == '@' {
		b[2] = 0
		return n
	}
	b[n] = 0
	return n + 1
}

// GetPath returns the path in an address that the kernel wrote, without its final NUL; abstract
// names begin with a NUL. The result shares b's memory.
func GetPath(b []byte) []byte {
	if len(b) <= 2 {
		return nil
	}
	b = b[2:]
	if b[0] != 0 {
		for i, c := range b {
			if c == 0 {
				return b[:i]
			}
		}
	}
	return b
}

// FamilyOf returns the family of fd. SO_DOMAIN, socket(7).
func FamilyOf(k Sockets, fd int) (Family, Errno) {
	f, e := k.Option(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return Family(f), e
}

// SetGRO asks the kernel for super-packets. udp(7), UDP_GRO, Linux 5.0.
func SetGRO(k Sockets, fd int, on bool) Errno {
	return k.SetOption(fd, unix.SOL_UDP, unix.UDP_GRO, asInt(on))
}

// HasGSO reports whether the kernel knows UDP_SEGMENT (Linux 4.18). It switches the socket's own
// segment size off.
func HasGSO(k Sockets, fd int) bool {
	return k.SetOption(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == 0
}

// SetRecvTOS asks for the TOS byte and traffic class of each datagram, or no longer does.
func SetRecvTOS(k Sockets, fd int, family Family, on bool) Errno {
	return setBoth(k, fd, family, unix.IP_RECVTOS, unix.IPV6_RECVTCLASS, on)
}

// SetRecvLocal asks for the local address and interface of each datagram.
func SetRecvLocal(k Sockets, fd int, family Family) Errno {
	return setBoth(k, fd, family, unix.IP_PKTINFO, unix.IPV6_RECVPKTINFO, true)
}

// SetRecvErr switches ICMP errors in the error queue on or off; switching them off empties the
// queue. ip(7), IP_RECVERR.
func SetRecvErr(k Sockets, fd int, family Family, on bool) Errno {
	return setBoth(k, fd, family, unix.IP_RECVERR, unix.IPV6_RECVERR, on)
}

// setBoth sets an IPv4 option, and on an IPv6 socket also its IPv6 counterpart, because the kernel
// uses the former for IPv4-mapped traffic.
func setBoth(k Sockets, fd int, family Family, v4, v6 int, on bool) Errno {
	e := k.SetOption(fd, unix.SOL_IP, v4, asInt(on))
	if family == IPv6 {
		return k.SetOption(fd, unix.SOL_IPV6, v6, asInt(on))
	}
	return e
}

// SetRecvTime asks for the time at which the kernel received each datagram.
func SetRecvTime(k Sockets, fd int) Errno {
	return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
}

// SetRecvDrops asks for the socket's drop counter. socket(7), SO_RXQ_OVFL.
func SetRecvDrops(k Sockets, fd int) Errno {
	return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
}

// SetTxTime lets messages carry the time at which they are sent, on CLOCK_MONOTONIC. SO_TXTIME,
// Linux 4.19.
func SetTxTime(fd uintptr) Errno {
	opt := struct {
		clock int32
		flags uint32
	}{clock: unix.CLOCK_MONOTONIC}
	return setsockopt(fd, unix.SOL_SOCKET, unix.SO_TXTIME, unsafe.Pointer(&opt), unsafe.Sizeof(opt))
}

// SetReusePort lets several sockets bind one address; the kernel spreads the
// datagrams over them by a hash of their addresses. socket(7), Linux 3.9.
func SetReusePort(k Sockets, fd int) Errno {
	return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// TOS returns the TOS byte and the traffic class of the socket's datagrams.
func TOS(k Sockets, fd int, family Family) (v4, v6 uint8) {
	if t, e := k.Option(fd, unix.SOL_IP, unix.IP_TOS); e == 0 {
		v4 = uint8(t)
	}
	if family == IPv6 {
		if t, e := k.Option(fd, unix.SOL_IPV6, unix.IPV6_TCLASS); e == 0 && t > 0 {
			v6 = uint8(t)
		}
	}
	return v4, v6
}

// SetBuffer asks for n bytes of socket buffer, beyond the system's limit if the process may
// (CAP_NET_ADMIN), and returns what the kernel granted. A buffer that has n bytes already stays: a process that may no
// longer go beyond the limit would get less. The kernel doubles the size for its own
// bookkeeping and reports the double (socket(7)); the result here is in the unit of n.
func SetBuffer(k Sockets, fd int, send bool, n int) (int, Errno) {
	opt, forced := unix.SO_RCVBUF, unix.SO_RCVBUFFORCE
	if send {
		opt, forced = unix.SO_SNDBUF, unix.SO_SNDBUFFORCE
	}
	if got, e := k.Option(fd, unix.SOL_SOCKET, opt); e == 0 && got/2 == n {
		return n, 0
	}
	if k.SetOption(fd, unix.SOL_SOCKET, forced, n) != 0 {
		if e := k.SetOption(fd, unix.SOL_SOCKET, opt, n); e != 0 {
			return 0, e
		}
	}
	got, e := k.Option(fd, unix.SOL_SOCKET, opt)
	return got / 2, e
}

// Drops returns the number of datagrams that the socket has dropped so far, modulo 2^32.
func Drops(k Sockets, fd int) (uint32, Errno) {
	_, n, e := k.Memory(fd)
	return n, e
}

// SocketMemory returns the bytes of kernel memory that a socket has for data, received and to be sent; 0 if
// the kernel does not say.
func SocketMemory(k Sockets, fd int) int64 {
	n, _, e := k.Memory(fd)
	if e != 0 {
		return 0
	}
	return n
}

// Memory implements [Kernel].
func (Linux) Memory(fd int) (bytes int64, drops uint32, errno Errno) {
	var info [unix.SK_MEMINFO_VARS]uint32
	n := uint32(unsafe.Sizeof(info))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&n)), 0)
	for _, i := range [...]int{unix.SK_MEMINFO_RMEM_ALLOC, unix.SK_MEMINFO_WMEM_QUEUED, unix.SK_MEMINFO_FWD_ALLOC, unix.SK_MEMINFO_OPTMEM, unix.SK_MEMINFO_BACKLOG} {
		bytes += int64(info[i])
	}
	return bytes, info[unix.SK_MEMINFO_DROPS], e
}

// Monotonic returns the current time of CLOCK_MONOTONIC.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail: the clock exists and ts is ours
	return time.Duration(ts.Nano())
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func setsockopt(fd uintptr, level, opt int, p unsafe.Pointer, n uintptr) Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, fd, uintptr(level), uintptr(opt), uintptr(p), n, 0)
	return e
}

// IsBroadcast reports whether ip is a broadcast address of this host: a socket may be connected to one
// with SO_BROADCAST only. ip4_datagram_connect in net/ipv4/datagram.c, Linux 6.18.
func IsBroadcast(k Kernel, ip netip.Addr) bool {
	var sa Sockaddr
	if ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true // even if there is no route to it
	}
	if !ip.Is4() || sa.SetAddrPort(netip.AddrPortFrom(ip, 1)) != nil {
		return false
	}
	fd, e := k.Datagram(IPv4)
	if e != 0 {
		return false
	}
	defer k.Close(fd)
	refused := k.Connect(fd, &sa) == EACCES
	return refused && k.SetOption(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1) == 0 && k.Connect(fd, &sa) == 0
}
