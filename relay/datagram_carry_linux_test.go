package relay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/segment"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
)

var levels = map[string]Config{"full": {}, "nogso": {NoGSO: true}, "nogro": {NoGRO: true}, "plain": {NoGSO: true, NoGRO: true}}

// Every datagram of every flow comes back once, whole and in its order.
func TestDatagramIntegrity(t *testing.T) {
	for level, cfg := range levels {
		for _, a := range grams {
			for _, b := range grams {
				t.Run(fmt.Sprintf("level=%s/client=%s/upstream=%s", level, a, b), func(t *testing.T) {
					integrity(t, cfg, a, b, 8, 5)
				})
			}
		}
	}
	t.Run("flows=1000", func(t *testing.T) { integrity(t, Config{}, "udp4", "udp4", 1000, 2) })
}

func integrity(t *testing.T, cfg Config, clients, upstream string, flows, rounds int) {
	r := newDatagramRig(t, cfg)
	l := r.listenAt(gramPlace(t, clients), ListenConfig{}, gramEcho(t, upstream))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	palette := []int{sealHead, 13, 100, 100, 100, 1200, 1200, 1200, 1452, 9000}
	if upstream != "unixgram" { // whose queue is short: what is held back for it has a bound
		palette = append(palette, 65507)
	}
	var wg sync.WaitGroup
	for f := range uint32(flows) {
		c := packetSocket(t, clients)
		wg.Go(func() {
			if err := converse(c, l.Addr(), f, rounds, palette, rand.New(rand.NewPCG(seed, uint64(f)))); err != nil {
				s := r.e.Stats()
				total := s.Total()
				t.Errorf("%v; %+v", err, total.Datagrams)
			}
		})
		if f%64 == 63 { // so that no queue of the machine overflows, which is no fault of the relay
			wg.Wait()
		}
	}
	wg.Wait()
	if s := r.dgramStats(); s.Begun != int64(flows) {
		t.Errorf("%d flows began, want %d", s.Begun, flows)
	}
}

// converse sends bursts of datagrams and wants each back in order.
func converse(c net.PacketConn, to Addr, flow uint32, rounds int, palette []int, rnd *rand.Rand) error {
	b := make([]byte, 1<<16)
	n := uint32(0)
	for range rounds {
		burst := 1 + rnd.IntN(5) // a Unix socket's queue has 10 by default
		sizes := make([]int, burst)
		size := palette[rnd.IntN(len(palette))]
		for i := range sizes {
			if rnd.IntN(3) == 0 {
				size = palette[rnd.IntN(len(palette))]
			}
			sizes[i] = size
			if _, err := c.WriteTo(seal(b[:size], flow, n+uint32(i), rnd), gramNet(to)); err != nil {
				return err
			}
		}
		for i, size := range sizes {
			c.SetReadDeadline(time.Now().Add(patience))
			got, _, err := c.ReadFrom(b)
			if err == nil {
				err = broken(b[:got], size, flow, n+uint32(i))
			}
			if err != nil {
				return err
			}
		}
		n += uint32(burst)
	}
	return nil
}

// Each size from nothing to the longest passes unchanged, by every upstream.
func TestDatagramSizes(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		for _, upstream := range []*Addr{nil, {Network: Echo}} {
			r := newDatagramRig(t, Config{})
			if upstream == nil {
				upstream = gramEcho(t, network)
			}
			l := r.listenAt(gramPlace(t, network), ListenConfig{}, upstream)
			c := packetSocket(t, network)
			for _, n := range []int{0, 1, 2, 511, 512, 1472, 1473, 9000, 65506, 65507} {
				askGram(t, c, l.Addr(), strings.Repeat("x", n))
			}
		}
	}
}

