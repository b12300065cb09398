package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// list copies all flows.
func list(e *Engine) (all []FlowInfo) {
	e.Flows(func(infos []FlowInfo) bool {
		all = append(all, infos...)
		return true
	})
	return all
}

func TestFlows(t *testing.T) {
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	blind := Addr{Network: TCP, AddrPort: loopback} // port 0: nobody is there
	l := r.listen("tcp4", ListenConfig{Value: "of the listener", Hooks: Hooks{Upstream: func(f *Flow, attempt int) *Addr {
		f.SetValue("of the flow")
		f.SetClient(Addr{Network: Unix, Path: "@somebody"})
		return []*Addr{&blind, s.addr}[attempt]
	}}})
	if all := list(r.e); len(all) != 0 {
		t.Fatalf("flows at the start: %+v", all)
	}
	a := dial(t, l)
	b := s.accept(t)
	say(t, a, b, "hello")
	say(t, b, a, "you")
	c, innerC := testnet.Pair(t, "tcp4")
	innerD, d := testnet.Pair(t, "unix")
	adopted := PairConfig{Value: "adopted", Done: r.done}
	if err := r.e.Relay(innerC, innerD, adopted); err != nil {
		t.Fatal(err)
	}
	say(t, c, d, "hey")
	all := list(r.e)
	if len(all) != 2 {
		t.Fatalf("%d flows: %+v", len(all), all)
	}
	accepted, pair := all[0], all[1]
	if pair.Listener != nil {
		accepted, pair = pair, accepted
	}
	for _, i := range all {
		if i.ID == 0 || i.State != stats.StateRelaying || i.Peer.Network.Datagrams() || i.Start.IsZero() || i.Duration < i.Idle {
			t.Errorf("%+v", i)
		}
	}
	if i := accepted; i.Listener != l || i.Value != "of the flow" || i.Client.Path != "@somebody" || i.Peer != *fromNet(a.LocalAddr()) || i.Upstream != *s.addr ||
		i.Attempts != 2 || i.Up.Read != 5 || i.Up.Written != 5 || i.Down.Read != 3 || i.Down.Written != 3 || i.Up.Path != datapath.Copy {
		t.Errorf("%+v", i)
	}
	if i := pair; i.Value != "adopted" || i.Client != *fromNet(c.LocalAddr()) || i.Peer != i.Client || i.Up.Written != 3 {
		t.Errorf("%+v", i)
	}

	flow, ok := r.e.Flow(accepted.ID)
	if loop, _, _ := splitFlowID(accepted.ID); !ok || flow.ID != accepted.ID || flow.Loop != loop || flow.Local != l.Addr() {
		t.Fatalf("%v, %+v", ok, flow)
	}
	for side, tcp := range []*stats.TCPInfo{flow.ClientTCP, flow.UpstreamTCP} {
		if tcp == nil || tcp.State != "established" || tcp.RTT <= 0 || tcp.Cwnd <= 0 || tcp.MSS <= 0 || tcp.RecvSpace <= 0 || tcp.Congestion == "" || tcp.MPTCP || tcp.FastOpen {
			t.Errorf("side %d: %+v", side, tcp)
		}
	}
	if flow.ClientTCP.BytesReceived != 5 || flow.UpstreamTCP.BytesReceived != 3 {
		t.Errorf("received %d and %d", flow.ClientTCP.BytesReceived, flow.UpstreamTCP.BytesReceived)
	}
	if flow, ok = r.e.Flow(pair.ID); !ok || flow.ClientTCP == nil || flow.UpstreamTCP != nil {
		t.Errorf("%v, %+v", ok, flow)
	}

	if !r.e.Kill(accepted.ID, CauseKilled) {
		t.Error("nobody was killed")
	}
	wantReset(t, a)
	wantReset(t, b)
	r.expect(CauseKilled)
	for _, id := range []uint64{accepted.ID, 0, 1<<64 - 1, pair.ID ^ 1<<55, pair.ID + 1} {
		if _, ok := r.e.Flow(id); ok || r.e.Kill(id, CauseKilled) {
			t.Errorf("there is a flow %x", id)
		}
	}
	r.e.Close()
	if all := list(r.e); len(all) != 0 || r.e.Kill(pair.ID, CauseKilled) {
		t.Errorf("after Close: %+v", all)
	}
}

