package relay

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/overload"
	"github.com/penstock/penstock/relay/stats"
)

// sniffed are hooks that choose among upstreams by the first datagram that is "to NAME", and note what they are shown.
type sniffed struct {
	most      int
	patience  time.Duration
	upstreams map[string]*Addr
	mu        sync.Mutex
	shown     map[string][]string // by client
	next      func(b []byte, last bool) SniffNext
}

func (s *sniffed) hooks(t *testing.T) Hooks {
	s.shown = make(map[string][]string)
	return Hooks{
		Admit: func(f *Flow) Cause {
			if err := f.StartSniff(s.most, s.patience); err != nil {
				t.Error(err)
			}
			return CauseNone
		},
		Sniff: func(f *Flow, b []byte, last bool) (int, SniffNext) {
			text := string(b)
			if last {
				text += " (last)"
			}
			if f.Upstream() != nil || f.ClientEnded() {
				t.Errorf("a flow that is sniffed goes to %v, or its client has ended: %v", f.Upstream(), f.ClientEnded())
			}
			s.mu.Lock()
			s.shown[f.Peer().String()] = append(s.shown[f.Peer().String()], text)
			s.mu.Unlock()
			name, found := strings.CutPrefix(string(b), "to ")
			switch {
			case found:
				f.SetValue(name)
				return 0, SniffDone
			case s.next != nil:
				return 0, s.next(b, last)
			}
			return 0, SniffMore
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			name, _ := f.Value().(string)
			if attempt > 0 {
				return nil
			}
			return s.upstreams[name]
		},
	}
}

// saw checks what the hook was shown of a client.
func (s *sniffed) saw(t *testing.T, c net.PacketConn, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.shown[gramAddr(c.LocalAddr()).String()]; !slices.Equal(got, want) {
		t.Errorf("the hook was shown %q, want %q", got, want)
	}
}

// silentSocket fails the test if anything comes to it until the end.
func silentSocket(t *testing.T, network string) *Addr {
	c := packetSocket(t, network)
	a := gramAddr(c.LocalAddr())
	t.Cleanup(func() {
		c.SetReadDeadline(time.Now()) // what was sent on this host is there
		b := make([]byte, 100)
		if n, from, err := c.ReadFrom(b); err == nil {
			t.Errorf("%q came from %v, and should go to nobody", b[:n], from)
		}
	})
	return &a
}

// A client's datagrams are shown one by one until the hook knows where they go. Nobody has them before, and then
// somebody has all, in their order, by one port; later ones are not shown.
func TestDatagramSniff(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, network)
			at := gramAddr(up.LocalAddr())
			s := &sniffed{most: 1 << 10, patience: time.Minute, upstreams: map[string]*Addr{"one": &at, "two": silentSocket(t, network)}}
			l := r.listenAt(gramPlace(t, network), ListenConfig{Hooks: s.hooks(t)})
			c := packetSocket(t, network)
			tellGram(t, c, l.Addr(), "first")
			tellGram(t, c, l.Addr(), "")
			tellGram(t, c, l.Addr(), "third")
			testwait.Until(t, "three are held", func() bool { return r.dgramStats().Received == 3 })
			r.e.Flows(func(all []FlowInfo) bool {
				for _, i := range all {
					if i.State != stats.StateSniffing || !i.Peer.Network.Datagrams() || i.Up.Held != 10 || i.Upstream.Network != 0 || i.Attempts != 0 || i.Up.Read != 10 || i.Up.Written != 0 {
						t.Errorf("a flow that is sniffed: %+v", i)
					}
					if d, ok := r.e.Flow(i.ID); !ok || d.State != stats.StateSniffing || d.Connect != 0 {
						t.Errorf("in detail: %+v", d)
					}
				}
				return true
			})
			tellGram(t, c, l.Addr(), "to one")
			tellGram(t, c, l.Addr(), "to two")
			from := hearGram(t, up, "first")
			for _, text := range []string{"", "third", "to one", "to two"} {
				if again := hearGram(t, up, text); again.String() != from.String() {
					t.Errorf("%q comes from %v, the first one from %v", text, again, from)
				}
			}
			s.saw(t, c, "first", "", "third", "to one")
			if _, err := up.WriteTo([]byte("welcome"), from); err != nil {
				t.Fatal(err)
			}
			hearGram(t, c, "welcome")
			if s := r.dgramStats(); s.BytesHeld != 0 || s.Sent != 6 {
				t.Errorf("stats: %+v", s)
			}
		})
	}
}

