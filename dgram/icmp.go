package dgram

import (
	"fmt"
	"net/netip"
	"syscall"
)

// ICMPError is an ICMP error about a datagram that was sent earlier.
type ICMPError struct {
	// Err is the error number that the kernel gives to sockets: ECONNREFUSED, nobody
	// listens there; EHOSTUNREACH or ENETUNREACH; EMSGSIZE, larger than the path MTU.
	Err syscall.Errno

	// Addr is the destination of the datagram.
	Addr netip.AddrPort

	// From is the router or host that sent the ICMP message. It is invalid if this host
	// found the error; Type and Code have no meaning then.
	From netip.Addr

	// Type and Code are those of the ICMP message; see RFC 792 for IPv4 and RFC 4443 for
	// IPv6.
	Type, Code uint8

	// MTU is the path MTU if Err is EMSGSIZE.
	MTU int
}

// Error returns the destination, Err, and the sender of the ICMP message.
func (e *ICMPError) Error() string {
	if !e.From.IsValid() {
		return fmt.Sprintf("datagram to %s: %v", e.Addr, e.Err)
	}
	return fmt.Sprintf("datagram to %s: %v (reported by %s, type %d, code %d)", e.Addr, e.Err, e.From, e.Type, e.Code)
}

// Unwrap returns Err.
func (e *ICMPError) Unwrap() error { return e.Err }
