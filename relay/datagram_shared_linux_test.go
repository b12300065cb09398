package relay

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// A port whose socket others have too is forgotten when it is closed: what comes
// to it later wakes no loop.
func TestClosedPortIsForgotten(t *testing.T) {
	for _, network := range []string{"udp4", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			s, c := packetSocket(t, network), packetSocket(t, network)
			f, err := s.(interface{ File() (*os.File, error) }).File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			at := gramAddr(s.LocalAddr())
			echo := func(*Flow, int) *Addr { return &Addr{Network: Echo} }
			l, err := r.e.ListenOnPacket(s, ListenConfig{Hooks: Hooks{Done: r.done, Upstream: echo}})
			if err != nil {
				t.Fatal(err)
			}
			askGram(t, c, at, "before")
			l.Close()
			r.expect(CauseClosed)
			tellGram(t, c, at, "for somebody else")
			quiet(t, r)
		})
	}
}

// A socket that is taken over may have been told to queue errors, and to cut what
// it sends. Nobody reads that queue here: a client that is gone does not keep the
// loop busy. And a reply stays whole.
func TestListenOnPacketUndoesOptions(t *testing.T) {
	for network, family := range map[string]sys.Family{"udp4": sys.IPv4, "udp6": sys.IPv6} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			s, c, gone, up := packetSocket(t, network), packetSocket(t, network), packetSocket(t, network), packetSocket(t, network)
			rc, err := s.(*net.UDPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			rc.Control(func(fd uintptr) {
				const udp, segment = 17, 103 // linux/udp.h
				if e := max(sys.SetRecvErr(sys.Linux{}, int(fd), family, true), sys.SetInt(int(fd), udp, segment, 100)); e != 0 {
					t.Error(e)
				}
			})
			at, to := gramAddr(s.LocalAddr()), gramAddr(up.LocalAddr())
			l, err := r.e.ListenOnPacket(s, ListenConfig{Hooks: Hooks{Done: r.done, Upstream: func(*Flow, int) *Addr { return &to }}})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			tellGram(t, gone, at, "gone")
			back := gramAddr(hearGram(t, up, "gone"))
			tellGram(t, c, at, "here")
			here := gramAddr(hearGram(t, up, "here"))
			gone.Close()
			answer := strings.Repeat("answer", 50)
			for range 5 {
				tellGram(t, up, back, "for nobody")
				tellGram(t, up, here, answer)
				hearGram(t, c, answer)
			}
			quiet(t, r)
		})
	}
}

// quiet fails where a loop without work is busy: where a turn that answers a request has another event than that of the request.
func quiet(t *testing.T, r *rig) {
	t.Helper()
	events := func() int64 {
		s := r.e.Stats()
		total := s.Total()
		return total.Events
	}
	const asked = 100
	before, loops := events(), len(r.e.Stats().Loops)
	for range asked {
		events()
	}
	if n := events() - before; n > int64(loops)*(asked+2)+asked/2 {
		t.Errorf("%d events while %d loops without work were asked %d times", n, loops, asked)
	}
}