// A first datagram that says enough needs no memory.
func TestDatagramSniffAtOnce(t *testing.T) {
	r := newDatagramRig(t, Config{})
	s := &sniffed{most: 1, patience: time.Minute, upstreams: map[string]*Addr{"echo": {Network: Echo}}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "to echo")
	askGram(t, c, l.Addr(), "and more")
	s.saw(t, c, "to echo (last)")
	for _, class := range r.e.buffers.Stats().Classes {
		if class.Gets != 0 {
			t.Errorf("%d buffers of %d bytes were used", class.Gets, class.Size)
		}
	}
}

// What is held goes to an upstream inside, too.
func TestDatagramSniffToEcho(t *testing.T) {
	r := newDatagramRig(t, Config{})
	s := &sniffed{most: 100, patience: time.Minute, upstreams: map[string]*Addr{"echo": {Network: Echo}}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	c := packetSocket(t, "udp4")
	for _, text := range []string{"first", "second", "to echo", "fourth"} {
		tellGram(t, c, l.Addr(), text)
	}
	for _, text := range []string{"first", "second", "to echo", "fourth"} {
		hearGram(t, c, text)
	}
}

// Datagrams that arrive as one are shown one by one. The hook decides in the middle, and the rest follows.
func TestDatagramSniffInARun(t *testing.T) {
	for at := range 4 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			up := packetSocket(t, "udp4")
			to := gramAddr(up.LocalAddr())
			s := &sniffed{most: 1000, patience: time.Minute, upstreams: map[string]*Addr{"up00": &to}}
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
			c := packetSocket(t, "udp4")
			texts := []string{"text 00", "text 01", "text 02", "text 03"}
			texts[at] = "to up00"
			sendRun(t, c, l.Addr().AddrPort, texts...)
			tellGram(t, c, l.Addr(), "behind")
			for _, text := range append(texts, "behind") {
				hearGram(t, up, text)
			}
			s.saw(t, c, texts[:at+1]...)
		})
	}
}

// Who is refused is told nothing, and nobody is told of him: by the hook, by the bound on bytes, by the clock, and because
// there is no upstream.
func TestDatagramSniffRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		most     int
		patience time.Duration
		texts    []string
		next     SniffNext
		shown    []string
		cause    Cause
	}{
		{"hook", 100, time.Minute, []string{"first", "second"}, SniffRefuse, []string{"first"}, CauseRefused},
		{"unknown", 100, time.Minute, []string{"first"}, SniffNext(77), []string{"first"}, CauseRefused},
		{"bytes", 10, time.Minute, []string{"first", "second"}, SniffMore, []string{"first", "second (last)"}, CauseRefused},
		{"exactly", 11, time.Minute, []string{"first", "second"}, SniffMore, []string{"first", "second (last)"}, CauseRefused},
		{"empty", 2, time.Minute, []string{"", ""}, SniffMore, []string{"", " (last)"}, CauseRefused},
		{"time", 100, time.Minute, []string{"first", "second"}, SniffMore, []string{"first", "second", " (last)"}, CauseRefused},
		{"no upstream", 100, time.Minute, []string{"first", "to nobody"}, SniffMore, []string{"first", "to nobody"}, CauseNoUpstream},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			s := &sniffed{most: c.most, patience: c.patience, next: func([]byte, bool) SniffNext { return c.next }}
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
			conn := packetSocket(t, "udp4")
			for i, text := range c.texts {
				tellGram(t, conn, l.Addr(), text)
				testwait.Until(t, "it is read", func() bool { return r.dgramStats().Received == int64(i+1) })
				if c.next != SniffMore {
					break
				}
			}
			if c.name == "time" {
				r.pass(c.patience)
			}
			rec := r.expect(c.cause)
			n := int64(len(c.shown))
			if c.name == "time" {
				n--
			}
			if rec.Up.Datagrams != 0 || rec.Up.DatagramsDropped != n || rec.Down.Datagrams != 0 {
				t.Errorf("record: %+v", rec)
			}
			if d := r.dgramStats().Dropped; d.Get(stats.DropRefused) != n || d.Total() != n {
				t.Errorf("dropped: %v, want %d", d, n)
			}
			s.saw(t, conn, c.shown...)
		})
	}
}

