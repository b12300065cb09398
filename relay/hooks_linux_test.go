package relay

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testnet"
)

// The hooks of a flow come in order, see one flow, and see what it is.
func TestHooks(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	up, bad := echoServer(t, "unix"), refusing(t)
	var steps []string
	var ids []uint64
	var client, local Addr
	step := func(f *Flow, format string, args ...any) {
		steps = append(steps, fmt.Sprintf(format, args...))
		ids = append(ids, f.ID())
		if f.Listener().Value() != "the listener's" {
			t.Errorf("listener's value %v", f.Listener().Value())
		}
	}
	cfg := ListenConfig{Value: "the listener's", Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			client, local = f.Client(), f.Local()
			f.SetValue("the flow's")
			step(f, "admit")
			return CauseNone
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			step(f, "upstream %d %v", attempt, f.Value())
			return []*Addr{bad, up}[attempt]
		},
		Connected: func(f *Flow, to *Addr, took time.Duration, err error) {
			step(f, "connected %v %v", to.Network, err != nil)
			if took < 0 || took > patience {
				t.Errorf("it took %v", took)
			}
		},
		Done: func(rec *Record) {
			steps = append(steps, "done")
			ids = append(ids, rec.ID)
			if rec.Value != "the flow's" || rec.Listener.Value() != "the listener's" {
				t.Errorf("%+v", rec)
			}
			r.done(rec)
		},
	}}
	before := time.Now()
	l := r.listen("tcp4", cfg)
	a := dial(t, l)
	say(t, a, a, "hello")
	a.Close()
	rec := r.expect(CauseEnd)
	want := fmt.Sprintf("admit, upstream 0 the flow's, connected %v true, upstream 1 the flow's, connected %v false, done", TCP, Unix)
	if got := strings.Join(steps, ", "); got != want {
		t.Errorf("steps: %s\nwant:  %s", got, want)
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("IDs %v", ids)
		}
	}
	if me := fromNet(a.LocalAddr()); client != *me || rec.Client != *me {
		t.Errorf("client %v, record %v, want %v", client, rec.Client, me)
	}
	if local != l.Addr() {
		t.Errorf("local %v, want %v", local, l.Addr())
	}
	if rec.Start.Before(before) || rec.Start.After(time.Now()) || rec.Duration <= 0 {
		t.Errorf("start %v, duration %v", rec.Start, rec.Duration)
	}
}

// A refused client sees a reset, asks for no upstream, and has its record.
func TestAdmitRefuses(t *testing.T) {
	for _, client := range []string{"tcp4", "unix"} {
		t.Run("client="+client, func(t *testing.T) {
			r := newRig(t, Config{})
			l := r.listen(client, ListenConfig{Hooks: Hooks{
				Admit:    func(*Flow) Cause { return CauseRefused },
				Upstream: func(*Flow, int) *Addr { t.Error("an upstream is asked for"); return nil },
			}})
			for range 5 {
				wantTurnedAway(t, l)
				if rec := r.expect(CauseRefused); rec.Attempts != 0 || rec.Up.Read != 0 {
					t.Errorf("%+v", rec)
				}
			}
		})
	}
}

func TestUpstreamIsRequired(t *testing.T) {
	r := newRig(t, Config{})
	if _, err := r.e.Listen(r.place("tcp4"), ListenConfig{}); err == nil {
		t.Error("a listener without an upstream hook")
	}
}

// options are read by the hook, on the loop that owns the sockets.
type options map[sys.Option]int

func optionsOf(t *testing.T, fd int32) options {
	m := make(options)
	for _, o := range []sys.Option{sys.NoDelay, sys.KeepAlive, sys.KeepAliveIdle, sys.KeepAliveInterval, sys.KeepAliveCount, sys.UserTimeout, sys.ReceiveBuffer, sys.SendBuffer} {
		v, e := o.Get(sys.Linux{}, int(fd))
		if e != 0 {
			t.Error(e)
		}
		m[o] = v
	}
	return m
}

