package relay

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A flow ends when its life is over, at whichever stage and whatever moves.
func TestLife(t *testing.T) {
	const life = 100 * time.Millisecond
	t.Run("relaying", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.flow("unix", "tcp4", ListenConfig{Timeouts: Timeouts{Life: life, Idle: time.Minute}})
		go func() {
			buf := make([]byte, 1000)
			for {
				if _, err := a.Write(buf); err != nil {
					return
				}
			}
		}()
		wantReset(t, b)
		if rec := r.expect(CauseLife); rec.Duration < life {
			t.Errorf("%+v", rec)
		}
		readToEnd(t, a)
	})
	hole, _ := fullQueue(t, "tcp4")
	pre := &preamble{max: 100, timeout: time.Hour}
	for name, h := range map[string]Hooks{
		"sniffing":   pre.hooks(),
		"queued":     {Upstream: func(f *Flow, _ int) *Addr { f.Queue(); return nil }},
		"connecting": {Upstream: func(*Flow, int) *Addr { return hole }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			wantTurnedAway(t, r.listen("tcp4", ListenConfig{Hooks: h, Timeouts: Timeouts{Life: life, Connect: time.Minute}}, hole))
			if rec := r.expect(CauseLife); rec.Duration < life {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// An upstream that says nothing ends the flow, unless it has ended its side.
func TestFirstByte(t *testing.T) {
	const first = 100 * time.Millisecond
	t.Run("silent", func(t *testing.T) {
		r := newRig(t, Config{})
		a, b := r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{FirstByte: first}})
		_, err := io.WriteString(a, "a question")
		rec := r.expect(CauseFirstByte)
		if rec.Duration < first || rec.FirstByte != 0 {
			t.Errorf("%+v", rec)
		}
		if err == nil { // a socket tells of its reset once, and a slow machine may write after it
			wantReset(t, a)
		}
		wantReset(t, b)
	})
	// The hook holds the flow up until the upstream has said what it has to say.
	after := func(t *testing.T, say func(b net.Conn)) (r *rig, a, b net.Conn) {
		r = newRig(t, Config{})
		said := make(chan bool)
		a, b = r.flow("tcp4", "tcp4", ListenConfig{Timeouts: Timeouts{FirstByte: first}, Hooks: Hooks{Connected: func(*Flow, *Addr, time.Duration, error) { <-said }}})
		say(b)
		close(said)
		return r, a, b
	}
	t.Run("in time", func(t *testing.T) {
		r, a, b := after(t, func(b net.Conn) { io.WriteString(b, "hello") })
		hear(t, a, "hello")
		r.pass(2 * first)
		say(t, a, b, "still here")
		a.Close()
		b.Close()
		if rec := r.expect(CauseEnd); rec.FirstByte <= 0 || rec.FirstByte > rec.Duration {
			t.Errorf("%+v", rec)
		}
	})
	t.Run("half-closed", func(t *testing.T) {
		r, a, b := after(t, func(b net.Conn) { closeWrite(t, b) })
		wantEnd(t, a)
		r.pass(2 * first)
		say(t, a, b, "all of it")
		a.Close()
		r.expect(CauseEnd)
	})
	t.Run("echo", func(t *testing.T) {
		r := newRig(t, Config{})
		a := dial(t, r.listen("tcp4", ListenConfig{Timeouts: Timeouts{FirstByte: time.Millisecond}}, &Addr{Network: Echo}))
		r.pass(first)
		say(t, a, a, "hello")
		a.Close()
		r.expect(CauseEnd)
	})
	t.Run("pair", func(t *testing.T) {
		r := newRig(t, Config{})
		r.adopted("tcp4", "tcp4", PairConfig{Timeouts: Timeouts{FirstByte: first}})
		r.expect(CauseFirstByte)
	})
}

// Hooks change the timeouts of their flow.
func TestSetTimeouts(t *testing.T) {
	const soon = 100 * time.Millisecond
	set := func(want, to Timeouts) func(*testing.T, *Flow) {
		return func(t *testing.T, f *Flow) {
			if f.Timeouts() != want {
				t.Errorf("timeouts %+v, want %+v", f.Timeouts(), want)
			}
			f.SetTimeouts(to)
		}
	}
	late := Timeouts{Idle: time.Hour}
	for name, stage := range map[string]struct{ admit, sniff, upstream, connected func(*testing.T, *Flow) }{
		"admit":     {admit: set(late, Timeouts{Idle: soon})},
		"sniff":     {sniff: set(late, Timeouts{Idle: soon})},
		"upstream":  {upstream: set(late, Timeouts{Idle: soon})},
		"connected": {connected: set(late, Timeouts{Idle: soon})},
		"twice":     {admit: set(late, Timeouts{Life: time.Hour}), connected: set(Timeouts{Life: time.Hour}, Timeouts{Idle: soon})},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			do := func(what func(*testing.T, *Flow), f *Flow) {
				if what != nil {
					what(t, f)
				}
			}
			s := newServer(t, "tcp4")
			a := dial(t, r.listen("tcp4", ListenConfig{Timeouts: late, Hooks: Hooks{
				Admit: func(f *Flow) Cause { f.StartSniff(100, time.Minute); do(stage.admit, f); return CauseNone },
				Sniff: func(f *Flow, b []byte, _ bool) (int, SniffNext) { do(stage.sniff, f); return 0, SniffDone },
				Upstream: func(f *Flow, _ int) *Addr {
					do(stage.upstream, f)
					return s.addr
				},
				Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) { do(stage.connected, f) },
			}}))
			a.Write([]byte("hello"))
			hear(t, s.accept(t), "hello")
			r.expect(CauseIdle)
		})
	}
}

// Idle and Life are a datagram flow's.
func TestDatagramTimeouts(t *testing.T) {
	for cause, to := range map[Cause]Timeouts{CauseIdle: {Idle: 100 * time.Millisecond}, CauseLife: {Idle: -1, Life: 150 * time.Millisecond}} {
		t.Run(cause.String(), func(t *testing.T) {
			r := newDatagramRig(t, Config{})
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Timeouts: Timeouts{Idle: time.Hour}, Hooks: Hooks{Admit: func(f *Flow) Cause {
				f.SetTimeouts(to)
				if f.Timeouts() != to {
					t.Errorf("timeouts %+v", f.Timeouts())
				}
				f.Preface([]byte("which means nothing here"))
				f.Ref().Resume()
				return CauseNone
			}}}, gramEcho(t, "udp4"))
			tellGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
			if rec := r.expect(cause); rec.Duration < 100*time.Millisecond {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A datagram flow cannot be queued.
func TestDatagramQueue(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: Hooks{Upstream: func(f *Flow, _ int) *Addr {
		if err := f.Queue(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Queue: %v", err)
		}
		return nil
	}}})
	tellGram(t, packetSocket(t, "udp4"), l.Addr(), "hello")
	r.expect(CauseNoUpstream)
}

// A flow that is restored may have carried something before the loop's clock began, as far as its record says.
func TestDeadlineBeforeTheClock(t *testing.T) {
	for _, since := range []time.Duration{-time.Second, 0, time.Second} {
		d := noDeadline
		if d.sooner(since, time.Minute, CauseIdle); d.at != since+time.Minute || d.cause != CauseIdle {
			t.Errorf("since %v: %+v", since, d)
		}
		d = noDeadline
		if d.sooner(since, never, CauseIdle); since > 0 && d.cause != CauseNone {
			t.Errorf("since %v, for ever: %+v", since, d)
		}
	}
}
