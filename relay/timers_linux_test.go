package relay

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// A flow that moves nothing ends after its idle time, and not before.
func TestIdle(t *testing.T) {
	const idle = 2 * time.Second
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			r.k.StopClock()
			a, b := r.flow(p[0], p[1], ListenConfig{Timeouts: Timeouts{Idle: idle}})
			from, to := a, b
			for range 4 { // longer than the idle time, with something moving
				r.pass(idle - 2*tick)
				say(t, from, to, "alive")
				from, to = to, from
			}
			r.pass(idle - 2*tick)
			if len(r.records) > 0 {
				t.Error("it has ended before its time")
			}
			r.pass(4 * tick)
			r.expect(CauseIdle)
			readToEnd(t, a)
			readToEnd(t, b)
		})
	}
}

// One that never said a word ends too.
func TestIdleFromTheStart(t *testing.T) {
	r := newRig(t, Config{})
	r.flow("tcp4", "unix", ListenConfig{Timeouts: Timeouts{Idle: 100 * time.Millisecond}})
	if rec := r.expect(CauseIdle); rec.Duration < 100*time.Millisecond {
		t.Errorf("%+v", rec)
	}
}

// Echo and discard have one direction by nature: no half of theirs is closed.
func TestIdleOfBuiltins(t *testing.T) {
	for _, network := range []Network{Echo, Discard} {
		r := newRig(t, Config{})
		l := r.listen("tcp4", ListenConfig{Timeouts: Timeouts{Idle: 300 * time.Millisecond, HalfClosed: 100 * time.Millisecond}}, &Addr{Network: network})
		a := dial(t, l)
		a.Write([]byte("hello"))
		if rec := r.expect(CauseIdle); rec.Duration < 300*time.Millisecond {
			t.Errorf("%v: %+v", network, rec)
		}
	}
}

// A half-closed flow lingers for as long as the other half moves bytes,
// whichever side ended first: two flows at once.
func TestHalfClosedLinger(t *testing.T) {
	const linger = 2 * time.Second
	for _, p := range pairs {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			listen := ListenConfig{Timeouts: Timeouts{HalfClosed: linger, Idle: time.Minute}}
			r := newRig(t, Config{})
			r.k.StopClock()
			a, b := r.flow(p[0], p[1], listen)
			y, x := r.flow(p[0], p[1], listen)
			r.pass(2 * linger) // not half-closed yet
			for _, side := range [][2]net.Conn{{a, b}, {x, y}} {
				say(t, side[0], side[1], "bye")
				closeWrite(t, side[0])
				wantEnd(t, side[1])
			}
			for range 3 {
				r.pass(linger - 2*tick)
				say(t, b, a, "not yet")
				say(t, y, x, "not yet")
			}
			r.pass(linger + 2*tick)
			for range 2 {
				r.expect(CauseHalfClosed)
			}
		})
	}
}

// The linger begins with the half-close, not with the last byte before it: a
// client that thinks for long, and then ends its side, has its answer.
func TestHalfClosedCountsFromTheEnd(t *testing.T) {
	const linger = 2 * time.Second
	for _, p := range pairs[1:3] {
		t.Run("client="+p[0]+"/upstream="+p[1], func(t *testing.T) {
			r := newRig(t, Config{})
			r.k.StopClock()
			a, b := r.flow(p[0], p[1], ListenConfig{Timeouts: Timeouts{HalfClosed: linger}})
			say(t, a, b, "a question")
			r.pass(2 * linger)
			closeWrite(t, a)
			wantEnd(t, b)
			r.pass(linger - 2*tick)
			say(t, b, a, "the answer")
			b.Close()
			r.expect(CauseEnd)
		})
	}
}

// What a side had said before it failed has its own time to be delivered,
// however long nothing had moved before.
func TestLastWordsCountFromTheFailure(t *testing.T) {
	r := newRig(t, Config{})
	r.k.StopClock()
	a, b := r.flow("tcp4", "tcp4", ListenConfig{})
	for _, c := range []net.Conn{a, b} { // neither reads
		r.fill(t, c)
	}
	r.pass(failedDrain + 200*time.Millisecond)
	reset(t, b)
	testwait.Until(t, "the reset is seen", func() bool { return r.blocked() == 1 })
	r.pass(4 * tick) // several looks at the timers
	readToEnd(t, a)
	if rec := r.expect(CauseUpstreamReset); rec.Down.BytesDropped() != 0 || rec.Up.BytesDropped() == 0 {
		t.Errorf("AB %+v, BA %+v", rec.Up, rec.Down)
	}
}

// A negative linger is for ever: the flow ends by itself only.
func TestHalfClosedForEver(t *testing.T) {
	r := newRig(t, Config{})
	a, b := r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{HalfClosed: -1}})
	closeWrite(t, a)
	wantEnd(t, b)
	r.pass(5 * time.Second)
	say(t, b, a, "late")
	b.Close()
	r.expect(CauseEnd)
}

// A flow whose reader has stopped moves nothing either.
func TestIdleWithBytesHeld(t *testing.T) {
	eachPair(t, Config{}, ListenConfig{Timeouts: Timeouts{Idle: time.Minute}}, func(t *testing.T, r *rig, a, b net.Conn) {
		r.fill(t, a)
		r.pass(time.Minute)
		rec := r.expect(CauseIdle)
		if rec.Up.BytesDropped() <= 0 {
			t.Errorf("nothing was held: %+v", rec.Up)
		}
		// What is cut short must not look complete.
		wantReset(t, b)
	})
}

// A loop whose flows rest sleeps: it asks the kernel for nothing, whatever it
// did a moment ago.
func TestIdleLoopsSleep(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		r := newRig(t, Config{Dedicated: dedicated, Loops: 2})
		a, b := r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{Idle: time.Hour}})
		for range 50 {
			say(t, a, b, "hello")
		}
		go a.Write(make([]byte, 4<<20))
		if _, err := io.CopyN(io.Discard, b, 4<<20); err != nil {
			t.Fatal(err)
		}
		a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		a.Write(make([]byte, 64<<20)) // and bytes are held for a reader that stopped
		waits := func() int64 { s := r.e.Stats(); return s.Total().Waits }
		testwait.Until(t, "300 ms of rest with 20 waits at most", func() bool {
			before := waits()
			time.Sleep(300 * time.Millisecond)
			return waits()-before <= 20
		})
	}
}

// One flow moves a budget of bytes and then goes behind the others, so that
// bulk on the same loop stops nobody.
func TestBulkStopsNobody(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	l := r.listen("unix", ListenConfig{}, &Addr{Network: Discard})
	stop := make(chan bool)
	var wg sync.WaitGroup
	const bulk = 3
	for range bulk {
		c := dial(t, l)
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for {
				select {
				case <-stop:
					c.Close()
					return
				default:
					c.Write(buf)
				}
			}
		})
	}
	a, b := r.flow("tcp4", "unix", ListenConfig{})
	for range 100 {
		say(t, a, b, "a small question")
		say(t, b, a, "and its answer")
	}
	close(stop)
	wg.Wait()
	a.Close()
	b.Close()
	for range bulk + 1 {
		r.record()
	}
}
