package relay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// gramUpstream is an upstream of datagrams that knows its clients: each datagram begins with the name of
// its flow. It answers with the same, and can send on its own.
type gramUpstream struct {
	t    *testing.T
	conn net.PacketConn
	addr Addr

	mu   sync.Mutex
	from map[string]net.Addr // by flow: where its datagrams come from
}

func newGramUpstream(t *testing.T, network string) *gramUpstream {
	u := &gramUpstream{t: t, conn: packetSocket(t, network), from: make(map[string]net.Addr)}
	u.addr = gramAddr(u.conn.LocalAddr())
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := u.conn.ReadFrom(b)
			if err != nil {
				return
			}
			flow, _, _ := strings.Cut(string(b[:n]), " ")
			u.mu.Lock()
			if was := u.from[flow]; was != nil && was.String() != from.String() {
				t.Errorf("flow %s came from %v, and comes from %v", flow, was, from)
			}
			u.from[flow] = from
			u.mu.Unlock()
			u.conn.WriteTo(append(b[:n:n], '!'), from)
		}
	})
	t.Cleanup(func() { u.conn.Close(); wg.Wait() })
	return u
}

// forget has flows come from other sockets than before.
func (u *gramUpstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.from)
}

// push sends to the client of a flow.
func (u *gramUpstream) push(flow, text string) {
	u.t.Helper()
	u.mu.Lock()
	to := u.from[flow]
	u.mu.Unlock()
	if _, err := u.conn.WriteTo([]byte(flow+" "+text), to); err != nil {
		u.t.Fatal(err)
	}
}

// gramClient is one client, whose datagrams begin with its name.
type gramClient struct {
	net.PacketConn
	name string
}

func gramClients(t *testing.T, network string, n int) (all []gramClient) {
	for i := range n {
		all = append(all, gramClient{packetSocket(t, network), fmt.Sprintf("flow%d", i)})
	}
	return all
}

func (c *gramClient) tell(t *testing.T, to Addr, text string) {
	t.Helper()
	tellGram(t, c, to, c.name+" "+text)
}

func (c *gramClient) hear(t *testing.T, to Addr, text string) {
	t.Helper()
	from := hearGram(t, c, c.name+" "+text)
	if at := gramAddr(from); at != to {
		t.Fatalf("%s hears %q from %v, and has written to %v", c.name, text, at, to)
	}
}

// Sessions of datagrams go on when the process is killed, again and again: the upstream sees the same
// port, and what clients and upstreams send while there is no process waits in the sockets.
func TestDatagramFlowsOutliveProcess(t *testing.T) {
	testnet.AlsoWithoutRace(t)
	const kills = 3
	for _, network := range grams {
		for _, loops := range [][]int{{2, 2}, {1, 3, 2}, {3, 1}} {
			t.Run(fmt.Sprintf("%s/loops=%v", network, loops), func(t *testing.T) {
				clients := 20
				if network == "unixgram" {
					clients = 4 // a queue has room for 10 datagrams, net.unix.max_dgram_qlen
				}
				k := newKeptTable(t)
				u := newGramUpstream(t, network)
				place := "udp://[::1]:0"
				if network != "udp6" {
					place = keptPlace(t, network)
				}
				o := keptOrder{Loops: loops[0], Listen: []string{place}, Upstream: u.addr.String()}
				p := k.start(o)
				o.Listen = p.urls()
				to := p.addrs[0]
				all := gramClients(t, network, clients)
				for _, c := range all {
					c.tell(t, to, "first")
					c.hear(t, to, "first!")
				}
				for i := range kills {
					k.expect(holdFlow, clients)
					p.ask("stats") // the turns in which they had their answers have ended
					p.kill()
					for _, c := range all {
						c.tell(t, to, fmt.Sprint("client ", i))
						u.push(c.name, fmt.Sprint("upstream ", i))
					}
					o.Loops = loops[(i+1)%len(loops)]
					p = k.start(o)
					if p.Restored.Flows != clients || p.Restored.TotalLost() != 0 {
						t.Fatalf("restored: %+v", p.Restored)
					}
					for _, c := range all {
						c.hearBoth(t, to, fmt.Sprint("upstream ", i), fmt.Sprintf("client %d!", i))
						c.tell(t, to, "next")
						c.hear(t, to, "next!")
					}
				}
				s := p.ask("stats").Stats
				if n := s.Flows(); n != int64(clients) {
					t.Errorf("%d flows, want %d", n, clients)
				}
				p.ask("close")
				for range all {
					rec := <-p.records
					want := int64(1 + 2*kills)
					if rec.Cause != CauseClosed || rec.Up.Datagrams != want || rec.Down.Datagrams != want+kills || rec.Value != rec.Peer+"'" {
						t.Errorf("record: %+v", rec)
					}
				}
				k.expect(holdFlow, 0)
				k.expect(holdListener, 0)
				k.expect(holdLedger, 0)
			})
		}
	}
}

