package host

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listeningTCP returns the addresses on which TCP sockets of this host listen. sock_diag(7).
func listeningTCP() (list []netip.AddrPort, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if list, err = appendListening(list, fd, family); err != nil {
			return nil, err
		}
	}
	return list, nil
}

const stateListen = 10 // TCP_LISTEN, include/net/tcp_states.h

// appendListening appends the addresses of one family.
func appendListening(list []netip.AddrPort, fd int, family byte) ([]netip.AddrPort, error) {
	// struct nlmsghdr and struct inet_diag_req_v2, linux/inet_diag.h: the family, the protocol, 2 bytes, the states that are asked for, and
	// the address of one socket, which a dump does not look at.
	request := make([]byte, unix.SizeofNlMsghdr+56)
	native := binary.NativeEndian
	native.PutUint32(request, uint32(len(request)))
	native.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[16], request[17] = family, unix.IPPROTO_TCP
	native.PutUint32(request[20:], 1<<stateListen)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	for buf := make([]byte, 32<<10); ; { // netlink_dump in af_netlink.c makes no larger messages
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, os.NewSyscallError("netlink", err)
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return list, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4: // ENOENT: the kernel has no tcp_diag
				return nil, os.NewSyscallError("netlink", syscall.Errno(-int32(native.Uint32(m.Data))))
			case m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= 24:
				// struct inet_diag_msg: the family, 3 bytes, the port, the peer's, and the address, in network byte order
				ip := netip.AddrFrom16([16]byte(m.Data[8:24]))
				if family == unix.AF_INET {
					ip = netip.AddrFrom4([4]byte(m.Data[8:12]))
				}
				list = append(list, netip.AddrPortFrom(ip, binary.BigEndian.Uint16(m.Data[4:])))
			}
		}
	}
}
