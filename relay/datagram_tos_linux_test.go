package relay

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
)

// tosPeer is a client or an upstream that chooses and sees the TOS byte of each datagram.
type tosPeer struct{ *testnet.TOSConn }

func newTOSPeer(t *testing.T, network string) tosPeer { return tosPeerOf(t, packetSocket(t, network)) }

func tosPeerOf(t *testing.T, c net.PacketConn) tosPeer {
	return tosPeer{testnet.NewTOSConn(t, c.(*net.UDPConn))}
}

func (p tosPeer) addr() Addr { return gramAddr(p.LocalAddr()) }

// tell sends datagrams of one size with a TOS byte, several of them as one run.
func (p tosPeer) tell(to Addr, tos uint8, texts ...string) { p.Tell(to.AddrPort, tos, texts...) }

// hear receives one datagram, and wants it to have a TOS byte.
func (p tosPeer) hear(text string, tos uint8) (from Addr) {
	return Addr{Network: UDP, AddrPort: p.Hear(patience, text, tos)}
}

const ect1, ect0, ce, ef = 1, 2, 3, 46 << 2

// someTOS are TOS bytes that follow each other.
var someTOS = []uint8{0, ect0, ect0, ce, ect1, ef | ce, ef, 10 << 2, 10<<2 | ect0, 0xff, 0}

var tosActions = map[string]TOSAction{"none": TOSNone, "ecn": TOSECN, "copy": TOSCopy}

// leaves returns the TOS byte of a datagram that arrived with tos and leaves by a socket with a DSCP.
func leaves(how TOSAction, tos, dscp uint8) uint8 {
	switch how {
	case TOSNone:
		return dscp << 2
	case TOSECN:
		return dscp<<2 | tos&3
	}
	return tos
}

// Each datagram keeps what DatagramConfig.TOS says of its TOS byte, in both directions; the rest is the socket's.
func TestTOS(t *testing.T) {
	for name, how := range tosActions {
		for _, at := range boundAs {
			for _, dscp := range [][2]uint8{{0, 0}, {ef >> 2, 10}} {
				t.Run(fmt.Sprintf("%s/%s to %s/dscp=%d", name, at.bound, at.to, dscp), func(t *testing.T) {
					r := newDatagramRig(t, Config{})
					network := "udp4"
					if strings.Contains(at.from, "[") {
						network = "udp6"
					}
					c, s := tosPeerOf(t, packetSocketAt(t, at.from)), newTOSPeer(t, network)
					upstream := s.addr()
					cfg := ListenConfig{Datagram: DatagramConfig{TOS: how}, Socket: SocketOptions{DSCP: dscp[down]}, Dial: &DialConfig{Socket: SocketOptions{DSCP: dscp[up]}}}
					l := r.listenAt(Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(at.bound), 0)}, cfg, &upstream)
					to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(at.to), l.Addr().AddrPort.Port())}
					for i, tos := range someTOS {
						text := fmt.Sprint(i)
						c.tell(to, tos, text)
						back := s.hear(text, leaves(how, tos, dscp[up]))
						s.tell(back, ^tos, text)
						if from := c.hear(text, leaves(how, ^tos, dscp[down])); from != to {
							t.Errorf("the reply comes from %v, want %v", from, to)
						}
					}
				})
			}
		}
	}
}

// Datagrams that are held until the upstream is known keep theirs, each its own.
func TestTOSOfSniffed(t *testing.T) {
	r := newDatagramRig(t, Config{})
	c, s := newTOSPeer(t, "udp4"), newTOSPeer(t, "udp4")
	upstream := s.addr()
	sniff := &sniffed{most: 100, patience: time.Minute, upstreams: map[string]*Addr{"up": &upstream}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: sniff.hooks(t), Datagram: DatagramConfig{TOS: TOSCopy}})
	texts := []string{"first", "second", "third", "to up", "fifth"}
	for i, text := range texts {
		c.tell(l.Addr(), someTOS[2+i], text)
	}
	for i, text := range texts {
		s.hear(text, someTOS[2+i])
	}
}

// An upstream of the other family, and one that is written as IPv4 in IPv6, get what the client has sent.
func TestTOSToTheOtherFamily(t *testing.T) {
	for client, upstream := range map[string]string{"udp4": "udp6", "udp6": "udp4"} {
		for _, mapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s to %s/mapped=%v", client, upstream, mapped), func(t *testing.T) {
				r := newDatagramRig(t, Config{})
				c, s := newTOSPeer(t, client), newTOSPeer(t, upstream)
				up := s.addr()
				if mapped {
					up.AddrPort = netip.AddrPortFrom(netip.AddrFrom16(up.AddrPort.Addr().As16()), up.AddrPort.Port())
				}
				l := r.listenAt(gramPlace(t, client), ListenConfig{Datagram: DatagramConfig{TOS: TOSCopy}}, &up)
				for i, tos := range someTOS {
					c.tell(l.Addr(), tos, fmt.Sprint(i))
					s.tell(s.hear(fmt.Sprint(i), tos), ^tos, fmt.Sprint(i))
					c.hear(fmt.Sprint(i), ^tos)
				}
			})
		}
	}
}

