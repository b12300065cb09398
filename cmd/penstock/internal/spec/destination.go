package spec

import (
	"net/netip"
	"strconv"
	"time"
)

// A Destination makes a group without members: each of its flows goes where its client wants to go.
type Destination struct {
	By       string         // what says where: one of Destinations
	Port     uint16         // by name: the port to connect to
	Allow    []string       // by name: lower-case names, a leading "*." matches one or more labels
	Networks []netip.Prefix // networks that are let in, although they are not of the public Internet
	Timeout  time.Duration  // how long a flow waits for the addresses of its name
}

// Values of Destination.By.
const (
	BySNI  = "sni"  // the server name of a ClientHello
	ByHost = "host" // the host of a request of HTTP/1
)

// Destinations are the values of Destination.By.
var Destinations = []string{BySNI, ByHost}

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
	return "the host named by " + d.By + ", port " + strconv.Itoa(int(d.Port))
}
