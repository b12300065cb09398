package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options that say how a socket's packets travel, and from where.

// SetCongestion chooses the congestion control by name. It returns ENOENT if the kernel does not
// know the name, and EPERM if it requires CAP_NET_ADMIN (net.ipv4.tcp_allowed_congestion_control).
// tcp(7), TCP_CONGESTION.
func SetCongestion(fd int, name string) Errno {
	return setString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Congestion returns the name of the congestion control in use. tcp(7), TCP_CONGESTION.
func Congestion(fd int) (string, Errno) {
	var b [16]byte // TCP_CA_NAME_MAX
	n := uint32(len(b))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION,
		uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return "", e
	}
	return unix.ByteSliceToString(b[:]), 0
}

// SetFastOpen lets a listener accept data with the SYN, from at most queue clients that have not
// finished the handshake; 0 disables it. tcp(7), TCP_FASTOPEN.
func SetFastOpen(fd, queue int) Errno {
	return SetInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN, queue)
}

// SetFastOpenConnect makes connect(2) wait for the first data, which is sent with the SYN, if the
// server's cookie is known. TCP_FASTOPEN_CONNECT, Linux 4.11.
func SetFastOpenConnect(fd int, on bool) Errno {
	return SetInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, asInt(on))
}

// SetDSCP marks the socket's packets with a code point (RFC 2474), and leaves the two ECN bits next
// to it unchanged. ip(7), IP_TOS; ipv6(7), IPV6_TCLASS.
func SetDSCP(k Sockets, fd int, family Family, dscp uint8) Errno {
	v4, v6 := TOS(k, fd, family)
	if family == IPv6 {
		if e := k.SetOption(fd, unix.SOL_IPV6, unix.IPV6_TCLASS, int(dscp)<<2|int(v6&3)); e != 0 {
			return e
		}
	}
	return k.SetOption(fd, unix.SOL_IP, unix.IP_TOS, int(dscp)<<2|int(v4&3))
}

// SetMark marks the socket's packets for routing and filters. It needs
// CAP_NET_ADMIN, or since Linux 5.17 CAP_NET_RAW. socket(7), SO_MARK.
func SetMark(k Sockets, fd int, mark uint32) Errno {
	return k.SetOption(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(mark)))
}

// SetInterface binds the socket to a device by name. socket(7), SO_BINDTODEVICE.
func SetInterface(fd int, name string) Errno {
	return setString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, name)
}

// Interface returns the name of the device that the socket's packets must use, or "" if any may.
// socket(7), SO_BINDTODEVICE.
func (Linux) Interface(fd int) (string, Errno) {
	var b [unix.IFNAMSIZ]byte
	n := uint32(len(b))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE,
		uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return "", e
	}
	return unix.ByteSliceToString(b[:min(int(n), len(b))]), 0
}

// SetTransparent lets the socket use addresses that are not this host's. It needs CAP_NET_ADMIN or
// CAP_NET_RAW. ip(7), IP_TRANSPARENT; IPV6_TRANSPARENT, Linux 2.6.37.
func SetTransparent(k Sockets, fd int, family Family, on bool) Errno {
	if family == IPv6 {
		return k.SetOption(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, asInt(on))
	}
	return k.SetOption(fd, unix.SOL_IP, unix.IP_TRANSPARENT, asInt(on))
}

// SetBindNoPort leaves the port of a bind to port 0 to connect(2), which may choose one that is in
// use towards other addresses. ip(7), IP_BIND_ADDRESS_NO_PORT, Linux 4.2.
func SetBindNoPort(k Sockets, fd int) Errno {
	return k.SetOption(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// Listen implements [Kernel].
func (Linux) Listen(fd, backlog int) Errno {
	if backlog <= 0 {
		backlog = 1 << 16 // the kernel limits it to net.core.somaxconn, listen(2)
	}
	_, _, e := syscall.RawSyscall(unix.SYS_LISTEN, uintptr(fd), uintptr(backlog), 0)
	return e
}

// Multipath reports whether fd is a multipath TCP socket, whatever its peer is. socket(7),
// SO_PROTOCOL.
func Multipath(fd int) bool {
	v, e := GetInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return e == 0 && v == unix.IPPROTO_MPTCP
}

// HasMultipath reports whether the kernel makes multipath TCP sockets. net.mptcp.enabled.
func HasMultipath() bool {
	fd, e := Linux{}.Socket(IPv4, true)
	if e != 0 {
		return false
	}
	defer Linux{}.Close(fd)
	return Multipath(fd)
}

// IsMPTCP reports whether the connection is multipath: both the socket and the peer are.
// TCP_IS_MPTCP, Linux 5.16.
func IsMPTCP(fd int) bool {
	const tcpIsMPTCP = 43
	v, e := GetInt(fd, unix.IPPROTO_TCP, tcpIsMPTCP)
	return e == 0 && v != 0
}

// TCPInfo is the kernel's information about a TCP socket. tcp(7), TCP_INFO; linux/tcp.h.
type TCPInfo = unix.TCPInfo

// Bits of TCPInfo.Options. linux/tcp.h.
const (
	OptTimestamps = 1 << 0
	OptSACK       = 1 << 1
	OptWScale     = 1 << 2
	OptECN        = 1 << 3
	OptSynData    = 1 << 5
)

// TCPInfo implements [Kernel].
func (Linux) TCPInfo(fd int, info *TCPInfo) Errno {
	*info = TCPInfo{}
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	return e
}

func setString(fd, level, opt int, s string) Errno {
	b := append(make([]byte, 0, 16), s...) // usually on the stack
	b = append(b, 0)
	return setsockopt(uintptr(fd), level, opt, unsafe.Pointer(&b[0]), uintptr(len(b)))
}
