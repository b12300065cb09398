//go:build !linux

package testport

import (
	"fmt"
	"net"
	"strconv"
	"sync"
)

var claimed sync.Map // of int

// claim makes a port this caller's, in this process.
func claim(port int) (release func(), err error) {
	if _, taken := claimed.LoadOrStore(port, true); taken {
		return nil, fmt.Errorf("port %d is reserved", port)
	}
	return func() { claimed.Delete(port) }, nil
}

// outgoing returns the range of ports for outgoing connections: that of RFC 6335, section 6.
func outgoing() (low, high int) { return 49152, 65535 }

// inUse reports whether a socket has the port.
func inUse(port int) bool {
	at := ":" + strconv.Itoa(port)
	l, err := net.Listen("tcp", at)
	if err != nil {
		return true
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", at)
	if err != nil {
		return true
	}
	u.Close()
	return false
}
