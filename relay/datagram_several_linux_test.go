package relay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// connectionOf returns the name of the connection with which a datagram of these tests begins. It is the Value of the connection's flow.
func connectionOf(b []byte) string {
	name, _, _ := strings.Cut(string(b), " ")
	return name
}

// chooseConnection is Hooks.Choose of these tests.
func chooseConnection(flows []*Flow, b []byte) *Flow {
	for _, f := range flows {
		if value, _ := f.Value().(string); strings.TrimRight(value, "'") == connectionOf(b) {
			return f
		}
	}
	return nil
}

// connectionHooks are hooks by which each connection of an address has a flow, to the upstream of its name.
func connectionHooks(upstreams map[string]*Addr) Hooks {
	return Hooks{
		Admit: func(f *Flow) Cause { f.StartSniff(1<<10, time.Minute); return CauseNone },
		Sniff: func(f *Flow, b []byte, _ bool) (int, SniffNext) {
			f.SetValue(connectionOf(b))
			return 0, SniffDone
		},
		Choose: chooseConnection,
		Upstream: func(f *Flow, attempt int) *Addr {
			if attempt > 0 {
				return nil
			}
			return upstreams[f.Value().(string)]
		},
	}
}

// killConnection ends the flow of a connection.
func killConnection(r *rig, name string) {
	r.t.Helper()
	var ids []uint64
	r.e.Flows(func(all []FlowInfo) bool {
		for _, f := range all {
			if f.Value == name {
				ids = append(ids, f.ID)
			}
		}
		return true
	})
	if len(ids) != 1 || !r.e.Kill(ids[0], CauseKilled) {
		r.t.Fatalf("flows of connection %s: %v", name, ids)
	}
}

// Connections of one address are flows of their own: each has its upstream, its socket, its record and its end.
func TestConnectionsOfOneAddress(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			one, two := newGramUpstream(t, network), newGramUpstream(t, network)
			l := r.listenAt(gramPlace(t, network), ListenConfig{Hooks: connectionHooks(map[string]*Addr{"one": &one.addr, "two": &two.addr, "more": &two.addr})})
			c := packetSocket(t, network)
			ask := func(text string) {
				t.Helper()
				tellGram(t, c, l.Addr(), text)
				hearGram(t, c, text+"!")
			}
			names := []string{"one", "two", "more"}
			for i := range 10 {
				for _, name := range names {
					ask(fmt.Sprint(name, " ", i))
				}
			}
			killConnection(r, "two")
			if rec := r.expect(CauseKilled); rec.Value != "two" || rec.Up.Datagrams != 10 || rec.Down.Datagrams != 10 {
				t.Errorf("%+v", rec)
			}
			ask("more goes on")
			ask("one goes on")
			two.forget() // it comes from another socket
			ask("two begins")
			if d := r.dgramStats(); d.Begun != 4 || d.Flows != 3 {
				t.Errorf("%+v", d)
			}
			for range 2 { // until none of them is left
				r.e.endFlows(CauseKilled)
				for range names {
					r.expect(CauseKilled)
				}
				one.forget()
				two.forget()
				for _, name := range names {
					ask(name + " again")
				}
			}
		})
	}
}

// A message in which the kernel has joined datagrams of several connections is cut where another one begins: each datagram reaches its
// upstream once and in order, and those between two cuts leave with one call.
func TestRunOfSeveralConnections(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	names := []string{"a", "b", "c"}
	upstreams := make(map[string]*Addr)
	conns := make(map[string]*gramClient)
	for _, name := range names {
		c := packetSocket(t, "udp4")
		at := gramAddr(c.LocalAddr())
		upstreams[name], conns[name] = &at, &gramClient{c, name}
	}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: connectionHooks(upstreams)})
	c := packetSocket(t, "udp4")
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	n := 0
	for round := range 60 {
		var texts []string
		for most := 1 + rnd.IntN(55); len(texts) < most; {
			name := names[rnd.IntN(len(names))]
			for range 1 + rnd.IntN(6) {
				n++
				texts = append(texts, fmt.Sprintf("%s datagram %05d", name, n))
			}
		}
		if rnd.IntN(2) == 0 {
			texts[len(texts)-1] = texts[len(texts)-1][:12] // the last one may be shorter
		}
		several := 0 // connections that have more than one datagram in it
		before := r.k.Count(testkernel.SendRun)
		sendRun(t, c, l.Addr().AddrPort, texts...)
		for _, name := range names {
			its := slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return text[:1] != name })
			for _, text := range its {
				hearGram(t, conns[name], text)
			}
			if len(its) > 1 {
				several++
			}
		}
		// In later rounds nothing is sniffed. What lies apart in the message leaves with one call, too.
		if got := r.k.Count(testkernel.SendRun) - before; round > 20 && got != several {
			t.Fatalf("seed %d, round %d: %d connections have more than one datagram, and %d runs have left: %q", seed, round, several, got, texts)
		}
	}
	if d := r.dgramStats(); d.SuperPackets == 0 || d.Begun != 3 || d.Sent != int64(n) || d.Dropped.Total() != 0 {
		t.Errorf("seed %d: %+v", seed, d)
	}
}

