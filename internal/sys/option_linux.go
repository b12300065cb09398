package sys

import "golang.org/x/sys/unix"

// Option names a socket option for [Option.Get].
type Option struct{ level, name int }

// Socket options of integers. socket(7), ip(7), ipv6(7), udp(7), tcp(7).
var (
	ReceiveLowat      = Option{unix.SOL_SOCKET, unix.SO_RCVLOWAT}
	ReceiveBuffer     = Option{unix.SOL_SOCKET, unix.SO_RCVBUF} // twice what was set
	SendBuffer        = Option{unix.SOL_SOCKET, unix.SO_SNDBUF} // twice what was set
	KeepAlive         = Option{unix.SOL_SOCKET, unix.SO_KEEPALIVE}
	KeepAliveIdle     = Option{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}  // seconds
	KeepAliveInterval = Option{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL} // seconds
	KeepAliveCount    = Option{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}
	NoDelay           = Option{unix.IPPROTO_TCP, unix.TCP_NODELAY}
	UserTimeout       = Option{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT} // milliseconds
	FastOpenConnect   = Option{unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT}
	FastOpen          = Option{unix.IPPROTO_TCP, unix.TCP_FASTOPEN} // of a listener
	Mark              = Option{unix.SOL_SOCKET, unix.SO_MARK}
	TypeOfService     = Option{unix.SOL_IP, unix.IP_TOS}
	TrafficClass      = Option{unix.SOL_IPV6, unix.IPV6_TCLASS}
	Transparent       = Option{unix.SOL_IP, unix.IP_TRANSPARENT}
	Transparent6      = Option{unix.SOL_IPV6, unix.IPV6_TRANSPARENT}
	PendingError      = Option{unix.SOL_SOCKET, unix.SO_ERROR}
	Domain            = Option{unix.SOL_SOCKET, unix.SO_DOMAIN} // a Family
	SocketType        = Option{unix.SOL_SOCKET, unix.SO_TYPE}
	ReusePort         = Option{unix.SOL_SOCKET, unix.SO_REUSEPORT}
	RecvDrops         = Option{unix.SOL_SOCKET, unix.SO_RXQ_OVFL}
	PrivilegedReceive = Option{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE}
	PrivilegedSend    = Option{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE}
	GRO               = Option{unix.SOL_UDP, unix.UDP_GRO}
	RecvTOS           = Option{unix.SOL_IP, unix.IP_RECVTOS}
	RecvTrafficClass  = Option{unix.SOL_IPV6, unix.IPV6_RECVTCLASS}
	RecvLocal         = Option{unix.SOL_IP, unix.IP_PKTINFO}
	RecvLocal6        = Option{unix.SOL_IPV6, unix.IPV6_RECVPKTINFO}
	V6Only            = Option{unix.SOL_IPV6, unix.IPV6_V6ONLY}
)

// Get reads the option of a socket. getsockopt(2).
func (o Option) Get(k Sockets, fd int) (int, Errno) { return k.Option(fd, o.level, o.name) }

// Is reports whether the option has this level and name.
func (o Option) Is(level, name int) bool { return o == Option{level, name} }