// hearBoth hears two texts in any order.
func (c *gramClient) hearBoth(t *testing.T, to Addr, a, b string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	want := map[string]bool{c.name + " " + a: true, c.name + " " + b: true}
	for range 2 {
		c.SetReadDeadline(time.Now().Add(patience))
		n, from, err := c.ReadFrom(buf)
		if err != nil || !want[string(buf[:n])] || gramAddr(from) != to {
			t.Fatalf("%s hears %q from %v, %v; want %v", c.name, buf[:n], from, err, want)
		}
		delete(want, string(buf[:n]))
	}
}

// Flows to built-in upstreams have no socket of their own, and outlive the process all the same.
func TestBuiltInDatagramFlowsOutliveProcess(t *testing.T) {
	for _, upstream := range []string{"echo:", "discard:"} {
		t.Run(upstream, func(t *testing.T) {
			k := newKeptTable(t)
			o := keptOrder{Listen: []string{keptPlace(t, "udp4")}, Upstream: upstream}
			p := k.start(o)
			o.Listen = p.urls()
			to := p.addrs[0]
			c := gramClients(t, "udp4", 1)[0]
			const kills = 3
			stats := func() stats.Loop { s := p.ask("stats").Stats; return s.Total() }
			for range kills {
				before := stats().BytesRead // with what earlier processes have read
				c.tell(t, to, "text")
				if upstream == "echo:" {
					c.hear(t, to, "text")
				}
				testwait.Until(t, "the flow is kept", func() bool { n := stats(); return n.Kept == 1 && n.BytesRead > before })
				stats() // the turn in which it was read has ended
				p.kill()
				if p = k.start(o); p.Restored.Flows != 1 {
					t.Fatalf("restored: %+v", p.Restored)
				}
			}
			p.ask("close")
			rec := <-p.records
			back := int64(0)
			if upstream == "echo:" {
				back = kills
			}
			if rec.Up.Datagrams != kills || rec.Down.Datagrams != back || rec.Cause != CauseClosed {
				t.Errorf("record: %+v", rec)
			}
			k.expect(holdFlow, 0)
		})
	}
}

// A flow with a limit on its replies ends in the process that its last reply reaches, and its socket rests
// there and in the next process: nobody else gets its port.
func TestRestOutlivesProcess(t *testing.T) {
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String(), Replies: 2, Rest: time.Hour}
	p := k.start(o)
	o.Listen = p.urls()
	c := gramClients(t, "udp4", 1)[0]
	c.tell(t, p.addrs[0], "text")
	c.hear(t, p.addrs[0], "text!")
	k.expect(holdFlow, 1)
	p.ask("stats") // the turn in which it had its answer has ended
	p.kill()
	p = k.start(o)
	u.push(c.name, "second")
	c.hear(t, p.addrs[0], "second")
	rec := <-p.records
	p.ask("stats")
	if rec.Cause != CauseAnswered || rec.Up.Datagrams != 1 || rec.Down.Datagrams != 2 {
		t.Errorf("record: %+v", rec)
	}
	p.kill()
	p = k.start(o)
	if p.Restored != (hold.Restored{}) {
		t.Errorf("restored: %+v", p.Restored)
	}
	s := p.ask("stats").Stats
	if total := s.Total(); total.Datagrams.Resting != 1 || total.Datagrams.Flows != 0 {
		t.Errorf("stats: %+v", total.Datagrams)
	}
	u.push(c.name, "late")
	p.kill()
	o.Rest = 50 * time.Millisecond
	p = k.start(o)
	k.expect(holdFlow, 0) // it is closed after its time
	p.ask("close")
}

