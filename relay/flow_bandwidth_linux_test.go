package relay

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// limited is a listener whose flows have a bandwidth.
func limited(bandwidth int64) ListenConfig {
	return ListenConfig{Hooks: Hooks{Admit: func(f *Flow) Cause { f.SetBandwidth(bandwidth); return CauseNone }}}
}

// Each direction moves at most its bandwidth and one burst, and all of it comes.
// Only what is too much is wrong: how little a busy machine moves says nothing.
func TestBandwidth(t *testing.T) {
	for _, c := range []struct {
		rate  int64
		bytes int
	}{{200_000, 50_000}, {8 << 20, 2 << 20}} {
		eachPair(t, Config{}, limited(c.rate), func(t *testing.T, r *rig, a, b net.Conn) {
			burst := max(c.rate/10, paceLeast)
			var wg sync.WaitGroup
			start := time.Now()
			for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
				wg.Go(func() {
					for off := 0; off < c.bytes; off += testnet.MaxChunk {
						ends[0].Write(testnet.NewPattern(3).At(int64(off), min(c.bytes-off, testnet.MaxChunk)))
					}
					closeWrite(t, ends[0])
				})
				wg.Go(func() {
					got := 0
					buf := make([]byte, 32<<10)
					pattern := testnet.NewPattern(3)
					for {
						n, err := ends[1].Read(buf)
						if e := pattern.Check(int64(got), buf[:n]); e != nil {
							t.Error(e)
						}
						got += n
						took := time.Since(start) // no sooner than the bytes were let go
						if most := burst + int64(float64(c.rate)*took.Seconds()); int64(got) > most {
							t.Errorf("%d bytes in %v, at most %d are allowed", got, took, most)
							return
						}
						if err == io.EOF && got == c.bytes {
							return
						}
						if err != nil {
							t.Errorf("%d bytes of %d, %v", got, c.bytes, err)
							return
						}
					}
				})
			}
			wg.Wait()
			a.Close()
			b.Close()
			r.expect(CauseEnd)
		})
	}
}

// A flow that rests for want of its share does not spin, and is not idle.
func TestBandwidthRests(t *testing.T) {
	r := newRig(t, Config{Loops: 1})
	r.k.StopClock()
	cfg := limited(200)
	cfg.Timeouts.Idle = 5 * time.Second
	a, b := r.flow("tcp4", "tcp4", cfg)
	go a.Write(make([]byte, 8<<20))
	hear(t, b, string(make([]byte, paceLeast)))
	before := r.e.Stats()
	const rest = 6 * time.Second
	r.pass(rest)
	after := r.e.Stats()
	// Each tick costs a turn, for the request that passes it.
	if n := after.Total().Waits - before.Total().Waits; n > 3*int64(rest/tick) {
		t.Errorf("%d waits in %v", n, rest)
	}
	hear(t, b, "\x00") // the flow is alive
	reset(t, a)
	r.expect(CauseClientReset)
	readToEnd(t, b)
}

// What was sniffed counts for the bandwidth, and built-in upstreams have one.
func TestBandwidthOfBuiltins(t *testing.T) {
	for _, network := range []Network{Echo, Discard} {
		r := newRig(t, Config{})
		pre := &preamble{max: 8000, timeout: time.Minute}
		h := pre.hooks()
		h.Admit = func(f *Flow) Cause {
			f.SetBandwidth(500_000)
			return pre.admit(f)
		}
		a := dial(t, r.listen("tcp4", ListenConfig{Hooks: h}, &Addr{Network: network}))
		start := time.Now()
		const n = 120_000
		go func() {
			io.WriteString(a, "a line\n"+greeting)
			a.Write(make([]byte, n))
			closeWrite(t, a)
		}()
		got, err := readToEnd(t, a)
		took := time.Since(start)
		if err != nil || network == Echo && got != n+int64(len(greeting)) {
			t.Errorf("%v: %d bytes, %v", network, got, err)
		}
		if least := time.Duration(n-50_000) * time.Second / 500_000; took < least {
			t.Errorf("%v: it took %v, at least %v are needed", network, took, least)
		}
		r.expect(CauseEnd)
	}
}

// What was sniffed is part of the first burst, and no gift besides it.
func TestBandwidthCountsWhatIsHeld(t *testing.T) {
	const rate, sniffed = 100, 12_000
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	a := dial(t, r.listen("tcp4", ListenConfig{Hooks: Hooks{
		Admit: func(f *Flow) Cause {
			f.SetBandwidth(rate)
			f.StartSniff(sniffed, time.Minute)
			return CauseNone
		},
		Sniff: func(_ *Flow, b []byte, last bool) (int, SniffNext) {
			if last {
				return 0, SniffDone
			}
			return 0, SniffMore
		},
	}}, s.addr))
	start := time.Now()
	go a.Write(make([]byte, sniffed+2*paceLeast))
	b := s.accept(t)
	got := 0
	buf := make([]byte, 64<<10)
	for got < paceLeast+5 { // a little after the burst
		n, err := b.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		if most := paceLeast + int(rate*time.Since(start).Seconds()) + 1; got > most {
			t.Fatalf("%d bytes, at most %d are allowed", got, most)
		}
	}
	reset(t, a)
	r.expect(CauseClientReset)
}

// A bandwidth of zero or less means no bound, and leaves nothing behind.
func TestNoBandwidth(t *testing.T) {
	for _, rate := range []int64{0, -5} {
		r := newRig(t, Config{})
		a, b := r.flow("tcp4", "tcp4", limited(rate))
		const n = 4 << 20
		play(t, a, b, testnet.Script{Send: n, SendSeed: 1, Recv: n, RecvSeed: 2}, testnet.Script{Send: n, SendSeed: 2, Recv: n, RecvSeed: 1})
		if x := r.e.streams.early.Stats(); x.Gets != x.Puts {
			t.Errorf("%+v", x)
		}
		r.expect(CauseEnd)
	}
}

// A datagram flow drops what exceeds its bandwidth, in either direction.
func TestDatagramBandwidth(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), limited(1000), &up)
	c := packetSocket(t, "udp4")
	tellGram(t, c, l.Addr(), "hello")
	back := gramAddr(hearGram(t, s, "hello"))
	dropped := func() int64 { return r.dgramStats().Dropped.Get(stats.DropLimited) }
	text := string(make([]byte, 1000))
	for to, from := range map[Addr]net.PacketConn{l.Addr(): c, back: s} {
		before := dropped()
		testwait.Until(t, "the share is used up", func() bool { tellGram(t, from, to, text); return dropped() > before })
	}
}