// An address has a bounded number of flows. Whoever begins more, which may be somebody who forges the address, ends none of them.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	u := newGramUpstream(t, "udp4")
	upstreams := make(map[string]*Addr)
	name := func(i int) string { return fmt.Sprint("c", i) }
	for i := range 2*mostOfAddress + 2 {
		upstreams[name(i)] = &u.addr
	}
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: connectionHooks(upstreams)})
	c, other := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	for _, text := range []string{" first", " second"} {
		for i := range mostOfAddress {
			tellGram(t, c, l.Addr(), name(i)+text)
			hearGram(t, c, name(i)+text+"!")
		}
		for i := range mostOfAddress {
			tellGram(t, c, l.Addr(), name(mostOfAddress+i)+" is forged")
		}
	}
	tellGram(t, other, l.Addr(), name(2*mostOfAddress)+" is elsewhere")
	hearGram(t, other, name(2*mostOfAddress)+" is elsewhere!")
	testwait.Until(t, "what is too much is dropped", func() bool {
		d := r.dgramStats()
		return d.Dropped.Get(stats.DropAddressFull) == 2*mostOfAddress && d.Dropped.Total() == 2*mostOfAddress
	})
	if d := r.dgramStats(); d.Begun != mostOfAddress+1 {
		t.Errorf("%+v", d)
	}
	killConnection(r, name(3))
	r.expect(CauseKilled)
	tellGram(t, c, l.Addr(), name(2*mostOfAddress+1)+" has its place")
	hearGram(t, c, name(2*mostOfAddress+1)+" has its place!")
}

// When their port closes, the flows of an address have one socket together, whichever of them ends first; and another connection of that
// address, which reaches no other process, begins there.
func TestDrainWithSeveralConnections(t *testing.T) {
	for _, row := range boundAs {
		t.Run(fmt.Sprintf("bound=%s/to=%s", row.bound, row.to), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			u := newGramUpstream(t, "udp4")
			l := r.listenAt(Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.bound), 0)}, ListenConfig{
				Hooks: connectionHooks(map[string]*Addr{"a": &u.addr, "b": &u.addr, "c": &u.addr})})
			to := Addr{Network: UDP, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(row.to), l.Addr().AddrPort.Port())}
			c := packetSocketAt(t, row.from)
			ask := func(text string) {
				t.Helper()
				tellGram(t, c, to, text)
				hearGram(t, c, text+"!")
			}
			ask("a first")
			ask("b first")
			drainBegun(t, r)
			if n := r.e.datagrams.own.Load(); n != 1 {
				t.Errorf("two flows of one address have %d sockets", n)
			}
			ask("a second")
			ask("c first")
			ask("b second")
			for _, name := range []string{"a", "b"} {
				killConnection(r, name)
				r.expect(CauseKilled)
				ask("c goes on")
			}
			if d := r.dgramStats(); r.e.datagrams.own.Load() != 1 || d.AnswersOnly != 0 || d.Begun != 3 {
				t.Errorf("%d sockets, %+v", r.e.datagrams.own.Load(), d)
			}
			r.e.endFlows(CauseKilled)
			r.expect(CauseKilled)
			testwait.Until(t, "the socket is gone", func() bool { return r.e.datagrams.own.Load() == 0 })
		})
	}
}

// The connections of one address find their flows again when the process is killed, and when it hands over.
func TestSeveralConnectionsOutliveProcess(t *testing.T) {
	testnet.AlsoWithoutRace(t)
	k := newKeptTable(t)
	u := newGramUpstream(t, "udp4")
	o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "udp4")}, Upstream: u.addr.String(), Sniff: 1 << 10, Several: true}
	p := k.start(o)
	o.Listen = p.urls()
	to := p.addrs[0]
	all := gramClients(t, "udp4", 4)
	names := []string{"a", "b", "c"}
	ask := func(text string) {
		t.Helper()
		for _, c := range all {
			for _, name := range names {
				tellGram(t, c, to, fmt.Sprint(name, c.name, " ", text))
				hearGram(t, c, fmt.Sprint(name, c.name, " ", text, "!"))
			}
		}
	}
	ask("first")
	for i, handOver := range []bool{false, true, false} {
		k.expect(holdFlow, len(all)*len(names))
		p.ask("stats") // the turns in which they had their answers have ended
		if handOver {
			p.ask("handover")
		}
		p.kill()
		p = k.start(o)
		if p.Restored.Flows != len(all)*len(names) || p.Restored.TotalLost() != 0 {
			t.Fatalf("restored: %+v", p.Restored)
		}
		ask(fmt.Sprint("again ", i))
	}
	p.ask("close")
	for range len(all) * len(names) {
		if rec := <-p.records; rec.Cause != CauseClosed || rec.Up.Datagrams != 4 || rec.Down.Datagrams != 4 || !strings.HasSuffix(rec.Value, "'") {
			t.Errorf("record: %+v", rec)
		}
	}
}