// A flow whose upstream is gone goes on to the next one after the process was killed, and is kept again.
func TestRestoredFlowFindsUpstreamGone(t *testing.T) {
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String()}
	p := k.start(o)
	o.Listen = p.urls()
	c := gramClients(t, "udp4", 1)[0]
	c.tell(t, p.addrs[0], "text")
	c.hear(t, p.addrs[0], "text!")
	k.expect(holdFlow, 1)
	p.kill()
	u.conn.Close()
	p = k.start(o)
	c.tell(t, p.addrs[0], "text")
	rec := <-p.records
	if rec.Cause != CauseUpstreamRefused || rec.Value != rec.Peer+"'" {
		t.Errorf("record: %+v", rec)
	}
	p.ask("close")
	k.expect(holdFlow, 0)
}

// Timeouts go on: the life of a flow is counted from its true start.
func TestLifeOfRestoredDatagramFlow(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Listen: []string{keptPlace(t, "udp4")}, Upstream: "echo:"}
	c := gramClients(t, "udp4", 1)[0]
	for life := 2 * time.Second; ; life *= 2 { // until it is long enough for three deaths on this machine
		o.Timeouts.Life = life
		p := k.start(o)
		o.Listen = p.urls()
		began := time.Now()
		c.tell(t, p.addrs[0], "text")
		c.hear(t, p.addrs[0], "text")
		for range 3 {
			p.ask("stats")
			p.kill()
			p = k.start(o)
		}
		if p.ask("stats").Stats.Flows() == 0 {
			if lived := time.Since(began); lived < life {
				t.Fatalf("the flow is gone after %v", lived)
			}
			p.kill()
			continue
		}
		var rec keptRecord
		select {
		case rec = <-p.records:
		case <-time.After(patience):
			t.Fatal("the flow lives on")
		}
		if rec.Cause != CauseLife || rec.Known < life || rec.Begun < life {
			t.Errorf("record: %+v", rec)
		}
		return
	}
}

// When the table is full, the flow that was silent for longest makes room for a new one, even if most of that silence
// was in the process before.
func TestAgesOfRestoredDatagramFlows(t *testing.T) {
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String(), Datagrams: 3}
	p := k.start(o)
	o.Listen = p.urls()
	to := p.addrs[0]
	clients := gramClients(t, "udp4", 4)
	answered := func(c *gramClient, text string) {
		t.Helper()
		c.tell(t, to, text)
		c.hear(t, to, text+"!")
	}
	start := time.Now()
	for i := range 3 {
		answered(&clients[i], "begin")
	}
	k.expect(holdFlow, 3)
	// The first one goes on until its silence is shorter than that of the others by more than is noted, and they
	// are not in use.
	silence := 100*time.Millisecond + max(leastPatience, 2*time.Since(start))
	for begin := time.Now(); time.Since(begin) < silence; {
		answered(&clients[0], "I am still here")
	}
	p.kill()
	p = k.start(o)
	b := make([]byte, 100)
	testwait.Until(t, "a flow that is not in use any more makes room", func() bool {
		clients[3].tell(t, to, "let me in")
		clients[3].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _, err := clients[3].ReadFrom(b)
		return err == nil
	})
	answered(&clients[0], "and I go on") // by the same port, as the upstream sees
	if s := p.ask("stats").Stats.Total(); s.Ended[CauseEvicted.String()] != 1 {
		t.Errorf("%d flows have made room", s.Ended[CauseEvicted.String()])
	}
}

