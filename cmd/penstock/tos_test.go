package main

import (
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testnet"
)

// A flow goes on with the TOS bytes of its datagrams through a crash and an upgrade, in the sandbox, and, with a socket of its own, when its
// listener is removed. A reload changes what new flows do.
func TestTOS(t *testing.T) {
	t.Parallel()
	t.Run("same user", func(t *testing.T) {
		t.Parallel()
		testTOS(t, "127.0.0.1:0", "")
	})
	t.Run("other user, low port", func(t *testing.T) {
		t.Parallel()
		testTOS(t, lowAddress(t), "user: '65534:65534'")
	})
}

func testTOS(t *testing.T, listen, sandbox string) {
	const stays = "  stays: {listen: \"tcp://127.0.0.1:0\", to: \"echo:\"}\n"
	const listener = "  l: {listen: \"udp://{2}\", tos: {0}, to: g}\n"
	const rest = "groups:\n  g: {members: [\"udp://{1}\"], dscp: af11}\nsandbox: {{3}}\nkeeper: {keep-after: 0, healthy-after: 0}\n"
	const text = "listeners:\n" + stays + listener + rest
	peer := func() *testnet.TOSConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return testnet.NewTOSConn(t, c)
	}
	up, first := peer(), peer()
	k := asUser(t, text, "ecn", up.LocalAddr(), listen, sandbox)
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
	k.write(t, text, "copy", up.LocalAddr(), listen, sandbox)
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
	k.write(t, "listeners:\n"+stays+rest, "", up.LocalAddr(), "", sandbox)
	k.reload()
	exchange(second, true)
	exchange(first, true)
}
