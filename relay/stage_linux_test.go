package relay

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A configuration that makes no sense is refused by name.
func TestSenselessConfig(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("an int cannot be too large for the kernel here")
	}
	tooMuch := strconv.Itoa(math.MaxInt)
	for name, c := range map[string]Config{
		"Config.Loops is -1":                {Loops: -1},
		"Config.Loops is 257":               {Loops: 257},
		"Config.PipeSize is -1":             {PipeSize: -1},
		"Config.MaxPipes is 262145":         {MaxPipes: 1<<18 + 1},
		"Config.MaxPipes is " + tooMuch:     {MaxPipes: math.MaxInt},
		"Config.MaxDatagramFlows is -1":     {MaxDatagramFlows: -1},
		"Config.LowWaterMark is " + tooMuch: {LowWaterMark: math.MaxInt},
	} {
		e, err := New(c)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
		if err == nil {
			e.Close()
		}
	}
	r := newRig(t, Config{Loops: 1, MaxPipes: -1, LowWaterMark: -1, MaxNewDatagramFlows: -1})
	up := Hooks{Upstream: func(*Flow, int) *Addr { return nil }}
	for name, c := range map[string]ListenConfig{
		"Hooks.Upstream is nil":         {},
		"Backlog is -1":                 {Hooks: up, Backlog: -1},
		"Mode is 512":                   {Hooks: up, Mode: 0o1000},
		"Replies is -1":                 {Hooks: up, Datagram: DatagramConfig{Replies: -1}},
		"OnUnreachable is 3":            {Hooks: up, Datagram: DatagramConfig{OnUnreachable: 3}},
		"DSCP is 64":                    {Hooks: up, Socket: SocketOptions{DSCP: 64}},
		"FastOpen is -1":                {Hooks: up, Socket: SocketOptions{FastOpen: -1}},
		"KeepAlive is -1":               {Hooks: up, Socket: SocketOptions{KeepAlive: -1}},
		"KeepAliveCount is -1":          {Hooks: up, Socket: SocketOptions{KeepAliveCount: -1}},
		"KeepAlive is 9223372036854775": {Hooks: up, Socket: SocketOptions{KeepAlive: math.MaxInt64}},
		"UserTimeout is 92233720368":    {Hooks: up, Socket: SocketOptions{UserTimeout: math.MaxInt64}},
		"RecvBuffer is " + tooMuch:      {Hooks: up, Socket: SocketOptions{RecvBuffer: math.MaxInt}},
		"SendBuffer is -1":              {Hooks: up, Dial: &DialConfig{Socket: SocketOptions{SendBuffer: -1}}},
		"DialConfig.Source":             {Hooks: up, Dial: &DialConfig{Source: []netip.Addr{{}}}},
	} {
		if _, err := r.e.Listen(r.place("tcp4"), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// Methods of Flow that have no effect in a hook say so there.
func TestStages(t *testing.T) {
	want := func(hook string, f *Flow, sniff, queue, preface, dial, bandwidth error) {
		t.Helper()
		for _, c := range []struct {
			method    string
			got, want error
		}{
			{"StartSniff", f.StartSniff(10, 0), sniff},
			{"Queue", f.Queue(), queue},
			{"Preface", f.Preface([]byte("before ")), preface},
			{"SetDial", f.SetDial(nil), dial},
			{"SetBandwidth", f.SetBandwidth(1 << 30), bandwidth},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%s in %s: %v, want %v", c.method, hook, c.got, c.want)
			}
		}
	}
	r := newRig(t, Config{Loops: 1})
	bad := Addr{Network: Unix, Path: "/nowhere/at/all"}
	s := newServer(t, "tcp4")
	hooks := Hooks{
		Admit: func(f *Flow) Cause {
			want("Admit", f, nil, ErrStage, ErrStage, nil, nil)
			if err := f.StartSniff(0, 0); err == nil {
				t.Error("StartSniff of no bytes")
			}
			return CauseNone
		},
		Sniff: func(f *Flow, _ []byte, _ bool) (int, SniffNext) {
			want("Sniff", f, nil, ErrStage, ErrStage, nil, nil)
			return 0, SniffDone
		},
		Upstream: func(f *Flow, attempt int) *Addr {
			want("Upstream", f, ErrStage, nil, ErrStage, nil, nil)
			return []*Addr{&bad, s.addr}[attempt]
		},
		Connected: func(f *Flow, _ *Addr, _ time.Duration, err error) {
			if err != nil {
				want("Connected", f, ErrStage, ErrStage, ErrStage, nil, nil)
				return
			}
			want("Connected", f, ErrStage, ErrStage, nil, ErrStage, nil)
		},
	}
	a := dial(t, r.listen("tcp4", ListenConfig{Hooks: hooks}))
	a.Write([]byte("hello"))
	b := s.accept(t)
	hear(t, b, "before hello")
	r.e.onLoops(func(f *Flow) {
		want("no hook", f, ErrStage, ErrStage, ErrStage, ErrStage, ErrStage)
	})
	a.Close()
	b.Close()
	r.expect(CauseEnd)

	hooks.Sniff, hooks.Upstream = nil, func(*Flow, int) *Addr { return nil }
	hooks.Admit = func(f *Flow) Cause {
		if err := f.StartSniff(10, 0); err == nil || errors.Is(err, ErrStage) {
			t.Errorf("StartSniff without the hook: %v", err)
		}
		return CauseRefused
	}
	wantTurnedAway(t, r.listen("tcp4", ListenConfig{Hooks: hooks}))
	r.expect(CauseRefused)

	hooks.Sniff = func(*Flow, []byte, bool) (int, SniffNext) { return 0, SniffRefuse }
	hooks.Admit = func(f *Flow) Cause {
		want("Admit of a datagram flow", f, nil, errors.ErrUnsupported, ErrStage, nil, nil)
		return CauseRefused
	}
	hooks.Done = r.done
	l, err := r.e.Listen(Addr{Network: UDP, AddrPort: loopback}, ListenConfig{Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(l.Addr().AddrPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write(nil)
	r.expect(CauseRefused)
}
