package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
)

// TestStreamPatrol: a flow that nothing would look at again ends, with what is wrong with it, and nothing is left of it.
func TestStreamPatrol(t *testing.T) {
	for _, c := range []struct {
		name   string
		number int // of the invariant
		do     func(s *streams, f *streamFlow)
	}{
		{"nothing", 0, func(*streams, *streamFlow) {}},
		{"no timer", 9, func(s *streams, f *streamFlow) { s.loop.Disarm(f.slot) }},
		{"no timer for a tick", 9, func(s *streams, f *streamFlow) {
			s.loop.Disarm(f.slot)
			f.throttled = true
		}},
		{"in no queue", 9, func(s *streams, f *streamFlow) { f.wait[up] = pump.Again }},
		{"in an empty queue", 9, func(s *streams, f *streamFlow) { f.inReady = true }},
		{"not watched", 9, func(s *streams, f *streamFlow) { f.muted[down] = true }},
		{"short, and nobody knows", 9, func(s *streams, f *streamFlow) { f.state = streamShort; s.share.short.flows.Add(1) }},
		{"restored, and nobody begins it", 9, func(s *streams, f *streamFlow) { f.state = streamRestored }},
		{"in a hook", 12, func(s *streams, f *streamFlow) { f.state = streamAdmitting }},
		{"over", 14, func(s *streams, f *streamFlow) { f.wait = [2]pump.State{pump.End, pump.End} }},
		{"a handshake without TLS", 54, func(s *streams, f *streamFlow) { f.state = streamSecuring }},
		{"a handshake without TLS, and no timer", 54, func(s *streams, f *streamFlow) { s.loop.Disarm(f.slot); f.state = streamSecuring }},
		{"sniffed without an end", 12, func(s *streams, f *streamFlow) { s.loop.Disarm(f.slot); f.state = streamSniffing }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			a, b := r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{Idle: time.Hour}})
			say(t, a, b, "hello")
			r.e.onLoops(func(fl *Flow) {
				f := streamOf(fl)
				s := f.owner.(*streams)
				c.do(s, f)
				s.Inspect(f.slot)
			})
			if c.number == 0 {
				say(t, a, b, "again")
				return
			}
			rec := r.expect(CauseInternal)
			var v *loop.Violation
			if !errors.As(rec.Err, &v) || v.Number != c.number {
				t.Errorf("%v, want a violation of invariant %d", rec.Err, c.number)
			}
			if c.number != 14 { // both sides have received everything
				wantReset(t, a)
				wantReset(t, b)
			}
		})
	}
}

// TestDatagramPatrol is TestStreamPatrol for datagrams.
func TestDatagramPatrol(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, gramEcho(t, "udp4"))
	askGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
	inspect := func(damage func(d *datagrams, f *datagramFlow)) {
		r.e.onLoops(func(fl *Flow) {
			d := fl.owner.(*datagrams)
			f := d.of(fl)
			damage(d, f)
			d.Inspect(f.slot)
		})
	}
	inspect(func(*datagrams, *datagramFlow) {})
	if n := r.e.Stats().Flows(); n != 1 {
		t.Fatalf("%d flows", n)
	}
	inspect(func(d *datagrams, f *datagramFlow) { d.loop.Disarm(f.slot) })
	var v *loop.Violation
	if rec := r.expect(CauseInternal); !errors.As(rec.Err, &v) || v.Number != 9 {
		t.Errorf("%v, want a violation of invariant 9", rec.Err)
	}
}