// When the time is over the hook may choose all the same.
func TestDatagramSniffTimeout(t *testing.T) {
	r := newDatagramRig(t, Config{})
	s := &sniffed{most: 100, patience: 50 * time.Millisecond, upstreams: map[string]*Addr{"": gramEcho(t, "udp4")}, next: func(b []byte, last bool) SniffNext {
		if b == nil && last {
			return SniffDone
		}
		return SniffMore
	}}
	// The flow is not idle as long as it is sniffed.
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t), Timeouts: Timeouts{Idle: time.Millisecond}})
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "first")
	r.expect(CauseIdle)
	s.saw(t, c, "first", " (last)")
	c = packetSocket(t, "udp4")
	l = r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	askGram(t, c, l.Addr(), "first")
	askGram(t, c, l.Addr(), "second")
	s.saw(t, c, "first", " (last)")
}

// Clients that are sniffed make room first.
func TestDatagramSniffEvicted(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxDatagramFlows: 2})
	r.e.datagrams.inUse = 0
	s := &sniffed{most: 100, patience: time.Minute, upstreams: map[string]*Addr{"mute": silent(t), "echo": gramEcho(t, "udp4")}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	a, b, c := packetSocket(t, "udp4"), packetSocket(t, "udp4"), packetSocket(t, "udp4")
	tellGram(t, a, l.Addr(), "to mute")
	testwait.Until(t, "one is sent", func() bool { return r.dgramStats().Sent == 1 })
	tellGram(t, b, l.Addr(), "undecided")
	testwait.Until(t, "two are read", func() bool { return r.dgramStats().Received == 2 })
	testwait.Until(t, "neither is in use", func() bool {
		used := 0
		r.e.onLoops(func(fl *Flow) {
			if d := fl.owner.(*datagrams); d.inUse(d.of(fl)) {
				used++
			}
		})
		return used == 0
	})
	tellGram(t, c, l.Addr(), "to echo")
	if rec := r.expect(CauseEvicted); rec.Peer != gramAddr(b.LocalAddr()) || rec.Up.DatagramsDropped != 1 {
		t.Errorf("%+v made room, want %v", rec, b.LocalAddr())
	}
	hearGram(t, c, "to echo")
}

// silent is an upstream that never answers.
func silent(t *testing.T) *Addr {
	a := gramAddr(packetSocket(t, "udp4").LocalAddr())
	return &a
}

// All clients that are sniffed hold so much at most; what does not fit is lost, and the rest arrives.
func TestDatagramSniffMemory(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1, MaxNewDatagramFlows: -1})
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	s := &sniffed{most: 10 << 20, patience: time.Minute, upstreams: map[string]*Addr{"up": &to}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	const size = 60_000
	text := strings.Repeat("x", size)
	clients := []net.PacketConn{packetSocket(t, "udp4"), packetSocket(t, "udp4")}
	var sent int64
	for r.dgramStats().Dropped.Get(stats.DropFull) == 0 {
		if sent > 2*sniffTotal/size {
			t.Fatalf("%d datagrams are held", sent)
		}
		tellGram(t, clients[sent%2], l.Addr(), text)
		sent++
		testwait.Until(t, "it is read", func() bool { return r.dgramStats().Received == sent })
	}
	if n := r.dgramStats().BytesHeld; n > sniffTotal || n < sniffTotal/2 {
		t.Errorf("%d bytes are held", n)
	}
	// Flows whose upstream's socket is full have their own bound.
	if n := r.e.Overload().Shed(overload.Shedding{Idle: true}).Flows; n != 0 {
		t.Error("a flow that is sniffed counts as idle")
	}
	for _, c := range clients {
		tellGram(t, c, l.Addr(), "to up")
	}
	got := 0
	b := make([]byte, 1<<16)
	for ends := 0; ends < 2; {
		up.SetReadDeadline(time.Now().Add(patience))
		n, _, err := up.ReadFrom(b)
		if err != nil {
			t.Fatalf("after %d datagrams: %v", got, err)
		}
		if string(b[:n]) == "to up" {
			ends++
		} else if string(b[:n]) == text {
			got++
		}
	}
	testwait.Until(t, "nothing is held", func() bool { return r.dgramStats().BytesHeld == 0 })
	if d := r.dgramStats(); d.Sent != int64(got)+2 || d.Sent+d.Dropped.Total() != sent+2 {
		t.Errorf("%d arrived of %d; %+v", got, sent, d)
	}
}

