package stats

import "github.com/penstock/penstock/internal/enum"

// Drop is the reason why a datagram was read and not delivered.
type Drop uint8

// The reasons.
const (
	DropFull              Drop = iota // the socket to send to was full, and the flow may not hold more
	DropTooBig                        // EMSGSIZE: longer than a datagram can be, or than the path allows
	DropFiltered                      // EPERM of an IP socket: dropped by a packet filter of this host
	DropNoBuffers                     // ENOBUFS or ENOMEM: the kernel or the device had no memory
	DropUnreachable                   // there was no route, or an ICMP error during the send; or nobody has the Unix socket
	DropFailed                        // the send failed otherwise
	DropTruncated                     // longer than the 65,536 bytes that are read
	DropNoReturn                      // the client has no address to which replies could be sent
	DropRefused                       // from a new client that a hook refused or that had no upstream
	DropLimited                       // from a new client, beyond relay.Config.MaxNewDatagramFlows or the time for new flows; or beyond relay.Flow.SetBandwidth
	DropNoRoom                        // from a new client, without a free descriptor or port, or a flow to evict
	DropDraining                      // from a new client, while its listener closes or after Engine.Drain
	DropEnded                         // held when the flow ended
	DropCrashed                       // in the memory of a process that died; see relay.Config.Keep
	DropOverload                      // from a new client, while overload.State.NoDatagramFlows is set
	DropAmplification                 // to a client that is not verified, beyond relay.DatagramConfig.Amplification
	DropNotPermitted                  // EPERM or EACCES of a Unix socket: this process may not send there, for lack of permission or by its sandbox
	DropTooBigWithPreface             // EMSGSIZE, with what relay.Flow.Preface has put in front
	DropProxyHeader                   // from a proxy, without the header that names the client; see relay.DatagramConfig.Origin
	DropAddressFull                   // of a new connection from an address that has 16 flows; see relay.Hooks.Choose
	drops
)

var dropNames = [drops]string{"full", "too-big", "filtered", "no-buffers", "unreachable", "failed", "truncated", "no-return", "refused", "limited", "no-room",
	"draining", "ended", "crashed", "overload", "amplification", "not-permitted", "too-big-with-preface", "proxy-header", "address-full"}

// String returns the reason's name, such as "too-big".
func (d Drop) String() string { return enum.Name(dropNames[:], d) }

// MarshalText returns the reason's name. The error is always nil.
func (d Drop) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets d to the reason of that name.
func (d *Drop) UnmarshalText(text []byte) error {
	return enum.Set(d, "reason of a drop", dropNames[:], text)
}
