package testport

import (
	"io"
	"net"
	"testing"
)

// A port that anybody uses, at whatever address, is not free.
func TestFree(t *testing.T) {
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
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
			if free(port) == nil {
				t.Errorf("%s: %s:%s is in use, and its port counts as free", network, host, port)
			}
			c.Close()
			if err := free(port); err != nil {
				t.Error(err)
			}
		}
	}
}
