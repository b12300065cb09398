package main

import (
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// A flow goes on with the TOS bytes of its datagrams through a crash and an upgrade, in the sandbox. A reload changes what
// new flows do.
func TestTOS(t *testing.T) {
	t.Parallel()
	const text = "listeners:\n  l: {listen: \"udp://127.0.0.1:0\", tos: {0}, to: g}\ngroups:\n  g: {members: [\"udp://{1}\"], dscp: af11}\n"
	peer := func() *testnet.TOSConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return testnet.NewTOSConn(t, c)
	}
	up, first := peer(), peer()
	k := runKeeper(t, "", text, "ecn", up.LocalAddr())
	to := k.at("l").(*net.UDPAddr).AddrPort()
	const af11, ef = 10 << 2, 46 << 2
	exchange := func(c *testnet.TOSConn, copied bool) {
		t.Helper()
		for ecn := range uint8(4) {
			text, out, back := fmt.Sprint(ecn), ef|ecn, ef|ecn^1
			c.Tell(to, out, text)
			if !copied {
				out = af11 | ecn
			}
			up.Tell(up.Hear(patience, text, out), back, text)
			if !copied {
				back = ecn ^ 1
			}
			c.Hear(patience, text, back)
		}
	}
	exchange(first, false)
	k.settled(1)
	k.crash()
	exchange(first, false)
	k.write(t, text+"keeper: {keep-after: 0, healthy-after: 0}\n", "copy", up.LocalAddr())
	k.reload()
	exchange(first, false)
	second := peer()
	exchange(second, true)
	k.settled(2)
	k.upgrade()
	exchange(second, true)
	k.crash()
	exchange(second, true)
	exchange(first, true) // the worker that restores it goes by the configuration that it has
}