// A flow that is idle ends, though the process dies more often than that takes.
func TestIdleTimeoutOfRestoredDatagramFlow(t *testing.T) {
	k := newKeptTable(t)
	const idle = 500 * time.Millisecond
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: "echo:", Timeouts: Timeouts{Idle: idle}}
	p := k.start(o)
	o.Listen = p.urls()
	clients := gramClients(t, "udp4", 2)
	for i := range clients {
		clients[i].tell(t, p.addrs[0], "text")
		clients[i].hear(t, p.addrs[0], "text")
	}
	for begin := time.Now(); ; {
		for c, began := &clients[1], time.Now(); time.Since(began) < idle/5; {
			c.tell(t, p.addrs[0], "I go on")
			c.hear(t, p.addrs[0], "I go on")
		}
		s := p.ask("stats").Stats
		p.kill()
		for len(p.records) > 0 {
			switch rec := <-p.records; {
			case rec.Cause != CauseIdle:
				t.Errorf("record: %+v", rec)
			case rec.Up.Datagrams == 1: // on a busy machine the other one may seem idle, too
				return
			}
		}
		switch waited := time.Since(begin); {
		case s.Flows() == 1 && waited < idle:
			t.Fatalf("a flow is lost after %v", waited)
		case s.Flows() == 1 && waited > patience/2:
			return // it ended as the process before was killed, and so its record was lost
		case waited > patience:
			t.Fatalf("the flow lives on: %+v", s.Total())
		}
		p = k.start(o)
	}
}

// Under load the process is killed again and again at random moments. Each datagram that arrives belongs to
// the one who gets it, and no session is lost: the upstream sees the same ports to the end.
func TestDatagramLoadOutlivesKills(t *testing.T) {
	clients, kills := 16, 12
	if testnet.RaceEnabled {
		clients, kills = 4, 3 // each child takes several times as long to start, beside clients that never pause
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			u := newSealedUpstream(t, network)
			place := map[string]string{"udp4": "udp://0.0.0.0:0", "udp6": "udp://[::]:0"}[network]
			o := keptOrder{Listen: []string{place}, Upstream: u.addr.String()}
			p := k.start(o)
			o.Listen = p.urls()
			ip := map[string]string{"udp4": "127.0.0.1", "udp6": "::1"}[network]
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), p.addrs[0].AddrPort.Port())}
			all := make([]*sealedClient, clients)
			for i := range all {
				all[i] = &sealedClient{PacketConn: packetSocket(t, network), flow: uint32(i + 1)}
				all[i].answered(t, to)
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i, c := range all {
				wg.Go(func() { c.load(t, to, rand.New(rand.NewPCG(seed, uint64(i+1))), stop) })
			}
			for range kills {
				k.expect(holdFlow, clients)
				time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
				p.kill()
				if p = k.start(o); p.Restored.Flows != clients || p.Restored.TotalLost() != 0 {
					t.Errorf("restored: %+v", p.Restored)
				}
				// A flow in whose turn two processes died one after the other is not restored. So each has a good turn.
				for _, c := range all {
					sent := c.sent.Load()
					testwait.Until(t, "an answer of the new process", func() bool { return c.heard.Load() > sent })
				}
			}
			close(stop)
			wg.Wait()
			var got, sent int64
			for _, c := range all {
				c.answered(t, to)
				got, sent = got+c.got, sent+int64(c.n)
			}
			s := p.ask("stats").Stats
			total := s.Total()
			t.Logf("%d sent, %d answers; of the last process: %+v", sent, got, total.Datagrams)
			if want := int64(clients); total.Datagrams.Flows != want || total.Kept != want {
				t.Errorf("%d flows, %d kept, want %d", total.Datagrams.Flows, total.Kept, clients)
			}
		})
	}
}

// sealedUpstream answers each datagram of [seal] with itself, and sees that a flow keeps its port.
type sealedUpstream struct{ addr Addr }