// What a client has sent is copied seldom, however much it is.
func TestDatagramSniffGrowth(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := &sniffed{most: 10 << 20, patience: time.Hour}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	c := packetSocket(t, "udp4")
	text := strings.Repeat("x", 1200)
	for r.dgramStats().BytesHeld < 3<<20 {
		for range 100 {
			tellGram(t, c, l.Addr(), text)
		}
	}
	if n := r.e.buffers.Stats().Oversize; n > 20 {
		t.Errorf("%d buffers were made that are too large for the pool", n)
	}
}

// Short memory means that nothing is held: the client's next datagram decides.
func TestDatagramSniffWhenMemoryIsShort(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := &sniffed{most: 100, patience: time.Minute, upstreams: map[string]*Addr{"echo": gramEcho(t, "udp4")}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	r.e.Overload().Set(overload.State{HoldLess: true})
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "first")
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropFull) == 1 })
	askGram(t, c, l.Addr(), "to echo")
	s.saw(t, c, "first", "to echo")
}

// A descriptor that is missing when the upstream is known refuses the client.
func TestDatagramSniffWithoutDescriptor(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := &sniffed{most: 100, patience: time.Minute, upstreams: map[string]*Addr{"echo": gramEcho(t, "udp4")}}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "first")
	testwait.Until(t, "it is read", func() bool { return r.dgramStats().Received == 1 })
	r.k.Fail(testkernel.Datagram, sys.EMFILE, -1)
	tellGram(t, c, l.Addr(), "to echo")
	rec := r.expect(CauseNoDescriptors)
	r.k.Heal()
	if d := r.dgramStats(); rec.Up.DatagramsDropped != 2 || d.Dropped.Get(stats.DropNoRoom) != 2 {
		t.Errorf("%+v; %v", rec, d.Dropped)
	}
	askGram(t, c, l.Addr(), "to echo")
}

// Flows that are sniffed end with the engine, their listener, a Kill.
func TestDatagramSniffEnds(t *testing.T) {
	for what, cause := range map[string]Cause{"engine": CauseClosed, "listener": CauseClosed, "kill": CauseKilled} {
		t.Run(what, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			s := &sniffed{most: 100, patience: time.Minute}
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: s.hooks(t)})
			tellGram(t, packetSocket(t, "udp4"), l.Addr(), "first")
			testwait.Until(t, "it is read", func() bool { return r.dgramStats().Received == 1 })
			switch what {
			case "engine":
				r.e.Close()
			case "listener":
				l.Close()
				r.e.Close()
			case "kill":
				r.e.Flows(func(all []FlowInfo) bool {
					for _, i := range all {
						if !r.e.Kill(i.ID, CauseKilled) {
							t.Errorf("%+v is not killed", i)
						}
					}
					return true
				})
			}
			if rec := r.expect(cause); rec.Up.DatagramsDropped != 1 || rec.Upstream.Network != 0 {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// What the hook takes away is lost, and what came before and comes after is not.
func TestDatagramSniffTakes(t *testing.T) {
	r := newDatagramRig(t, Config{})
	up := packetSocket(t, "udp4")
	to := gramAddr(up.LocalAddr())
	s := &sniffed{most: 12, patience: time.Minute, upstreams: map[string]*Addr{"up": &to}}
	hooks := s.hooks(t)
	sniff := hooks.Sniff
	hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
		take, next := sniff(f, b, last)
		if strings.HasPrefix(string(b), "bad") {
			take = 1
		}
		return take, next
	}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: hooks})
	c := packetSocket(t, "udp4")
	for _, text := range []string{"bad", "first", "bad too long to be held", "second", "to up"} {
		tellGram(t, c, l.Addr(), text)
	}
	for _, text := range []string{"first", "second", "to up"} {
		hearGram(t, up, text)
	}
	s.saw(t, c, "bad", "first", "bad too long to be held (last)", "second", "to up (last)")
	if d := r.dgramStats(); d.Dropped.Get(stats.DropRefused) != 2 || d.Dropped.Total() != 2 {
		t.Errorf("dropped: %v", d.Dropped)
	}
}