// Runs stay runs, and each datagram of one has the TOS byte with which it arrived, also where runs of different ones stand
// beside each other, the route refuses runs, or the socket is full for a while.
func TestTOSOfRuns(t *testing.T) {
	faults := map[string]func(k *testkernel.Kernel){
		"none":    func(*testkernel.Kernel) {},
		"refused": func(k *testkernel.Kernel) { k.Fail(testkernel.SendRun, sys.EIO, -1) },
		"full": func(k *testkernel.Kernel) {
			for _, c := range []testkernel.Call{testkernel.Send, testkernel.SendBatch, testkernel.SendRun} {
				k.Fail(c, sys.EAGAIN, 2)
			}
		},
	}
	for name, how := range tosActions {
		for _, network := range []string{"udp4", "udp6"} {
			for fault, arm := range faults {
				t.Run(name+"/"+network+"/"+fault, func(t *testing.T) {
					r := newDatagramRig(t, Config{Loops: 1})
					c, s := newTOSPeer(t, network), newTOSPeer(t, network)
					up := s.addr()
					entered, leave := make(chan bool, 1), make(chan bool)
					l := r.listenAt(gramPlace(t, network), ListenConfig{Datagram: DatagramConfig{TOS: how}, Hooks: Hooks{Upstream: func(*Flow, int) *Addr {
						entered <- true
						<-leave
						return &up
					}}})
					arm(r.k)
					const runs, size = 24, 5
					tosOf := func(i int) uint8 { return someTOS[i/2%len(someTOS)] } // of two runs each, which join
					texts := numbered(runs * size)
					tellAll := func(p tosPeer, to Addr) {
						for i := range runs {
							p.tell(to, tosOf(i), texts[i*size:][:size]...)
						}
					}
					hearAll := func(p tosPeer) (from Addr) {
						for i, text := range texts {
							from = p.hear(text, leaves(how, tosOf(i/size), 0))
						}
						return from
					}
					// While the loop begins the flow, all the rest arrives.
					c.tell(l.Addr(), 0, "first")
					<-entered
					tellAll(c, l.Addr())
					close(leave)
					s.hear("first", 0)
					back := hearAll(s)
					// While it waits, so do all replies.
					in, out := make(chan bool), make(chan bool)
					r.e.loops[0].Post(loop.Request{Do: func() { in <- true; <-out }})
					<-in
					tellAll(s, back)
					close(out)
					hearAll(c)
					if n := r.dgramStats(); fault == "none" && n.Runs == 0 || fault == "refused" && n.Runs != 0 {
						t.Errorf("%d runs", n.Runs)
					}
				})
			}
		}
	}
}

// What a flow holds back for its upstream leaves with the TOS byte with which it arrived.
func TestTOSOfWhatIsHeld(t *testing.T) {
	var hold []byte
	for i, tos := range someTOS {
		hold = appendHeld(hold, []byte(fmt.Sprint(i)), i*6553, tos)
	}
	for i, want := range someTOS {
		var b []byte
		var seg int
		var tos uint8
		b, seg, tos, hold = cutHeld(hold)
		if string(b) != fmt.Sprint(i) || seg != i*6553 || tos != want {
			t.Errorf("message %d: %q, segments of %d, %#02x", i, b, seg, tos)
		}
	}
}

// A built-in upstream returns the TOS byte with the datagram. Unix sockets have none: what comes from them counts as 0.
func TestTOSWithoutUDP(t *testing.T) {
	r := newDatagramRig(t, Config{})
	c := newTOSPeer(t, "udp4")
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{TOS: TOSCopy}}, &Addr{Network: Echo})
	for i, tos := range someTOS {
		c.tell(l.Addr(), tos, fmt.Sprint(i))
		c.hear(fmt.Sprint(i), tos)
	}
	l = r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{TOS: TOSCopy}, Socket: SocketOptions{DSCP: 10}}, gramEcho(t, "unixgram"))
	c.tell(l.Addr(), ef, "hello")
	c.hear("hello", 0)
	s := newTOSPeer(t, "udp4")
	up := s.addr()
	l = r.listenAt(gramPlace(t, "unixgram"), ListenConfig{Datagram: DatagramConfig{TOS: TOSECN}, Dial: &DialConfig{Socket: SocketOptions{DSCP: 10}}}, &up)
	u := packetSocket(t, "unixgram")
	tellGram(t, u, l.Addr(), "hello")
	s.tell(s.hear("hello", 10<<2), ef|ce, "hello")
	hearGram(t, u, "hello")
}