func newSealedUpstream(t *testing.T, network string) *sealedUpstream {
	conn := packetSocket(t, network)
	var wg sync.WaitGroup
	wg.Go(func() {
		ports := make(map[uint32]string)
		b := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			flow, number := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
			if err := broken(b[:n], n, flow, number); err != nil {
				t.Error("upstream: ", err)
			}
			if was := ports[flow]; was != "" && was != from.String() {
				t.Errorf("flow %d came from %s, and comes from %s", flow, was, from)
			}
			ports[flow] = from.String()
			conn.WriteTo(b[:n], from)
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return &sealedUpstream{gramAddr(conn.LocalAddr())}
}

// sealedClient is a client whose datagrams are sealed.
type sealedClient struct {
	net.PacketConn
	flow, n uint32
	got     int64

	sent, heard atomic.Uint32 // the last number that load has sent, and the highest that was answered
}

// check sees that a datagram is the client's own.
func (c *sealedClient) check(b []byte, from net.Addr, to Addr) error {
	if len(b) < sealHead || gramAddr(from) != to {
		return fmt.Errorf("%d bytes from %v, want them from %v", len(b), from, to)
	}
	n := binary.LittleEndian.Uint32(b[4:])
	if n > c.n {
		return fmt.Errorf("number %d of %d", n, c.n)
	}
	c.got++
	c.heard.Store(max(c.heard.Load(), n))
	return broken(b, len(b), c.flow, n)
}

// answered asks until there is an answer.
func (c *sealedClient) answered(t *testing.T, to Addr) {
	t.Helper()
	b := make([]byte, 1<<16)
	rnd := rand.New(rand.NewPCG(0, 0))
	for deadline := time.Now().Add(patience); ; {
		c.n++
		c.WriteTo(seal(b[:100], c.flow, c.n, rnd), gramNet(to))
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				break
			}
			if err := c.check(b[:n], from, to); err != nil {
				t.Error(err)
			}
			if binary.LittleEndian.Uint32(b[4:]) == c.n {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Errorf("client %d has no answer", c.flow)
			return
		}
	}
}

// load sends bursts and hears what comes, until stop.
func (c *sealedClient) load(t *testing.T, to Addr, rnd *rand.Rand, stop chan struct{}) {
	b := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		for range 1 + rnd.IntN(8) {
			c.n++
			c.WriteTo(seal(b[:sealHead+8*rnd.IntN(120)], c.flow, c.n, rnd), gramNet(to))
		}
		c.sent.Store(c.n)
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				break
			}
			if err := c.check(b[:n], from, to); err != nil {
				t.Error(err)
			}
		}
	}
}

// A planned end is the same event: all flows are handed over at once, those too that just began, and what
// rests; no datagram that came meanwhile is lost.
func TestDatagramsHandOver(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			u := newGramUpstream(t, network)
			place := "udp://[::1]:0"
			if network != "udp6" {
				place = keptPlace(t, network)
			}
			const clients, times = 4, 4
			o := keptOrder{Listen: []string{place}, Upstream: u.addr.String(), After: time.Hour}
			p := k.start(o)
			o.Listen = p.urls()
			to := p.addrs[0]
			all := gramClients(t, network, clients)
			for i := range times {
				for _, c := range all {
					c.tell(t, to, "text")
					c.hear(t, to, "text!")
				}
				p.ask("handover")
				k.expect(holdFlow, clients)
				for _, c := range all {
					c.tell(t, to, fmt.Sprint("meanwhile ", i))
				}
				p.kill() // it has nothing more to do
				if p = k.start(o); p.Restored.Flows != clients || p.Restored.TotalLost() != 0 {
					t.Fatalf("restored: %+v", p.Restored)
				}
				for _, c := range all {
					c.hear(t, to, fmt.Sprintf("meanwhile %d!", i))
				}
			}
			p.ask("close")
			for range all {
				if rec := <-p.records; rec.Cause != CauseClosed || rec.Up.Datagrams != 2*times || rec.Down.Datagrams != 2*times {
					t.Errorf("record: %+v", rec)
				}
			}
			k.expect(holdFlow, 0)
		})
	}
}

// Sockets that rest when the process hands over rest in the next one.
func TestRestsAreHandedOver(t *testing.T) {
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String(), Replies: 1, Rest: time.Hour, After: time.Hour}
	p := k.start(o)
	o.Listen = p.urls()
	c := gramClients(t, "udp4", 1)[0]
	c.tell(t, p.addrs[0], "text")
	c.hear(t, p.addrs[0], "text!")
	<-p.records
	p.ask("handover")
	k.expect(holdFlow, 1)
	p.kill()
	p = k.start(o)
	s := p.ask("stats").Stats
	if total := s.Total(); total.Datagrams.Resting != 1 || total.Datagrams.Flows != 0 {
		t.Errorf("stats: %+v", total.Datagrams)
	}
	p.kill()
	o.Rest = 50 * time.Millisecond
	k.start(o)
	k.expect(holdFlow, 0)
}