// What StartSniff refuses changes nothing.
func TestDatagramSniffMisuse(t *testing.T) {
	r := newDatagramRig(t, Config{})
	var refused atomic.Int32
	wrong := func(f *Flow, stage bool, max int) {
		if err := f.StartSniff(max, 0); err == nil || errors.Is(err, ErrStage) != stage {
			t.Errorf("StartSniff(%d): %v", max, err)
		}
		refused.Add(1)
	}
	echo := gramEcho(t, "udp4")
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{
		Admit:     func(f *Flow) Cause { wrong(f, false, 0); wrong(f, false, -1); return CauseNone },
		Sniff:     func(*Flow, []byte, bool) (int, SniffNext) { t.Error("it was sniffed"); return 0, SniffRefuse },
		Upstream:  func(f *Flow, _ int) *Addr { wrong(f, true, 100); return echo },
		Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) { wrong(f, true, 100) },
	}})
	c := packetSocket(t, "udp4")
	askGram(t, c, l.Addr(), "hello")
	without := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Admit: func(f *Flow) Cause { wrong(f, false, 100); return CauseNone }}}, echo)
	askGram(t, c, without.Addr(), "hello")
	if refused.Load() != 5 {
		t.Errorf("%d calls", refused.Load())
	}
	// Who is refused after StartSniff was never sniffed.
	s := &sniffed{most: 100, patience: time.Minute}
	hooks := s.hooks(t)
	admit := hooks.Admit
	hooks.Admit = func(f *Flow) Cause { admit(f); admit(f); return CauseRefused }
	third := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: hooks})
	tellGram(t, c, third.Addr(), "hello")
	r.expect(CauseRefused)
	s.saw(t, c)
}

// A flow whose client is sniffed ends with its process, and one that has its upstream goes on. What the client sends again finds
// the next process.
func TestDatagramSniffOutlivesProcess(t *testing.T) {
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String(), Sniff: 20}
	p := k.start(o)
	o.Listen = p.urls()
	all := gramClients(t, "udp4", 2)
	enough := strings.Repeat("x", 20)
	all[0].tell(t, p.addrs[0], "first")
	all[0].tell(t, p.addrs[0], enough)
	all[0].hear(t, p.addrs[0], "first!")
	all[0].hear(t, p.addrs[0], enough+"!")
	all[1].tell(t, p.addrs[0], "first")
	k.expect(holdFlow, 1)
	testwait.Until(t, "both flows", func() bool { s := p.ask("stats").Stats; return s.Flows() == 2 })
	p.kill()
	p = k.start(o)
	if p.Restored.Flows != 1 || p.Restored.TotalLost() != 0 {
		t.Errorf("restored: %+v", p.Restored)
	}
	all[0].tell(t, p.addrs[0], "next")
	all[0].hear(t, p.addrs[0], "next!")
	all[1].tell(t, p.addrs[0], enough)
	all[1].hear(t, p.addrs[0], enough+"!")
	// A planned end is the same.
	k.expect(holdFlow, 2)
	third := gramClients(t, "udp4", 3)[2]
	third.tell(t, p.addrs[0], "first")
	testwait.Until(t, "three flows", func() bool { s := p.ask("stats").Stats; return s.Flows() == 3 })
	p.ask("handover")
	rec := <-p.records
	if rec.Cause != CauseCrashed || rec.Up.DatagramsDropped != 1 {
		t.Errorf("record: %+v", rec)
	}
	p.kill()
	if p = k.start(o); p.Restored.Flows != 2 {
		t.Errorf("restored: %+v", p.Restored)
	}
	p.ask("close")
}

// TestDatagramSniffCosts: the time that the hook takes for a later datagram of a client counts as time of new flows, too, and adds
// up over the clients of a turn.
func TestDatagramSniffCosts(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := &sniffed{most: 1000, patience: time.Minute}
	h := s.hooks(t)
	sniff := h.Sniff
	blocked, release := make(chan struct{}), make(chan struct{})
	type cost struct{ before, took time.Duration }
	costs := make(chan cost, 2)
	h.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
		d := f.owner.(*datagrams)
		switch string(b) {
		case "wait":
			close(blocked)
			<-release
		case "later":
			c := cost{before: d.beginning}
			for start := d.loop.Clock(); c.took == 0; {
				c.took = d.loop.Clock() - start
			}
			costs <- c
		}
		return sniff(f, b, last)
	}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: h})
	a, b, c := packetSocket(t, "udp4"), packetSocket(t, "udp4"), packetSocket(t, "udp4")
	tellGram(t, a, l.Addr(), "first")
	tellGram(t, b, l.Addr(), "first")
	testwait.Until(t, "both are read", func() bool { return r.dgramStats().Received == 2 })
	tellGram(t, c, l.Addr(), "wait")
	<-blocked
	tellGram(t, a, l.Addr(), "later") // both are in the next batch
	tellGram(t, b, l.Addr(), "later")
	close(release)
	first, second := <-costs, <-costs
	if spent := second.before - first.before; spent < first.took {
		t.Errorf("%v count for a hook that took %v", spent, first.took)
	}
}
