package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Socket is a packet socket on all devices, packet(7). It is not safe for concurrent use.
type Socket struct {
	fd      int
	buf     []byte
	oob     [256]byte
	dropped int64
}

// ErrPrivilege is returned by Open if the process may not have a packet socket.
var ErrPrivilege = errors.New("packets need CAP_NET_RAW: run the command as root, on the relay's host and in its network namespace")

// socketBuffer is what the kernel keeps of packets that were not read.
const socketBuffer = 16 << 20

// maxPacket is how long a packet may be: GSO and GRO join packets to 64 KiB, and more with BIG TCP.
const maxPacket = 256 << 10

// Open returns a socket that has the packets which match one of the terms.
func Open(terms []Term) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // of no protocol: no packet comes before bind
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, ErrPrivilege
	}
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	s := &Socket{fd: fd, buf: make([]byte, maxPacket)}
	if err = s.Filter(terms); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}
	if err == nil && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) != nil { // it needs CAP_NET_ADMIN
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL & 0xff})})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return s, nil
}

// Filter replaces the terms.
func (s *Socket) Filter(terms []Term) error {
	raw, err := bpf.Assemble(filter(terms))
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return nil
}

// Read returns the next packet, whose data is valid until the next call. It waits for one for at most so long; false: there was none.
func (s *Socket) Read(wait time.Duration) (p Packet, ok bool, err error) {
	for {
		n, oob, _, from, err := unix.Recvmsg(s.fd, s.buf, s.oob[:], unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR, err == unix.ENETDOWN: // a device went down, among others that did not
			continue
		case err == unix.EAGAIN:
			if wait <= 0 {
				return p, false, nil
			}
			unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
			wait = 0
			continue
		case err != nil:
			return p, false, fmt.Errorf("packet socket: %w", err)
		}
		link, isLink := from.(*unix.SockaddrLinklayer)
		if !isLink {
			continue
		}
		outgoing := link.Pkttype == unix.PACKET_OUTGOING
		if outgoing && link.Hatype == unix.ARPHRD_LOOPBACK {
			continue // it comes in as well
		}
		return Packet{At: timeOf(s.oob[:oob]), Data: s.buf[:min(n, len(s.buf))], Length: n, Device: link.Ifindex, Outgoing: outgoing}, true, nil
	}
}

// timeOf returns the time at which the kernel had a packet.
func timeOf(oob []byte) time.Time {
	for len(oob) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS {
			switch len(data) { // a timespec
			case 16:
				return time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
			case 8:
				return time.Unix(int64(binary.NativeEndian.Uint32(data)), int64(binary.NativeEndian.Uint32(data[4:])))
			}
		}
		oob = rest
	}
	return time.Now()
}

// Dropped returns how many packets the kernel has dropped, because they were not read in time.
func (s *Socket) Dropped() int64 {
	if st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		s.dropped += int64(st.Drops) // the kernel forgets them when they are read
	}
	return s.dropped
}

// Close closes the socket.
func (s *Socket) Close() { unix.Close(s.fd) }