// tellsTOS reports whether a socket asks for the TOS byte of each datagram.
func tellsTOS(t *testing.T, fd int) bool {
	n, e := sys.GetInt(fd, 0, 13) // IP_RECVTOS, ip(7)
	if e != 0 {
		t.Fatal(e)
	}
	return n != 0
}

// After Update flows go on with what they began with, and those that begin have the new configuration. Sockets of flows
// that keep nothing are not asked for the byte.
func TestTOSUpdate(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := newTOSPeer(t, "udp4")
	up := s.addr()
	cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &up }, Done: r.done}}
	l := r.listenAt(gramPlace(t, "udp4"), cfg)
	d := r.e.datagrams.all[0]
	asks := func() (port bool, flows int) {
		d.loop.Ask(func() {
			port = tellsTOS(t, d.ports[0].fd)
			d.slab.Each(func(f *datagramFlow) {
				if tellsTOS(t, int(f.fd)) {
					flows++
				}
			})
		})
		return port, flows
	}
	var clients []tosPeer
	for i, how := range []TOSAction{TOSNone, TOSECN, TOSCopy, TOSNone} {
		cfg.Datagram.TOS = how
		if err := l.Update(cfg); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, newTOSPeer(t, "udp4"))
		for j, c := range clients {
			began := []TOSAction{TOSNone, TOSECN, TOSCopy, TOSNone}[j]
			c.tell(l.Addr(), ef|ce, "hello")
			s.tell(s.hear("hello", leaves(began, ef|ce, 0)), ef|ect0, "hello")
			c.hear("hello", leaves(began, ef|ect0, 0))
		}
		if port, flows := asks(); port != (i > 0) || flows != min(i, 2) {
			t.Errorf("after update %d, the port is asked: %v, and the sockets of %d flows", i, port, flows)
		}
	}
	cfg.Datagram.TOS = TOSCopy + 1
	if err := l.Update(cfg); err == nil {
		t.Error("an action that there is not")
	}
}

// A flow that has a socket of its own, because its engine drains, goes on to keep TOS bytes.
func TestTOSWhileDraining(t *testing.T) {
	for _, at := range boundAs {
		t.Run(at.bound+" to "+at.to, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			c, s := tosPeerOf(t, packetSocketAt(t, at.from)), newTOSPeer(t, "udp4")
			up := s.addr()
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(at.bound), 0)}, ListenConfig{Datagram: DatagramConfig{TOS: TOSCopy}}, &up)
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(at.to), l.Addr().AddrPort.Port())}
			c.tell(to, ef, "first")
			s.hear("first", ef)
			drainBegun(t, r)
			for i, tos := range someTOS {
				c.tell(to, tos, fmt.Sprint(i))
				s.tell(s.hear(fmt.Sprint(i), tos), ^tos, fmt.Sprint(i))
				c.hear(fmt.Sprint(i), ^tos)
			}
		})
	}
}

// A kept flow goes on with what the next process is configured to do.
func TestTOSOutlivesProcess(t *testing.T) {
	for network, place := range map[string]string{"udp4": "udp://127.0.0.1:0", "udp6": "udp://[::1]:0"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			s, c := newTOSPeer(t, network), newTOSPeer(t, network)
			up := s.addr()
			o := keptOrder{Listen: []string{place}, Upstream: up.String(), Socket: SocketOptions{DSCP: 10}}
			for i, how := range []TOSAction{TOSCopy, TOSCopy, TOSNone, TOSECN} {
				o.TOS = how
				p := k.start(o)
				o.Listen = p.urls()
				if want := min(i, 1); p.Restored.Flows != want {
					t.Fatalf("%d flows are restored, want %d", p.Restored.Flows, want)
				}
				for j, tos := range someTOS {
					c.tell(p.addrs[0], tos, fmt.Sprint(j))
					s.tell(s.hear(fmt.Sprint(j), leaves(how, tos, 10)), ^tos, fmt.Sprint(j))
					c.hear(fmt.Sprint(j), leaves(how, ^tos, 10))
				}
				k.expect(holdFlow, 1)
				p.ask("stats") // the turn of the last reply has ended
				p.kill()
			}
		})
	}
}
