package dgram

import (
	"fmt"
	"net/netip"
	"syscall"
)

// ICMPError is an error that came back for a datagram sent earlier.
type ICMPError struct {
	// Err is what it means to a socket: ECONNREFUSED, nobody listens there;
	// EHOSTUNREACH, ENETUNREACH; EMSGSIZE, larger than the path MTU.
	Err syscall.Errno

	// Addr is where the datagram was going.
	Addr netip.AddrPort

	// From is the router or host that sent the ICMP message. It is invalid where
	// this machine found the error itself; Type and Code mean nothing then.
	From netip.Addr

	// Type and Code are those of the ICMP message, RFC 792 for IPv4 and RFC 4443 for IPv6.
	Type, Code uint8

	// MTU is the path's, if Err is EMSGSIZE.
	MTU int
}

func (e *ICMPError) Error() string {
	if !e.From.IsValid() {
		return fmt.Sprintf("datagram to %s: %v", e.Addr, e.Err)
	}
	return fmt.Sprintf("datagram to %s: %v, says %s (type %d, code %d)", e.Addr, e.Err, e.From, e.Type, e.Code)
}

// Unwrap returns Err.
func (e *ICMPError) Unwrap() error { return e.Err }