// Socket options reach both sides: the client's by inheritance from the
// listener, the upstream's before it connects.
func TestSocketOptions(t *testing.T) {
	set := SocketOptions{KeepAlive: 33 * time.Second, KeepAliveInterval: 7 * time.Second, KeepAliveCount: 4, UserTimeout: 12345 * time.Millisecond,
		RecvBuffer: 50_000, SendBuffer: 60_000}
	want := options{sys.NoDelay: 1, sys.KeepAlive: 1, sys.KeepAliveIdle: 33, sys.KeepAliveInterval: 7, sys.KeepAliveCount: 4, sys.UserTimeout: 12345,
		sys.ReceiveBuffer: 100_000, sys.SendBuffer: 120_000} // socket(7): twice what was asked for
	read := func(t *testing.T, how SocketOptions, serve bool) (sides [2]options) {
		r := newRig(t, Config{})
		up := echoServer(t, "tcp4")
		var mu sync.Mutex
		cfg := ListenConfig{Socket: how, Hooks: Hooks{
			Upstream: func(*Flow, int) *Addr { return up },
			Connected: func(f *Flow, _ *Addr, _ time.Duration, _ error) {
				mu.Lock()
				defer mu.Unlock()
				sides = [2]options{optionsOf(t, streamOf(f).fd[sideClient]), optionsOf(t, streamOf(f).fd[sideUpstream])}
			},
			Done: r.done,
		}}
		var l *Listener
		if serve {
			// A listener of multipath TCP, which is Go's default, does not
			// take all of the options.
			var plain net.ListenConfig
			plain.SetMultipathTCP(false)
			in, err := plain.Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if l, err = r.e.ListenOn(in, cfg); err != nil {
				t.Fatal(err)
			}
		} else {
			l = r.listen("tcp4", cfg)
		}
		a := dial(t, l)
		say(t, a, a, "hello")
		a.Close()
		r.expect(CauseEnd)
		mu.Lock()
		defer mu.Unlock()
		return sides
	}
	for _, serve := range []bool{false, true} {
		t.Run(fmt.Sprintf("inherited=%v", serve), func(t *testing.T) {
			for side, got := range read(t, set, serve) {
				for o, v := range want {
					if got[o] != v {
						t.Errorf("side %d, option %v: %d, want %d", side, o, got[o], v)
					}
				}
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		for side, got := range read(t, SocketOptions{}, false) {
			if got[sys.NoDelay] != 1 || got[sys.KeepAlive] != 0 || got[sys.UserTimeout] != 0 {
				t.Errorf("side %d: %v", side, got)
			}
		}
	})
	t.Run("delay", func(t *testing.T) {
		for side, got := range read(t, SocketOptions{Nagle: true}, false) {
			if got[sys.NoDelay] != 0 {
				t.Errorf("side %d: %v", side, got)
			}
		}
	})
}

// Every flow has exactly one record, whatever happens to it. The cleanup of
// the rig compares IDs, causes and bytes.
func TestOneRecordEach(t *testing.T) {
	r := newRig(t, Config{})
	up, bad := echoServer(t, "tcp4"), refusing(t)
	var mu sync.Mutex
	n := 0
	l := r.listen("tcp4", ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%5 == 0 {
				return CauseRefused
			}
			f.SetValue(n)
			return CauseNone
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			switch {
			case attempt > 1 || attempt == 1 && f.Value().(int)%5 != 2:
				return nil
			case f.Value().(int)%5 < 3 && attempt == 0:
				return bad
			}
			return up
		},
	}})
	const flows = 300
	var wg sync.WaitGroup
	for i := range flows {
		c, err := net.Dial("tcp4", l.Addr().AddrPort.String())
		if err != nil {
			continue // refused so fast that dialing saw it
		}
		wg.Go(func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience))
			c.Write(make([]byte, 1+i*100))
			switch i % 3 {
			case 0:
				c.(*net.TCPConn).SetLinger(0)
			case 1:
				c.(*net.TCPConn).CloseWrite()
				readToEnd(t, c)
			}
		})
	}
	wg.Wait()
	for range flows {
		r.record()
	}
	t.Log(causesOf(r.all))
	select {
	case rec := <-r.records:
		t.Errorf("one record too many: %+v", rec)
	case <-time.After(20 * time.Millisecond):
	}
}

// Echo and discard are upstreams inside.
func TestBuiltins(t *testing.T) {
	for _, client := range []string{"tcp4", "unix"} {
		t.Run("client="+client, func(t *testing.T) {
			r := newRig(t, Config{})
			const n = 5<<20 + 1
			a := dial(t, r.listen(client, ListenConfig{}, &Addr{Network: Echo}))
			if rep := testnet.Play(a, testnet.Script{Send: n, SendSeed: 1, Recv: n, RecvSeed: 1}); rep.Err != "" {
				t.Error(rep.Err)
			}
			rec := r.expect(CauseEnd)
			if rec.Up.Read != n || rec.Up.Written != n || rec.Down.Read != n || rec.Down.Written != n || rec.Upstream.Network != Echo || rec.Connect <= 0 || rec.FirstByte <= 0 {
				t.Errorf("%+v", rec)
			}
			a = dial(t, r.listen(client, ListenConfig{}, refusing(t), &Addr{Network: Discard}))
			if rep := testnet.Play(a, testnet.Script{Send: n, SendSeed: 1}); rep.Err != "" {
				t.Error(rep.Err)
			}
			rec = r.expect(CauseEnd)
			if rec.Up.Read != n || rec.Up.BytesDropped() != 0 || rec.Down.Written != 0 || rec.Upstream.Network != Discard {
				t.Errorf("%+v", rec)
			}
		})
	}
}
