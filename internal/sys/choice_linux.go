package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options that say how a socket's packets travel, and from where.

// SetCongestion chooses the congestion control by name: ENOENT where the kernel
// has none of that name, EPERM where only CAP_NET_ADMIN may have it
// (net.ipv4.tcp_allowed_congestion_control). tcp(7), TCP_CONGESTION.
func SetCongestion(fd int, name string) Errno {
	return setString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
}

// Congestion is the name of the congestion control in use. tcp(7), TCP_CONGESTION.
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

// SetFastOpen lets a listener take data with the SYN, of queue clients that have
// not finished the handshake at most; 0: of none. tcp(7), TCP_FASTOPEN.
func SetFastOpen(fd, queue int) Errno {
	return SetInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN, queue)
}

// SetFastOpenConnect makes connect(2) wait for the first data, which travels
// with the SYN, where the server's cookie is known. TCP_FASTOPEN_CONNECT, Linux 4.11.
func SetFastOpenConnect(fd int, on bool) Errno {
	return SetInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, asInt(on))
}

// SetDSCP marks the socket's packets with a code point (RFC 2474), and leaves
// the two ECN bits beside it as they are. ip(7), IP_TOS; ipv6(7), IPV6_TCLASS.
func SetDSCP(fd int, family Family, dscp uint8) Errno {
	v4, v6 := TOS(uintptr(fd), family)
	if family == IPv6 {
		if e := SetInt(fd, unix.SOL_IPV6, unix.IPV6_TCLASS, int(dscp)<<2|int(v6&3)); e != 0 {
			return e
		}
	}
	return SetInt(fd, unix.SOL_IP, unix.IP_TOS, int(dscp)<<2|int(v4&3))
}

// SetMark marks the socket's packets for routing and filters. It needs
// CAP_NET_ADMIN, or since Linux 5.17 CAP_NET_RAW. socket(7), SO_MARK.
func SetMark(fd int, mark uint32) Errno {
	return SetInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(mark)))
}

// SetInterface binds the socket to a device by name. socket(7), SO_BINDTODEVICE.
func SetInterface(fd int, name string) Errno {
	return setString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, name)
}

// SetTransparent lets the socket have addresses that are not this host's. It
// needs CAP_NET_ADMIN or CAP_NET_RAW. ip(7), IP_TRANSPARENT; IPV6_TRANSPARENT, Linux 2.6.37.
func SetTransparent(fd int, family Family, on bool) Errno {
	if family == IPv6 {
		return SetInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, asInt(on))
	}
	return SetInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, asInt(on))
}

// SetBindNoPort leaves the port of a bind to port 0 to connect(2), which may
// take one that is in use towards other addresses. ip(7), IP_BIND_ADDRESS_NO_PORT, Linux 4.2.
func SetBindNoPort(fd int) Errno {
	return SetInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// Relisten changes a listener's backlog; 0 means the kernel's greatest. listen(2).
func Relisten(fd, backlog int) Errno {
	if backlog <= 0 {
		backlog = 1 << 16 // the kernel cuts it to net.core.somaxconn, listen(2)
	}
	_, _, e := syscall.RawSyscall(unix.SYS_LISTEN, uintptr(fd), uintptr(backlog), 0)
	return e
}

// Multipath tells whether fd is a socket of multipath TCP, whatever its peer is. socket(7), SO_PROTOCOL.
func Multipath(fd int) bool {
	v, e := GetInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	return e == 0 && v == unix.IPPROTO_MPTCP
}

// IsMPTCP tells whether the connection is multipath: the socket is, and the
// peer is too. TCP_IS_MPTCP, Linux 5.16.
func IsMPTCP(fd int) bool {
	const tcpIsMPTCP = 43
	v, e := GetInt(fd, unix.IPPROTO_TCP, tcpIsMPTCP)
	return e == 0 && v != 0
}

// TCPInfo is what the kernel tells of a TCP socket. tcp(7), TCP_INFO; linux/tcp.h.
type TCPInfo = unix.TCPInfo

// Bits of TCPInfo.Options. linux/tcp.h.
const (
	OptTimestamps = 1 << 0
	OptSACK       = 1 << 1
	OptWScale     = 1 << 2
	OptECN        = 1 << 3
	OptSynData    = 1 << 5
)

// Info fills info with what the kernel has; what an older one has not is zero.
func Info(fd int, info *TCPInfo) Errno {
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
