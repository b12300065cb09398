package testport

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// claim makes a port this caller's. An abstract Unix socket has exactly the properties of a reservation:
// only one socket of a network namespace has a name, and the name is free when its process is gone.
func claim(port int) (release func(), err error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: fmt.Sprint("@penstock-port-", port)})
	if err != nil {
		return nil, err
	}
	claims.Store(c, true)
	return func() {
		claims.Delete(c)
		c.Close()
	}, nil
}

// claims keeps the sockets of reservations: the garbage collector would close that of a caller who has no use for release.
var claims sync.Map

// outgoing returns the range of ports for outgoing connections.
func outgoing() (low, high int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &low, &high)
	}
	if err != nil {
		return 32768, 60999 // Linux's default, see Documentation/networking/ip-sysctl.rst
	}
	return low, high
}

// table is what /proc/net said last. It can be long, with connections that have ended in it, and ports below those
// of outgoing connections are rarely anybody's: so it is read every few seconds, and not for each port.
var table struct {
	sync.Mutex
	ports map[int]bool
	read  time.Time
}

const fresh = 5 * time.Second

// inUse reports whether a socket of any address has the port.
func inUse(port int) bool {
	table.Lock()
	defer table.Unlock()
	if time.Since(table.read) > fresh {
		table.ports, table.read = sockets(), time.Now()
	}
	return table.ports[port]
}

// sockets returns the local ports of all TCP and UDP sockets of the network namespace of this thread. Each line of a table
// is "sl: address:port ...", in hexadecimal (Documentation/networking/proc_net_tcp.rst).
func sockets() map[int]bool {
	ports := make(map[int]bool)
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, _ := os.ReadFile("/proc/thread-self/net/" + name) // without IPv6 there are no tables of it
		for line := range bytes.Lines(text) {
			_, local, _ := bytes.Cut(line, []byte(": "))
			_, rest, _ := bytes.Cut(local, []byte(":"))
			hex, _, _ := bytes.Cut(rest, []byte(" "))
			if port, err := strconv.ParseUint(string(hex), 16, 16); err == nil {
				ports[int(port)] = true
			}
		}
	}
	return ports
}