// Replies leave from the address and port that the client wrote to, and each
// such address is a flow of its own.
func TestReplyAddress(t *testing.T) {
	for _, c := range []struct {
		listen, client string
		to             []string
	}{
		{"0.0.0.0:0", "127.0.0.1:0", []string{"127.0.0.1", "127.0.0.2", "127.1.2.3"}},
		{"[::]:0", "[::1]:0", []string{"::1"}},
		{"[::]:0", "127.0.0.1:0", []string{"127.0.0.1", "127.0.0.2"}},
	} {
		t.Run(c.listen+"/"+c.client, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			locals := make(chan Addr, 10)
			up := gramEcho(t, "udp4")
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.MustParseAddrPort(c.listen)}, ListenConfig{Hooks: Hooks{
				Upstream: func(f *Flow, _ int) *Addr { locals <- f.Local(); return up },
			}})
			p, err := net.ListenPacket("udp", c.client)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			for range 3 {
				for _, ip := range c.to {
					to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), l.Addr().AddrPort.Port())}
					tellGram(t, p, to, ip)
					if from := gramAddr(hearGram(t, p, ip)); from != to {
						t.Errorf("the reply comes from %v, want %v", from, to)
					}
				}
			}
			for _, ip := range c.to {
				if local := <-locals; local.AddrPort.Addr().String() != ip {
					t.Errorf("the flow's local address is %v, want %s", local, ip)
				}
			}
			if n := r.dgramStats().Begun; n != int64(len(c.to)) {
				t.Errorf("%d flows, want %d", n, len(c.to))
			}
		})
	}
}

// run sends datagrams of one size as one GSO run.
func sendRun(t *testing.T, c net.PacketConn, to netip.AddrPort, texts ...string) {
	t.Helper()
	v := sys.NewVector(1, 1, sys.IPv4)
	i := v.Open()
	v.Add([]byte(strings.Join(texts, "")))
	v.SetNameLen(i, sys.PutAddrPort(v.Name(i), sys.IPv4, to, 0))
	v.SetControlLen(i, len(sys.AppendSegment(v.Control(i), uint16(len(texts[0])))))
	rc, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	rc.Control(func(fd uintptr) {
		if _, e := (sys.Linux{}).SendBatch(int(fd), v, 0, 1); e != 0 {
			t.Error(e)
		}
	})
}

func numbered(n int) []string {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("datagram %03d", i))
	}
	return texts
}

// A super-packet goes through in one piece, both ways.
func TestSuperPackets(t *testing.T) {
	r := newDatagramRig(t, Config{})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	c := packetSocket(t, "udp4")
	texts := numbered(40)
	sendRun(t, c, l.Addr().AddrPort, texts...)
	var back net.Addr
	for _, text := range texts {
		back = hearGram(t, s, text)
	}
	sendRun(t, s, gramAddr(back).AddrPort, texts...)
	for _, text := range texts {
		hearGram(t, c, text)
	}
	if got := r.dgramStats(); got.SuperPackets != 2 || got.Runs != 2 || got.Received != 80 || got.WriteCalls != 2 {
		t.Errorf("%+v", got)
	}
	r.e.Close()
	if rec := r.expect(CauseClosed); rec.Up.Path != datapath.GSO || rec.Down.Path != datapath.GSO || rec.Up.Datagrams != 40 || rec.Down.Datagrams != 40 {
		t.Errorf("%+v", rec)
	}
}

// Single datagrams that arrive while the loop is busy leave as runs, each flow's
// in their order; with NoGSO they leave one by one.
func TestSinglesLeaveTogether(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("nogso=%v", off), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1, NoGSO: off})
			s := packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			entered, leave := make(chan bool, 1), make(chan bool)
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr {
				entered <- true
				<-leave
				return &up
			}}})
			c := packetSocket(t, "udp4")
			texts := numbered(21)
			tellGram(t, c, l.Addr(), texts[0])
			<-entered
			for _, text := range texts[1:] {
				tellGram(t, c, l.Addr(), text)
			}
			close(leave)
			for _, text := range texts {
				hearGram(t, s, text)
			}
			got := r.dgramStats()
			if want := int64(1); off && got.Runs != 0 || !off && (got.Runs != want || got.WriteCalls != 2) {
				t.Errorf("%+v", got)
			}
			r.e.Close()
			if rec := r.record(); off && (rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhyOff) || !off && rec.Up.Path != datapath.GSO {
				t.Errorf("%v, %v", rec.Up.Path, rec.Up.Why)
			}
		})
	}
}

