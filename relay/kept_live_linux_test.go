package relay

import (
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/hold"
)

// What a side has sent before it broke the connection arrives, also if the loop reads it only then:
// recvmmsg(2), unlike recv(2), tells an error before it gives the bytes in front of it.
func TestLastBytesOfKeptFlow(t *testing.T) {
	eachPair(t, Config{Loops: 1, Keep: &hold.Keep{After: -1, Holder: nobody{}}}, ListenConfig{}, func(t *testing.T, r *rig, a, b net.Conn) {
		say(t, a, b, "up")
		say(t, b, a, "down")
		io.WriteString(a, "unread")
		closeWrite(t, a) // what comes from b is read by recvmmsg from now on, over TCP too
		testwait.Until(t, "the end is passed on", func() (ended bool) {
			r.e.onLoops(func(f *Flow) { ended = f.kept && streamOf(f).wait[up] == pump.End })
			return ended
		})
		// b breaks the connection while the loop is busy.
		busy, free := make(chan struct{}), make(chan struct{})
		r.e.loops[0].Post(loop.Request{Do: func() {
			close(busy)
			<-free
		}})
		<-busy
		io.WriteString(b, "last")
		reset(t, b)
		close(free)
		hear(t, a, "last")
		wantReset(t, a)
		r.expect(CauseUpstreamReset)
	})
}

// So do they when the process is killed before it has read them.
func TestLastBytesOutliveProcess(t *testing.T) {
	s := newServer(t, "tcp4")
	j, _ := newJourney(t, "tcp4", "tcp4", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
	a := j.dial(t)
	b := s.accept(t)
	say(t, a, b, "up")
	say(t, b, a, "down")
	j.k.settled(1)
	j.proc.stop()
	io.WriteString(b, "last")
	reset(t, b)
	j.next(t)
	hear(t, a, "last")
	wantReset(t, a)
	j.k.settled(0)
}

// A flow whose hooks want to write more than fits is not continued with what they wrote before, and is again
// after a change that fits.
func TestChangedTooMuch(t *testing.T) {
	var size atomic.Int64
	size.Store(1)
	hooks := Hooks{Encode: func(_ *Flow, e *hold.Encoder) { e.Bytes(make([]byte, size.Load())) }}
	eachPair(t, Config{Loops: 1, Keep: &hold.Keep{After: -1, Holder: nobody{}}}, ListenConfig{Hooks: hooks}, func(t *testing.T, r *rig, a, b net.Conn) {
		say(t, a, b, "up")
		testwait.Until(t, "the flow is kept", func() (kept bool) {
			r.e.onLoops(func(f *Flow) { kept = f.kept })
			return kept
		})
		r.e.onLoops(func(f *Flow) {
			record := f.owner.base().keep.ledger.Record(f.slot)
			for _, n := range []int64{10, hold.MaxEncoded + 1, 100, 1} {
				size.Store(n)
				f.Changed()
				if stale := record.Flags()&recordStale != 0; stale != (n > hold.MaxEncoded) {
					t.Errorf("%d bytes: stale %v", n, stale)
				}
			}
		})
		say(t, b, a, "down")
	})
}

// A pair with a name that has changed is encoded by what it was given with.
func TestChangedPair(t *testing.T) {
	r := newRig(t, Config{Loops: 1, Keep: &hold.Keep{After: -1, Holder: nobody{}}})
	a, b := r.adopted("tcp4", "unix", PairConfig{Name: "pair", Encode: func(e *hold.Encoder) { e.String("value") }})
	say(t, a, b, "up")
	testwait.Until(t, "the flow is kept", func() (kept bool) {
		r.e.onLoops(func(f *Flow) { kept = f.kept })
		return kept
	})
	r.e.onLoops(func(f *Flow) {
		l := f.owner.base().keep.ledger
		blob, _ := l.Blob(l.Record(f.slot))
		before := slices.Clone(blob)
		f.Changed()
		if blob, ok := l.Blob(l.Record(f.slot)); !ok || !slices.Equal(blob, before) {
			t.Errorf("%q, %v, was %q", blob, ok, before)
		}
	})
}

// A flow that was shed does not come back in the next process, and the others do.
func TestKeptFlowIsShed(t *testing.T) {
	k := newKeptTable(t)
	o := keptOrder{Loops: 2, Listen: []string{keptPlace(t, "tcp4")}, Upstream: "echo:"}
	p := k.start(o)
	o.Listen = p.urls()
	shed, stays := testnet.Dial(t, toNet(p.addrs[0])), testnet.Dial(t, toNet(p.addrs[0]))
	say(t, shed, shed, "text")
	say(t, stays, stays, "text")
	k.settled(2)
	say(t, stays, stays, "busy")
	p.ask("shed")
	wantReset(t, shed)
	p.kill()
	p = k.start(o)
	if r := p.Restored; r.Flows != 1 || r.TotalLost() != 0 {
		t.Errorf("%+v, want one flow", r)
	}
	say(t, stays, stays, "on it goes")
}
