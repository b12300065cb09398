package simkernel

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// gramScripts do what random calls about datagrams do not reach. Each returns what it has seen, which must be the same on both kernels.
var gramScripts = map[string]func(t *testing.T, r *gramRun) string{
	"a Unix socket whose queue is full": func(t *testing.T, r *gramRun) string {
		text := r.do(gramStep{op: gramConnect, a: 5, b: 6})
		text += r.do(gramStep{op: gramConnect, a: 7, b: 7})
		sent := 0
		for r.do(gramStep{op: gramSend, a: 5, size: 10}) == "10 errno 0" {
			sent++
		}
		text += fmt.Sprint(", sent ", sent, ", again ", r.do(gramStep{op: gramSend, a: 5, size: 10}), r.do(gramStep{op: gramSendTo, a: 7, b: 6, size: 10}), r.state())
		r.do(gramStep{op: gramWait})
		text += r.do(gramStep{op: gramRecv, a: 6}) + r.do(gramStep{op: gramWait}) + r.state()
		return text + r.do(gramStep{op: gramClose, a: 6}) + r.do(gramStep{op: gramWait}) + r.do(gramStep{op: gramSend, a: 5, size: 10}) + r.do(gramStep{op: gramSend, a: 5, size: 10})
	},
	"a full queue of UDP drops, and tells how many": func(t *testing.T, r *gramRun) string {
		sys.SetRecvBuffer(r.k, r.fds[1], 10_000)
		const all = 200
		for range all {
			if s := r.do(gramStep{op: gramSendTo, a: 0, b: 1, size: 500}); s != "1 errno 0" {
				return s
			}
		}
		drops, e := sys.Drops(r.k, r.fds[1])
		got := 0
		for {
			n, _ := r.k.RecvBatch(r.fds[1], sys.IPv4, r.in, 0, gramBatch)
			if n == 0 {
				break
			}
			got += n
			r.in.Rearm(0, n)
		}
		r.do(gramStep{op: gramSendTo, a: 0, b: 1, size: 500})
		n, _ := r.k.RecvBatch(r.fds[1], sys.IPv4, r.in, 0, gramBatch)
		_, _, _, control := r.in.Received(0)
		c := sys.ParseControl(control)
		return fmt.Sprint(e, got > 0, drops > 0, got+int(drops) == all, n, c.HasDrops, c.Drops == drops)
	},
	"the port of a closed listener goes on by sockets that are connected": func(t *testing.T, r *gramRun) string {
		text := ""
		for _, port := range []int{0, 4} { // which are bound to one address
			sys.SetReusePort(r.k, r.fds[port])
			sys.SetReusePort(r.k, r.fds[2])
			fd, e := r.k.Datagram(sys.IPv6)
			if e != 0 {
				return e.Error()
			}
			var sa sys.Sockaddr
			sa.PutAddrPort(sys.IPv6, r.at[port].AddrPort(), 0)
			e = sys.BindShared(r.k, fd, &sa)
			var client sys.Sockaddr
			to, _ := r.destination(4, 1)
			client.SetRaw(to)
			text += fmt.Sprint(e, r.k.Connect(fd, &client), sys.ReceiveNothing(r.k, r.fds[port]))
			for _, from := range []int{1, 2} {
				text += " " + r.do(gramStep{op: gramSendTo, a: from, b: port, size: 10 + from})
			}
			for _, at := range []int{fd, r.fds[port]} {
				n, e := r.k.RecvBatch(at, sys.IPv6, r.in, 0, gramBatch)
				size, _, _, _ := r.in.Received(0)
				text += fmt.Sprint(" ", n, e)
				if n > 0 {
					text += fmt.Sprint(" of ", size)
				}
				r.in.Rearm(0, n)
			}
			text += fmt.Sprint(" ", r.do(gramStep{op: gramError, a: 2}), sys.Connected(r.k, r.fds[port]))
			r.k.Close(fd)
		}
		return text
	},
}

// TestGramScriptsLikeLinux runs the scripts on both kernels.
func TestGramScriptsLikeLinux(t *testing.T) {
	for name, script := range gramScripts {
		t.Run(name, func(t *testing.T) {
			var seen [2]string
			for i, k := range []sys.Kernel{sys.Linux{}, New().NewProcess()} {
				r := newGramRun(t, k, true)
				seen[i] = script(t, r)
				r.close()
			}
			if t.Log(seen[0]); seen[0] != seen[1] {
				t.Errorf("\nLinux     %s\nsimulated %s", seen[0], seen[1])
			}
		})
	}
}