// A flow is shown while its upstream is being connected, too.
func TestFlowsConnecting(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	up, _ := fullQueue(t, "unix")
	dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Connect: patience}}, up))
	testwait.Until(t, "the flow is there", func() bool { return len(list(r.e)) == 1 })
	if i := list(r.e)[0]; i.State != stats.StateConnecting || i.Upstream != *up {
		t.Errorf("%+v", i)
	}
}

func TestDatagramFlows(t *testing.T) {
	r := newDatagramRig(t, Config{})
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &to)
	a := packetSocket(t, "udp4")
	exchange(t, a, gramNet(l.Addr()), up)
	all := list(r.e)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	if i := all[0]; !i.Peer.Network.Datagrams() || i.State != stats.StateRelaying || i.Listener != l || i.Client != gramAddr(a.LocalAddr()) || i.Peer != i.Client ||
		i.Upstream != to || i.Up.Datagrams != 1 || i.Down.Datagrams != 1 || i.Attempts != 1 {
		t.Errorf("%+v", i)
	}
	flow, ok := r.e.Flow(all[0].ID)
	if !ok || flow.Local != l.Addr() || flow.ClientTCP != nil || flow.UpstreamTCP != nil {
		t.Errorf("%v, %+v", ok, flow)
	}
	if !r.e.Kill(flow.ID, CauseKilled) || r.e.Kill(flow.ID, CauseKilled) {
		t.Error("it is not killed just once")
	}
	r.expect(CauseKilled)
	exchange(t, a, gramNet(l.Addr()), up) // begins another one
}

// crowd makes n flows that say nothing.
func crowd(t testing.TB, l *Listener, n int) {
	a := toNet(l.Addr())
	for range n {
		c, err := net.Dial(a.Network(), a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// A walk is done in slices, and the loop goes on between any two of them: an echo
// goes round through the one loop while yield holds a slice.
func TestFlowsStopNoLoop(t *testing.T) {
	const n = 1500
	r := newRig(t, Config{Loops: 1})
	crowd(t, r.listen("unix", ListenConfig{}, &Addr{Network: Discard}), n)
	a := dial(t, r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4")))
	testwait.Until(t, "all are there", func() bool { s := r.e.Stats(); return s.Flows() == n+1 })
	slices, ids := 0, make(map[uint64]bool)
	r.e.Flows(func(infos []FlowInfo) bool {
		slices++
		if len(infos) > listSlots {
			t.Errorf("%d flows in a slice", len(infos))
		}
		say(t, a, a, "round")
		for _, i := range infos {
			ids[i.ID] = true
		}
		return true
	})
	if len(ids) != n+1 || slices < n/listSlots {
		t.Errorf("%d flows in %d slices", len(ids), slices)
	}
	seen := 0
	r.e.Flows(func([]FlowInfo) bool { seen++; return false })
	if seen != 1 {
		t.Errorf("%d slices after the first was enough", seen)
	}
}

// Flows come, go, drain and are closed while others look at them.
func TestFlowsMeanwhile(t *testing.T) {
	r := newRig(t, Config{})
	l := r.listen("tcp4", ListenConfig{}, echoServer(t, "tcp4"))
	var wg sync.WaitGroup
	var stop atomic.Bool
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				for _, i := range list(r.e) {
					if d, ok := r.e.Flow(i.ID); ok && d.ID != i.ID {
						t.Errorf("asked for %x, told of %x", i.ID, d.ID)
					}
				}
			}
		})
	}
	var held []net.Conn
	for i := range 200 {
		a := dial(t, l)
		say(t, a, a, "hello")
		if i%10 == 0 {
			held = append(held, a)
			continue
		}
		a.Close()
		r.expect(CauseEnd)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.e.Drain(ctx)
	for range held {
		r.expect(CauseDrained)
	}
	r.e.Close()
	stop.Store(true)
	wg.Wait()
}

func TestBusy(t *testing.T) {
	const nap = 20 * time.Millisecond
	r := newRig(t, Config{Loops: 1})
	l := r.listen("tcp4", ListenConfig{Hooks: Hooks{Admit: func(*Flow) Cause {
		for began := time.Now(); time.Since(began) < nap; {
		}
		return CauseNone
	}}}, echoServer(t, "tcp4"))
	a := dial(t, l)
	say(t, a, a, "hello")
	testwait.Until(t, "the turn counts", func() bool {
		s := r.e.Stats().Loops[0]
		return s.Busy >= nap && s.LongestTurn >= nap
	})
}

// To list 10,000 flows of a loop that is busy with an echo: reported beside the
// time are the echo's round trips meanwhile and without, and what a slice costs
// the loop.
func BenchmarkFlows(b *testing.B) {
	const n = 10_000
	for _, listed := range []bool{false, true} {
		b.Run(fmt.Sprintf("flows=%d/listed=%v", n, listed), func(b *testing.B) {
			e, err := New(Config{Loops: 1, MaxNewDatagramFlows: -1, MaxDatagramFlows: n})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			listen := func(at Addr, to Addr) Addr {
				l, err := e.Listen(at, ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &to }}, Timeouts: Timeouts{Idle: -1}})
				if err != nil {
					b.Fatal(err)
				}
				return l.Addr()
			}
			// Half are streams; the others, whose clients need no descriptor
			// that stays, are of datagrams.
			streams := toNet(listen(Addr{Network: TCP, AddrPort: loopback}, Addr{Network: Discard}))
			datagrams := gramNet(listen(gramPlace(b, "udp4"), Addr{Network: Discard}))
			for i := range n / 2 {
				testnet.Dial(b, streams)
				c, err := net.Dial("udp4", datagrams.String())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write([]byte("hello")); err != nil {
					b.Fatal(err)
				}
				c.Close()
				if i%256 == 0 {
					e.Stats() // which waits for the loop
				}
			}
			testwait.Until(b, "most flows", func() bool { s := e.Stats(); return s.Flows() > n*9/10 })
			a := testnet.Dial(b, toNet(listen(Addr{Network: TCP, AddrPort: loopback}, Addr{Network: Echo})))
			var rounds atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				buf := make([]byte, 64)
				for {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := a.Write(buf); err != nil {
						b.Error(err)
						return
					}
					if _, err := io.ReadFull(a, buf); err != nil {
						b.Error(err)
						return
					}
					rounds.Add(1)
				}
			})
			seen := 0
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			b.ResetTimer()
			for b.Loop() {
				if !listed {
					<-pace.C
					continue
				}
				seen = 0
				e.Flows(func(infos []FlowInfo) bool { seen += len(infos); return true })
			}
			b.ReportMetric(float64(rounds.Load())/b.Elapsed().Seconds(), "rounds/s")
			b.ReportMetric(float64(seen), "flows")
			close(stop)
			wg.Wait()
			const slices = 1000
			var took time.Duration
			e.onLoops(func(f *Flow) {
				if took == 0 {
					start, q := time.Now(), listing{infos: make([]FlowInfo, 0, listSlots)}
					for range slices {
						if q.end {
							q.at, q.end = 0, false
						}
						q.infos = q.infos[:0]
						q.fill(f.owner.base().loop)
					}
					took = time.Since(start)
				}
			})
			b.ReportMetric(float64(took.Microseconds())/slices, "µs/slice")
		})
	}
}

