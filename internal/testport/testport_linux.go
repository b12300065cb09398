package testport

import (
	"fmt"
	"net"
	"os"
)

// claim makes a port this caller's. An abstract Unix socket has exactly the properties of a reservation:
// only one socket of a network namespace has a name, and the name is free when its process is gone.
func claim(port int) (release func(), err error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: fmt.Sprint("@penstock-port-", port)})
	if err != nil {
		return nil, err
	}
	return func() { c.Close() }, nil
}

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
