package sys

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// Family is a socket's address family.
type Family uint16

// The families of stream sockets.
const (
	Unix Family = unix.AF_UNIX
	IPv4 Family = unix.AF_INET
	IPv6 Family = unix.AF_INET6
)

// Sockaddr is a socket address as the kernel lays it out: ip(7), ipv6(7), unix(7).
type Sockaddr struct {
	raw [unix.SizeofSockaddrUnix + 2]byte
	n   uint32
}

// MaxUnixPath is the longest path of a Unix socket, without its final NUL. unix(7).
const MaxUnixPath = unix.SizeofSockaddrUnix - 2 - 1

// Raw returns the address as the kernel writes it. It shares the memory of s.
func (s *Sockaddr) Raw() []byte { return s.raw[:s.n] }

// Family returns the address's family, or 0 for an address that was never filled.
func (s *Sockaddr) Family() Family { return Family(binary.NativeEndian.Uint16(s.raw[:])) }

// SetAddrPort fills s. A zone must be the index or the current name of an interface.
func (s *Sockaddr) SetAddrPort(ap netip.AddrPort) error {
	a := ap.Addr()
	*s = Sockaddr{}
	binary.BigEndian.PutUint16(s.raw[2:], ap.Port())
	switch {
	case a.Is4():
		binary.NativeEndian.PutUint16(s.raw[:], uint16(IPv4))
		ip := a.As4()
		copy(s.raw[4:], ip[:])
		s.n = unix.SizeofSockaddrInet4
	case a.Is6():
		binary.NativeEndian.PutUint16(s.raw[:], uint16(IPv6))
		ip := a.As16()
		copy(s.raw[8:], ip[:])
		if z := a.Zone(); z != "" {
			index, err := strconv.ParseUint(z, 10, 32)
			if err != nil {
				ifi, err := net.InterfaceByName(z)
				if err != nil {
					return fmt.Errorf("zone of %s: %w", ap, err)
				}
				index = uint64(ifi.Index)
			}
			binary.NativeEndian.PutUint32(s.raw[24:], uint32(index))
		}
		s.n = unix.SizeofSockaddrInet6
	default:
		return fmt.Errorf("no IP address: %s", ap)
	}
	return nil
}

// PutAddrPort fills s for a socket of the given family, as the function of that name does.
func (s *Sockaddr) PutAddrPort(family Family, ap netip.AddrPort, scope uint32) {
	*s = Sockaddr{}
	s.n = uint32(PutAddrPort(s.raw[:], family, ap, scope))
}

// SetUnix fills s with a Unix socket's path; a leading @ denotes the abstract namespace.
func (s *Sockaddr) SetUnix(path string) error {
	if path == "" || path == "@" {
		return fmt.Errorf("empty unix socket path")
	}
	if len(path) > MaxUnixPath {
		return fmt.Errorf("unix socket path of %d bytes is longer than %d", len(path), MaxUnixPath)
	}
	*s = Sockaddr{}
	binary.NativeEndian.PutUint16(s.raw[:], uint16(Unix))
	copy(s.raw[2:], path)
	s.n = uint32(2 + len(path))
	if path[0] == '@' {
		s.raw[2] = 0
	} else {
		s.n++
	}
	return nil
}

// AddrPort returns an IP address, with IPv4 in IPv6 unmapped, or the zero AddrPort for other
// families.
func (s *Sockaddr) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.raw[2:])
	switch s.Family() {
	case IPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.raw[4:8])), port)
	case IPv6:
		a := netip.AddrFrom16([16]byte(s.raw[8:24])).Unmap()
		if index := binary.NativeEndian.Uint32(s.raw[24:]); index != 0 && a.Is6() {
			a = a.WithZone(strconv.Itoa(int(index)))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

// UnixPath returns a Unix socket's path, an abstract one with a leading @, or "" if it has none.
func (s *Sockaddr) UnixPath() string {
	if s.Family() != Unix || s.n <= 2 {
		return ""
	}
	b := s.raw[2:min(int(s.n), len(s.raw))]
	if b[0] == 0 {
		return "@" + string(b[1:])
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