// What a side does not take is held, and a flow says how much in each direction.
func TestFlowHeld(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.flow("tcp4", "tcp4", ListenConfig{})
	for name, c := range map[string]struct {
		from net.Conn
		held func(*FlowInfo) (held, read, written int64)
	}{
		"up":   {a, func(i *FlowInfo) (int64, int64, int64) { return i.Up.Held, i.Up.Read, i.Up.Written }},
		"down": {b, func(i *FlowInfo) (int64, int64, int64) { return i.Down.Held, i.Down.Read, i.Down.Written }},
	} {
		ended := make(chan bool)
		go func() {
			defer close(ended)
			for buf := make([]byte, 64<<10); ; {
				if _, err := c.from.Write(buf); err != nil {
					return
				}
			}
		}()
		testwait.Until(t, "bytes are held: "+name, func() bool {
			held, read, written := c.held(&list(r.e)[0])
			return held > 0 && held == read-written
		})
		c.from.SetWriteDeadline(time.Now())
		<-ended
	}
	r.e.Close()
	r.expect(CauseClosed)
}

// A flow that is queued says for how long so far.
func TestFlowQueued(t *testing.T) {
	r := newRig(t, Config{})
	dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr { f.Queue(); return nil }}}))
	var id uint64
	testwait.Until(t, "it is queued", func() bool {
		infos := list(r.e)
		if len(infos) == 0 || infos[0].State != stats.StateQueued {
			return false
		}
		id = infos[0].ID
		return true
	})
	last := time.Duration(0)
	for range 2 {
		testwait.Until(t, "it has waited for longer", func() bool {
			d, ok := r.e.Flow(id)
			longer := ok && d.Queued > last && d.Queued <= d.Duration
			last = d.Queued
			return longer
		})
	}
	r.e.Close()
	r.expect(CauseClosed)
}
