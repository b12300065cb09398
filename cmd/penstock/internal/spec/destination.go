package spec

import (
	"net/netip"
	"strconv"
	"time"
)

// A Destination makes a group without members: each of its flows goes where its client wants to go.
type Destination struct {
	By       string         // what says where: one of Destinations
	Port     uint16         // to connect to; by original: the only one that clients may have connected to, 0: any
	Allow    []string       // by name: lower-case names, a leading "*." matches one or more labels
	Networks []netip.Prefix // networks that are let in, although they are not of the public Internet
	Timeout  time.Duration  // how long a flow waits for the addresses of its name
}

// Values of Destination.By.
const (
	BySNI      = "sni"      // the server name of a ClientHello, of TLS or QUIC
	ByHost     = "host"     // the host of a request of HTTP/1
	ByOriginal = "original" // the address that the client has connected to, before the packets were brought here
)

// Destinations are the values of Destination.By.
var Destinations = []string{BySNI, ByHost, ByOriginal}

// DefaultNameTimeout is the default of Destination.Timeout.
const DefaultNameTimeout = 5 * time.Second

// AnyName is the pattern in Destination.Allow that every name matches.
const AnyName = "*"

// needs reports whether it is this that says where flows go.
func (d *Destination) needs(by string) bool { return d != nil && d.By == by }

// String returns where flows go, for people.
func (d *Destination) String() string {
	if d == nil {
		return ""
	}
	if d.By == ByOriginal {
		port := ""
		if d.Port != 0 {
			port = ", port " + strconv.Itoa(int(d.Port))
		}
		return "the address that the client has connected to" + port
	}
	return "the host named by " + d.By + ", port " + strconv.Itoa(int(d.Port))
}
