package simkernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
)

// gramRun is a script of datagrams on one of the kernels. Its sockets have numbers, and ports and names are told as those.
type gramRun struct {
	k     sys.Kernel
	fds   []int
	names map[string]int // by address
	at    []sys.Sockaddr // of each socket
	epoll int
	in    *sys.Vector
	bufs  [4][]byte
}

const (
	gramBatch = 4
	gramSize  = 1500 // of buffers: longer ones are cut off
)

// gramSetup says what kinds of sockets there are: a name of a family, and whether it tells all that a socket can tell.
type gramSetup struct {
	family sys.Family
	at     string
	tells  bool
}

var gramSetups = []gramSetup{
	{family: sys.IPv4, at: "127.0.0.1:0"},
	{family: sys.IPv4, at: "0.0.0.0:0", tells: true},
	{family: sys.IPv6, at: "[::]:0", tells: true},
	{family: sys.IPv6, at: "[::1]:0"},
	{family: sys.IPv6, at: "[::ffff:127.0.0.1]:0", tells: true},
	{family: sys.Unix},
	{family: sys.Unix},
	{family: sys.Unix},
}

func newGramRun(t *testing.T, k sys.Kernel, epoll bool) *gramRun {
	r := &gramRun{k: k, names: make(map[string]int), epoll: -1, in: sys.NewVector(gramBatch, gramBatch, sys.Unix)}
	for i := range r.bufs {
		r.bufs[i] = make([]byte, gramSize)
		r.in.SetBuf(i, r.bufs[i])
	}
	if epoll {
		var err error
		if r.epoll, err = k.EpollCreate(); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range gramSetups {
		fd, e := k.Datagram(s.family)
		if e != 0 {
			t.Fatalf("%T: datagram: %v", k, e)
		}
		r.fds = append(r.fds, fd)
		if s.family != sys.Unix { // how much memory a packet takes is not simulated
			sys.SetRecvBuffer(k, fd, 4<<20)
		}
		var sa sys.Sockaddr
		if s.family == sys.Unix {
			sa.SetUnnamed()
		} else if err := r.put(&sa, s); err != nil {
			t.Fatal(err)
		}
		if s.tells {
			sys.SetRecvTOS(k, fd, s.family, true)
			sys.SetRecvLocal(k, fd, s.family)
			sys.SetRecvDrops(k, fd)
			sys.SetGRO(k, fd, true)
		}
		if e := k.Bind(fd, &sa); e != 0 {
			t.Fatalf("%T: bind %v: %v", k, s, e)
		}
		if e := k.LocalAddr(fd, &sa); e != 0 {
			t.Fatalf("%T: local address: %v", k, e)
		}
		r.at = append(r.at, sa)
		if r.epoll >= 0 {
			if e := k.EpollAdd(r.epoll, fd, sys.In|sys.Out|sys.Edge, uint64(i)); e != 0 {
				t.Fatal(e)
			}
		}
		if s.family == sys.Unix {
			r.names[string(sa.Raw())] = i
			continue
		}
		port := fmt.Sprint(sa.AddrPort().Port())
		if _, taken := r.names[port]; taken { // of another version of IP: nobody could tell them apart
			r.close()
			return newGramRun(t, k, epoll)
		}
		r.names[port] = i
	}
	return r
}

// put writes an address as a socket of the family has it.
func (r *gramRun) put(sa *sys.Sockaddr, s gramSetup) error {
	ap, err := netip.ParseAddrPort(s.at)
	if err != nil {
		return err
	}
	if s.family == sys.IPv6 {
		return sa.SetAddrPort(netip.AddrPortFrom(netip.AddrFrom16(ap.Addr().As16()), ap.Port()))
	}
	return sa.SetAddrPort(ap)
}

func (r *gramRun) close() {
	for _, fd := range r.fds {
		if fd >= 0 {
			r.k.Close(fd)
		}
	}
	if r.epoll >= 0 {
		r.k.Close(r.epoll)
	}
}

const (
	gramSend = iota
	gramSendTo
	gramSendBatch
	gramRecv
	gramConnect
	gramError
	gramReceiveNothing
	gramClose
	gramShutdown
	gramWait
	gramOps
)

var gramOpNames = [gramOps]string{"send", "send to", "send batch", "receive", "connect", "error", "receive nothing", "close", "shutdown", "wait"}

type gramStep struct {
	op, a, b  int
	size, cut int
	tos       uint8
	with      bool // control messages
	messages  int
	fill      byte
	local     bool
}

func (s gramStep) String() string {
	return fmt.Sprintf("%s(%d, %d, %d bytes, cut %d, tos %#x %v, local %v, %d messages)", gramOpNames[s.op], s.a, s.b, s.size, s.cut, s.tos, s.with, s.local, s.messages)
}

// destination writes the address of socket b for one of the family of socket a, and reports whether it travels as IPv6.
func (r *gramRun) destination(a, b int) (name []byte, v6 bool) {
	if gramSetups[b].family == sys.Unix || gramSetups[a].family == sys.Unix {
		return r.at[b].Raw(), false
	}
	ap := r.at[b].AddrPort()
	ip := ap.Addr()
	if ip.IsUnspecified() {
		if ip.Is4() || gramSetups[a].family == sys.IPv4 || a == 4 {
			ip = loopback4
		} else {
			ip = netip.IPv6Loopback()
		}
	}
	var room [28]byte
	n := sys.PutAddrPort(room[:], gramSetups[a].family, netip.AddrPortFrom(ip, ap.Port()), 0)
	return room[:n], ip.Is6()
}

func (r *gramRun) do(s gramStep) string {
	k, fd := r.k, r.fds[s.a]
	if fd < 0 && s.op != gramWait {
		return "closed"
	}
	payload := bytes.Repeat([]byte{s.fill}, s.size)
	switch s.op {
	case gramSend:
		n, e := k.Send(fd, payload)
		return fmt.Sprint(n, e)
	case gramSendTo, gramSendBatch:
		v := sys.NewVector(gramBatch, 2*gramBatch, sys.Unix)
		n := 1
		if s.op == gramSendBatch {
			n = s.messages
		}
		for i := range n {
			j := v.Open()
			name, v6 := r.destination(s.a, s.b)
			if s.op == gramSendTo || i%2 == 0 || s.local {
				v.SetNameLen(j, copy(v.Name(j), name))
			}
			v.Add(payload[:s.size/2])
			v.Add(payload[s.size/2:])
			c := v.Control(j)
			if s.with && gramSetups[s.a].family != sys.Unix {
				if s.local {
					c = sys.AppendLocal(c, v6, loopbackOf(netip.IPv6Loopback()), 0)
					if !v6 {
						c = sys.AppendLocal(v.Control(j), false, loopback4, 0)
					}
				}
				c = sys.AppendTOS(c, v6, s.tos)
				if s.cut > 0 {
					c = sys.AppendSegment(c, uint16(s.cut))
				}
			}
			v.SetControlLen(j, len(c))
		}
		sent, e := k.SendBatch(fd, v, 0, n)
		return fmt.Sprint(sent, e)
	case gramRecv:
		n, e := k.RecvBatch(fd, gramSetups[s.a].family, r.in, 0, 1+s.messages%gramBatch)
		text := fmt.Sprint(n, e)
		for i := range n {
			size, flags, name, control := r.in.Received(i)
			from := -1
			if gramSetups[s.a].family == sys.Unix {
				if x, ok := r.names[string(name)]; ok {
					from = x
				}
				text += fmt.Sprintf(" [%d bytes, flags %#x, from %d, name of %d, %x]", size, flags, from, len(name), sum(r.bufs[i][:size]))
				continue
			}
			ap, _ := sys.GetAddrPort(name)
			if x, ok := r.names[fmt.Sprint(ap.Port())]; ok {
				from = x
			}
			text += fmt.Sprintf(" [%d bytes, flags %#x, from %d %v, name of %d, %+v, %x]", size, flags, from, ap.Addr(), len(name), sys.ParseControl(control), sum(r.bufs[i][:size]))
		}
		r.in.Rearm(0, n)
		return text
	case gramConnect:
		name, _ := r.destination(s.a, s.b)
		if len(name) == 0 {
			return "no such address"
		}
		var sa sys.Sockaddr
		if gramSetups[s.a].family != sys.Unix {
			k.LocalAddr(fd, &sa)
			to, _ := sys.GetAddrPort(name)
			if ip := sa.AddrPort().Addr(); !ip.IsUnspecified() && ip.Is4() != to.Addr().Is4() {
				return "not simulated: a socket of one version of IP that is connected to the other"
			}
		}
		sa.SetRaw(name)
		return k.Connect(fd, &sa).Error()
	case gramError:
		return sys.SockError(k, fd).Error()
	case gramReceiveNothing:
		if gramSetups[s.a].family == sys.Unix {
			return "not UDP"
		}
		return sys.ReceiveNothing(k, fd).Error()
	case gramClose:
		r.fds[s.a] = -1
		return k.Close(fd).Error()
	case gramShutdown:
		if gramSetups[s.a].family != sys.Unix {
			return "not Unix"
		}
		return k.ShutdownBoth(fd).Error()
	case gramWait:
		if r.epoll < 0 {
			return ""
		}
		evs := make([]sys.Event, 64)
		n, e := k.EpollWait(r.epoll, evs, 0)
		text := e.Error()
		for i := range n {
			text += fmt.Sprintf(" %d:%#x", sys.EventData(&evs[i]), evs[i].Events)
		}
		return text
	}
	return "?"
}

func sum(b []byte) (n int) {
	for i, c := range b {
		n += (i + 1) * int(c)
	}
	return n
}

// state is what the kernel says of all sockets.
func (r *gramRun) state() string {
	var b strings.Builder
	for i, fd := range r.fds {
		if fd < 0 {
			continue
		}
		in, e := r.k.ReadQueued(fd)
		drops, _ := sys.Drops(r.k, fd)
		var sa sys.Sockaddr
		peer := r.k.PeerAddr(fd, &sa)
		fmt.Fprintf(&b, "socket %d: poll %#x, %d to read %v, %d dropped, connected %v; ", i, r.k.Poll(fd, sys.PollIn|sys.PollOut|sys.PollRdHup), in, e, drops, peer)
	}
	return b.String()
}

func drawGramStep(rnd *rand.Rand) gramStep {
	s := gramStep{op: rnd.IntN(gramOps), size: 1 + rnd.IntN(2000), tos: uint8(rnd.IntN(256)), with: rnd.IntN(2) == 0, messages: 1 + rnd.IntN(gramBatch), fill: byte(1 + rnd.IntN(255)), local: rnd.IntN(4) == 0}
	if s.op >= gramReceiveNothing && rnd.IntN(6) > 0 {
		s.op = rnd.IntN(gramReceiveNothing)
	}
	s.a, s.b = rnd.IntN(5), rnd.IntN(5)
	if rnd.IntN(2) == 0 {
		s.a, s.b = 5+rnd.IntN(3), 5+rnd.IntN(3)
	}
	if rnd.IntN(2) == 0 {
		s.cut = 1 + rnd.IntN(700)
	}
	if rnd.IntN(8) == 0 && s.a < 5 { // how much memory such ones take of a Unix socket's is not simulated
		s.size = [...]int{0, 65507, 65508, 65527, 65528, 65535, 65536}[rnd.IntN(7)]
	}
	return s
}

func runGramsOnBoth(t *testing.T, seed uint64, epoll bool) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	real, simulated := newGramRun(t, sys.Linux{}, epoll), newGramRun(t, New().NewProcess(), epoll)
	defer real.close()
	defer simulated.close()
	var script []string
	agree := func() {
		t.Helper()
		var a, b string
		if !testwait.For(func() bool { a, b = real.state(), simulated.state(); return a == b }) {
			t.Fatalf("seed %d, after %s:\nLinux     %s\nsimulated %s", seed, strings.Join(script, ", "), a, b)
		}
	}
	agree()
	for range 40 {
		s := drawGramStep(rnd)
		script = append(script, s.String())
		if a, b := real.do(s), simulated.do(s); a != b {
			t.Fatalf("seed %d, %s:\nLinux     %s\nsimulated %s", seed, strings.Join(script, ", "), a, b)
		}
		agree()
	}
}

// TestGramsLikeLinux runs random scripts of calls about datagrams on both kernels, which must agree about the result of each, and about
// all that can be asked in between.
func TestGramsLikeLinux(t *testing.T) {
	for seed := range uint64(300) {
		runGramsOnBoth(t, seed, seed%2 == 0)
	}
}
