package xnet

import (
	"net"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/penstock/penstock/dgram"
)

// TestControl: options that the program set on the socket by itself have their
// messages delivered with each datagram of a super-packet, and ours do not
// stand in their way.
func TestControl(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			a, b := listen(t, "udp4", "127.0.0.1:0", cfg), listen(t, "udp4", "127.0.0.1:0", cfg)
			if err := ipv4.NewPacketConn(b.UDPConn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface|ipv4.FlagTTL, true); err != nil {
				t.Fatal(err)
			}
			ms := make([]ipv4.Message, 5)
			for i := range ms {
				ms[i] = ipv4.Message{Buffers: [][]byte{{1, 2, 3}}, Addr: b.LocalAddr()}
			}
			if n, err := a.WriteBatch(ms, 0); n != 5 || err != nil {
				t.Fatal(n, err)
			}
			for i := range 5 {
				m := []ipv4.Message{{Buffers: [][]byte{make([]byte, 10)}, OOB: make([]byte, 64)}}
				if _, err := b.ReadBatch(m, 0); err != nil {
					t.Fatal(err)
				}
				var cm ipv4.ControlMessage
				if err := cm.Parse(m[0].OOB[:m[0].NN]); err != nil || cm.Dst.String() != "127.0.0.1" || cm.IfIndex != 1 || cm.TTL == 0 {
					t.Errorf("datagram %d: %v, %v, flags %#x", i, &cm, err, m[0].Flags)
				}
			}
			// Sent control messages take effect.
			out := (&ipv4.ControlMessage{Src: []byte{127, 0, 0, 7}}).Marshal()
			if _, err := a.WriteBatch([]ipv4.Message{{Buffers: [][]byte{{9}}, OOB: out, Addr: b.LocalAddr()}}, 0); err == nil {
				_, from, err := b.ReadFromUDP(make([]byte, 9))
				if err != nil || from.IP.String() != "127.0.0.7" {
					t.Errorf("from %v, %v", from, err)
				}
			} else {
				t.Error(err)
			}
			// Too little room: none, and it says so.
			if _, err := a.WriteBatch(ms[:1], 0); err != nil {
				t.Fatal(err)
			}
			m := []ipv4.Message{{Buffers: [][]byte{make([]byte, 10)}, OOB: make([]byte, 3)}}
			if _, err := b.ReadBatch(m, 0); err != nil || m[0].NN != 0 || m[0].Flags&msgCtrunc == 0 {
				t.Errorf("NN = %d, flags %#x, %v", m[0].NN, m[0].Flags, err)
			}
		})
	}
}

// TestControlOfTwoFamilies: a dual-stack socket that was asked for both families'
// packet info gets two with each IPv4 datagram. A server with room for one, as
// miekg/dns has, gets the first, and can pin its answer's source.
func TestControlOfTwoFamilies(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			server, client := listen(t, "udp", ":0", cfg), listen(t, "udp4", "127.0.0.1:0", cfg)
			if err := ipv6.NewPacketConn(server.UDPConn).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true); err != nil {
				t.Fatal(err)
			}
			if err := ipv4.NewPacketConn(server.UDPConn).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
				t.Fatal(err)
			}
			to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 5), Port: server.LocalAddr().(*net.UDPAddr).Port}
			if _, err := client.WriteTo([]byte("?"), to); err != nil {
				t.Fatal(err)
			}
			oob := make([]byte, 40)
			_, n, _, from, err := server.ReadMsgUDP(make([]byte, 10), oob)
			if err != nil {
				t.Fatal(err)
			}
			var cm ipv6.ControlMessage
			if err := cm.Parse(oob[:n]); err != nil || !cm.Dst.Equal(to.IP) {
				t.Fatalf("%d bytes of control messages: %v, %v", n, &cm, err)
			}
			if _, _, err := server.WriteMsgUDP([]byte("!"), (&ipv4.ControlMessage{Src: cm.Dst}).Marshal(), from); err != nil {
				t.Fatal(err)
			}
			if _, from, err := client.ReadFromUDP(make([]byte, 10)); err != nil || from.String() != to.String() {
				t.Errorf("answer from %v, want %v: %v", from, to, err)
			}
		})
	}
}

// TestWhatWasCut: a cut datagram and cut control messages have different flags, and
// nothing is left of what a message said before.
func TestWhatWasCut(t *testing.T) {
	for name, cfg := range configs {
		for _, buffers := range []int{1, 2} {
			for _, row := range []struct{ size, oob, n, nn, flags int }{
				{10, 64, 10, 32, 0}, {100, 64, 50, 32, msgTrunc}, {10, 3, 10, 0, msgCtrunc}, {10, 20, 10, 20, msgCtrunc},
				{100, 3, 50, 0, msgTrunc | msgCtrunc}, {100, 0, 50, 0, msgTrunc | msgCtrunc}, {50, 32, 50, 32, 0},
			} {
				a, b := listen(t, "udp4", "127.0.0.1:0", cfg), listen(t, "udp4", "127.0.0.1:0", cfg)
				if err := ipv4.NewPacketConn(b.UDPConn).SetControlMessage(ipv4.FlagDst, true); err != nil {
					t.Fatal(err)
				}
				if _, err := a.WriteTo(make([]byte, row.size), b.LocalAddr()); err != nil {
					t.Fatal(err)
				}
				m := []ipv4.Message{{Buffers: [][]byte{make([]byte, 50)}, OOB: make([]byte, row.oob), N: 99, NN: 99, Flags: 0xff, Addr: &net.UDPAddr{}}}
				if buffers == 2 {
					m[0].Buffers = [][]byte{make([]byte, 20), make([]byte, 30)}
				}
				if n, err := b.ReadBatch(m, 0); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if got := m[0]; got.N != row.n || got.NN != row.nn || got.Flags != row.flags || got.Addr.String() != a.LocalAddr().String() {
					t.Errorf("%s, %d buffers, %+v: N %d, NN %d, flags %#x from %v", name, buffers, row, got.N, got.NN, got.Flags, got.Addr)
				}
				a.Close()
				b.Close()
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			a, b := listen(t, "udp4", "127.0.0.1:0", cfg), listen(t, "udp4", "127.0.0.1:0", dgram.Config{NoGRO: cfg.NoGRO})
			out, in := make([]ipv4.Message, 64), make([]ipv4.Message, 64)
			for i := range out {
				out[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 100)}, Addr: b.LocalAddr()}
				in[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 100)}, OOB: make([]byte, 64)}
			}
			if n := testing.AllocsPerRun(50, func() {
				if _, err := a.WriteBatch(out, 0); err != nil {
					t.Fatal(err)
				}
				for got := 0; got < len(out); {
					n, err := b.ReadBatch(in, 0)
					if err != nil {
						t.Fatal(err)
					}
					got += n
				}
			}); n != 0 {
				t.Errorf("%v allocations a batch; x/net has two a message", n)
			}
		})
	}
}