// A route that refuses runs loses nothing: they are sent again one by one, and not tried again.
func TestRunsRefused(t *testing.T) {
	for _, errno := range []sys.Errno{sys.EIO, sys.EINVAL, sys.EMSGSIZE} {
		t.Run(errno.Error(), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			r.k.Fail(testkernel.SendRun, errno, -1)
			s := packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
			c := packetSocket(t, "udp4")
			for range 3 {
				texts := numbered(20)
				sendRun(t, c, l.Addr().AddrPort, texts...)
				var back net.Addr
				for _, text := range texts {
					back = hearGram(t, s, text)
				}
				sendRun(t, s, gramAddr(back).AddrPort, texts...)
				for _, text := range texts {
					hearGram(t, c, text)
				}
			}
			tried := 2
			if errno == sys.EMSGSIZE {
				tried = 3 // towards the upstream twice: the first may be an earlier datagram's
			}
			if got := r.dgramStats(); got.Fallbacks != 2 || got.Runs != 0 || got.Sent != 120 || r.k.Count(testkernel.SendRun) != tried {
				t.Errorf("%+v;%s", got, r.k.Counts())
			}
			// A later flow knows the route. One of other sizes would try smaller runs, unless the device refuses all.
			c2 := packetSocket(t, "udp4")
			sendRun(t, c2, l.Addr().AddrPort, numbered(5)...)
			for _, text := range numbered(5) {
				hearGram(t, s, text)
			}
			if n := r.k.Count(testkernel.SendRun); n != tried {
				t.Errorf("%d runs were tried, want %d", n, tried)
			}
			r.e.Close()
			if rec := r.record(); rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhyKernel {
				t.Errorf("%v, %v", rec.Up.Path, rec.Up.Why)
			}
		})
	}
}

// The upstreams inside take super-packets as well.
func TestBuiltinDatagrams(t *testing.T) {
	r := newDatagramRig(t, Config{})
	echo := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &Addr{Network: Echo})
	discard := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &Addr{Network: Discard})
	c := packetSocket(t, "udp4")
	texts := numbered(64)
	sendRun(t, c, discard.Addr().AddrPort, texts...)
	sendRun(t, c, echo.Addr().AddrPort, texts...)
	for _, text := range texts {
		hearGram(t, c, text)
	}
	testwait.Until(t, "all is counted", func() bool { return r.dgramStats().Received == 3*64 })
}

// The steady state of a flow allocates nothing.
func TestDatagramsDoNotAllocate(t *testing.T) {
	for _, name := range []string{"udp4", "udp6", "udp4 with prefaces"} { // net allocates with each Unix datagram
		t.Run(name, func(t *testing.T) {
			network, _, prefaced := strings.Cut(name, " ")
			e := plainEngine(t, Config{Loops: 1})
			s := packetSocket(t, network)
			up := gramAddr(s.LocalAddr())
			l, err := e.Listen(gramPlace(t, network), ListenConfig{Dial: &DialConfig{PrefaceEach: true}, Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
				if prefaced {
					f.Preface(make([]byte, 28))
				}
				return &up
			}}})
			if err != nil {
				t.Fatal(err)
			}
			c := packetSocket(t, network)
			b := make([]byte, 2048)
			deadline := time.Now().Add(time.Minute)
			c.SetDeadline(deadline)
			s.SetDeadline(deadline)
			to := l.Addr().AddrPort
			client, server := c.(*net.UDPConn), s.(*net.UDPConn)
			pass := func() {
				if _, err := client.WriteToUDPAddrPort(b[:1200], to); err != nil {
					t.Fatal(err)
				}
				n, from, err := server.ReadFromUDPAddrPort(b)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := server.WriteToUDPAddrPort(b[:n], from); err != nil {
					t.Fatal(err)
				}
				if _, _, err := client.ReadFromUDPAddrPort(b); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				pass()
			}
			noAllocs(t, 200, pass)
		})
	}
}

