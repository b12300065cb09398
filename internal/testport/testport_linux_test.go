package testport

import (
	"io"
	"net"
	"strconv"
	"testing"
)

// A port that anybody uses, at whatever address, is in the tables.
func TestSockets(t *testing.T) {
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.54.2", "[::1]", ""} {
		for _, network := range []string{"tcp", "udp"} {
			var c io.Closer
			if network == "tcp" {
				c, err = net.Listen(network, host+":"+port)
			} else {
				c, err = net.ListenPacket(network, host+":"+port)
			}
			if err != nil {
				if host == "[::1]" {
					continue // this machine has no IPv6
				}
				t.Fatal(err)
			}
			if !sockets()[number] {
				t.Errorf("%s: %s:%s is in use, and not in the tables", network, host, port)
			}
			c.Close()
			if sockets()[number] {
				t.Errorf("%s: %s:%s is closed, and in the tables", network, host, port)
			}
		}
	}
}
