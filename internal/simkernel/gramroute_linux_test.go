package simkernel

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// gramRules are rules that take a route away, and what a send fails with then. Table 100 has a route of the type unreachable.
var gramRules = []struct {
	kind string
	e    sys.Errno
}{{"unreachable", sys.ENETUNREACH}, {"table 100", sys.EHOSTUNREACH}, {"prohibit", sys.EACCES}, {"blackhole", sys.EINVAL}}

// gramRoutes is a script without a route from socket a to socket b, and with one again. gone and back change the routes.
func gramRoutes(r *gramRun, a, b int, gone, back func(port uint16)) (text string) {
	say := func(what string, x any) { text += fmt.Sprintf("%s: %v; ", what, x) }
	fd, port, buffer := r.fds[a], r.at[b].AddrPort().Port(), make([]byte, 10)
	batch := func(to ...int) string {
		v := sys.NewVector(gramBatch, 2*gramBatch, sys.Unix)
		for _, x := range to {
			i := v.Open()
			name, _ := r.destination(a, x)
			v.SetNameLen(i, copy(v.Name(i), name))
			v.Add(buffer)
			v.SetControlLen(i, 0)
		}
		n, e := r.k.SendBatch(fd, v, 0, len(to))
		return fmt.Sprint(n, e)
	}
	send := gramStep{op: gramSend, a: a, size: 10, fill: 1}
	connect := gramStep{op: gramConnect, a: a, b: b}
	say("connect", r.do(connect))
	say("send", r.do(send))
	gone(port)
	say("without a route", r.do(send))
	say("of a run", r.do(gramStep{op: gramSendTo, a: a, b: b, size: 1000, cut: 100, with: true}))
	say("too much", r.do(gramStep{op: gramSend, a: a, size: 65530}))
	say("a batch to itself first", batch(a, b, a))
	say("and then", batch(b, a))
	say("connect to where it is", r.do(connect))
	say("error", r.do(gramStep{op: gramError, a: a}))
	var sa sys.Sockaddr
	say("connected", fmt.Sprint(r.k.PeerAddr(fd, &sa), sa.AddrPort().Port() == port))
	fresh, e := r.k.Datagram(gramSetups[a].family)
	name, _ := r.destination(a, b)
	var to sys.Sockaddr
	to.SetRaw(name)
	say("a new socket", fmt.Sprint(e, r.k.Connect(fresh, &to), r.k.PeerAddr(fresh, &sa), r.k.LocalAddr(fresh, &sa), sa.AddrPort().Port() > 0, sa.AddrPort().Addr()))
	r.k.Close(fresh)
	say("state", r.state())
	back(port)
	say("with the route back", r.do(send))
	say("events", r.do(gramStep{op: gramWait}))
	say("received", r.do(gramStep{op: gramRecv, a: b, messages: 3}))
	// What a socket is told of an ICMP message is there still when there is a route again.
	r.k.Close(r.fds[b])
	r.fds[b] = -1
	say("to nobody", r.do(send))
	say("events", r.do(gramStep{op: gramWait}))
	gone(port)
	say("told, and without a route", r.do(send))
	say("connect", r.do(gramStep{op: gramConnect, a: a, b: b}))
	say("state", r.state())
	back(port)
	say("told, with the route back", r.do(send))
	say("and then", r.do(gramStep{op: gramError, a: a})+r.do(gramStep{op: gramError, a: a}))
	return text
}

// TestGramRoutesLikeLinux takes routes away on both kernels.
func TestGramRoutesLikeLinux(t *testing.T) {
	if !testnet.Netns(t, "rule add pref 9 table local", "rule del pref 0", "-6 rule add pref 9 table local", "-6 rule del pref 0",
		"route add unreachable default table 100", "-6 route add unreachable default table 100") {
		return
	}
	for _, rule := range gramRules {
		for _, c := range [][2]int{{0, 1}, {1, 0}, {2, 3}, {3, 2}} {
			a, b := c[0], c[1]
			var seen [2]string
			for i, k := range []sys.Kernel{sys.Linux{}, nil} {
				var none []uint16
				if i == 1 {
					w := New()
					w.NoRoute = func(to netip.AddrPort) sys.Errno {
						if slices.Contains(none, to.Port()) {
							return rule.e
						}
						return 0
					}
					k = w.NewProcess()
				}
				family := ""
				if gramSetups[a].family == sys.IPv6 {
					family = "-6 "
				}
				r := newGramRun(t, k, true)
				line := func(port uint16) string { return fmt.Sprintf("pref 1 ipproto udp dport %d %s", port, rule.kind) }
				seen[i] = gramRoutes(r, a, b, func(port uint16) {
					if none = append(none, port); i == 0 {
						testnet.IP(t, family+"rule add "+line(port))
					}
				}, func(port uint16) {
					if none = nil; i == 0 {
						testnet.IP(t, family+"rule del "+line(port))
					}
				})
				r.close()
			}
			if t.Log(seen[0]); seen[0] != seen[1] {
				t.Errorf("%s, socket %d to %d:\nLinux     %s\nsimulated %s", rule.kind, a, b, seen[0], seen[1])
			}
		}
	}
}