// What is planned leaves as what came: any sequence of messages, of any size
// and cut, gives the same datagrams in the same order.
func FuzzOutbox(f *testing.F) {
	f.Add([]byte{100, 0, 100, 0, 50, 0, 100, 7}, true, byte(0))
	f.Add([]byte{0, 0, 0, 0, 255, 255, 255, 1}, false, byte(28))
	f.Add([]byte{200, 60, 120, 60, 60, 0}, true, byte(28))
	f.Add([]byte{200, 60, 120, 60, 60, 0}, true, byte(53))
	f.Add([]byte{255, 10, 255, 11, 255, 12}, true, byte(28)) // runs that take all memory for pieces
	f.Fuzz(func(t *testing.T, data []byte, gso bool, front byte) {
		recv, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer recv.Close()
		recv.SetReadBuffer(4 << 20)
		e := &core{shared: shared{kernel: sys.Linux{}, cfg: Config{NoGSO: !gso}}}
		d := newDatagrams(tenant{loop: new(loop.Loop), shared: &e.shared, loopStats: new(loopCounters)}, &e.datagrams)
		d.prepareWith(dgramBuffers())
		ln := &Listener{engine: &Engine{e}}
		ln.cfg.Store(&ListenConfig{})
		s := d.newFlow(&datagramPort{listener: ln, datagrams: d, family: sys.IPv4})
		var sa sys.Sockaddr
		if err := sa.SetAddrPort(recv.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
			t.Fatal(err)
		}
		fd, errno := e.kernel.Datagram(sys.IPv4)
		if errno != 0 || e.kernel.Connect(fd, &sa) != 0 {
			t.Fatal("no socket")
		}
		defer e.kernel.Close(fd)
		s.fd, s.to = int32(fd), &Addr{Network: UDP}
		p := preface{b: bytes.Repeat([]byte{front}, int(front)), each: front%2 == 0}
		s.settings = &datagramSettings{preface: preface{b: bytes.Clone(p.b), each: p.each}}
		d.setRuns(s, up, sys.IPv4, false)
		var want [][]byte
		total := 0
		for i := byte(0); len(data) >= 2 && len(want) < 500 && total < 200_000; data, i = data[2:], i+1 {
			n, seg := int(data[0])*7, int(data[1])*3
			b := make([]byte, n)
			for j := range b {
				b[j] = i + byte(j)
			}
			if n > 0 && seg > 0 && (n+seg-1)/seg > segment.MaxCount {
				seg = 0 // no super-packet has more
			}
			total += n
			for one := range segment.All(b, seg) {
				if p.each || len(want) == 0 {
					one = append(bytes.Clone(p.b), one...)
				}
				want = append(want, one)
			}
			d.toUpstream.add(s, b, seg, 0)
		}
		d.toUpstream.flush()
		buf := make([]byte, 1<<16)
		recv.SetReadDeadline(time.Now().Add(patience))
		for i, w := range want {
			n, err := recv.Read(buf)
			if err != nil || string(buf[:n]) != string(w) {
				t.Fatalf("datagram %d of %d: %d bytes, %v; want %d; %+v", i, len(want), n, err, len(w), *d.stats)
			}
		}
		if d.stats.Sent != int64(len(want)) || d.toUpstream.n != 0 {
			t.Fatalf("%d sent, want %d", d.stats.Sent, len(want))
		}
	})
}
