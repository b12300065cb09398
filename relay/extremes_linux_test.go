package relay

import (
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// A hook's cause that no flow can have is replaced by one that names who ended the flow.
func TestKillWithAnyCause(t *testing.T) {
	for _, c := range []Cause{CauseNone, CauseEnd, causes, 200, math.MaxUint8} {
		for _, network := range []string{"tcp4", "udp4"} {
			t.Run(fmt.Sprintf("cause=%d/net=%s", uint8(c), network), func(t *testing.T) {
				r := newRig(t, Config{Loops: 1})
				cfg := ListenConfig{Hooks: Hooks{Upstream: func(*Flow, int) *Addr { return &Addr{Network: Echo} }, Done: r.done}}
				at := Addr{Network: TCP, AddrPort: loopback}
				if network == "udp4" {
					at.Network = UDP
				}
				l, err := r.e.Listen(at, cfg)
				if err != nil {
					t.Fatal(err)
				}
				a, err := net.Dial(network, l.Addr().AddrPort.String())
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				say(t, a, a, "hello")
				for _, f := range list(r.e) {
					if !r.e.Kill(f.ID, c) {
						t.Error("not found")
					}
				}
				r.expect(CauseKilled)
			})
		}
	}
}

// The same of what Admit answers.
func TestAdmitWithAnyCause(t *testing.T) {
	for _, c := range []Cause{CauseEnd, causes, math.MaxUint8} {
		r := newRig(t, Config{Loops: 1})
		hooks := Hooks{Admit: func(*Flow) Cause { return c }, Upstream: func(*Flow, int) *Addr { return nil }, Done: r.done}
		wantTurnedAway(t, r.listen("tcp4", ListenConfig{Hooks: hooks}))
		r.expect(CauseRefused)
		l, err := r.e.Listen(Addr{Network: UDP, AddrPort: loopback}, ListenConfig{Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		a, err := net.Dial("udp4", l.Addr().AddrPort.String())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		a.Write(nil) // an empty datagram, so that no byte is dropped
		r.expect(CauseRefused)
	}
}

// A timeout that never passes in this universe does not pass at once.
func TestEndlessTimeouts(t *testing.T) {
	for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - tick, math.MinInt64} {
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			queued := make(chan FlowRef, 1)
			s := newServer(t, "tcp4")
			cfg := ListenConfig{Timeouts: Timeouts{Connect: d, Idle: d, HalfClosed: d, FirstByte: d, Life: d, Queue: d}}
			cfg.Hooks.Admit = func(f *Flow) Cause { f.StartSniff(1, d); return CauseNone }
			cfg.Hooks.Sniff = func(_ *Flow, b []byte, last bool) (int, SniffNext) { return 0, SniffDone }
			cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
				if f.Value() == nil {
					f.SetValue(true)
					queued <- f.Ref()
					f.Queue()
					return nil
				}
				return s.addr
			}
			a := dial(t, r.listen("tcp4", cfg))
			outlast := func() {
				t.Helper()
				ticks(r, 2)
				if n := r.e.flows(); n != 1 {
					t.Fatalf("%d flows", n)
				}
			}
			testwait.Until(t, "the flow begins", func() bool { return r.e.flows() == 1 })
			outlast()
			io.WriteString(a, "x")
			ref := <-queued
			outlast()
			ref.Resume()
			b := s.accept(t)
			hear(t, b, "x")
			closeWrite(t, a)
			wantEnd(t, b)
			outlast()
			say(t, b, a, "still here")
			b.Close()
			wantEnd(t, a)
			r.expect(CauseEnd)
		})
	}
}

// ticks lets the timers of all loops run n times.
func ticks(r *rig, n time.Duration) { r.pass((n + 1) * tick) }
