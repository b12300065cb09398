package relay

import (
	"math"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// Until a client has sent something after the first reply, it gets at most so many times what came from it;
// then it gets all.
func TestAmplification(t *testing.T) {
	for _, network := range grams {
		t.Run(network, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			s := packetSocket(t, network)
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(gramPlace(t, network), ListenConfig{Datagram: DatagramConfig{Amplification: 3}}, &up)
			c := packetSocket(t, network)
			reply := func(back Addr, n int) string {
				text := strings.Repeat("r", n)
				tellGram(t, s, back, text)
				return text
			}
			dropped := func(n int64) {
				t.Helper()
				testwait.Until(t, "what is too much is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropAmplification) == n })
			}
			tellGram(t, c, l.Addr(), strings.Repeat("q", 100))
			back := gramAddr(hearGram(t, s, strings.Repeat("q", 100)))
			reply(back, 301)
			dropped(1)
			hearGram(t, c, reply(back, 200))
			hearGram(t, c, reply(back, 100)) // 300 are allowed
			reply(back, 1)
			dropped(2)
			tellGram(t, c, l.Addr(), "a")
			hearGram(t, s, "a")
			hearGram(t, c, reply(back, 1000))
		})
	}
}

// Datagrams that a client sends before any reply, as whoever forges its address would, only count as bytes.
func TestAmplificationOfBlindDatagrams(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Amplification: 2}}, &up)
	c := packetSocket(t, "udp4")
	var back Addr
	for range 3 {
		tellGram(t, c, l.Addr(), "0123456789")
		back = gramAddr(hearGram(t, s, "0123456789"))
	}
	tellGram(t, s, back, strings.Repeat("r", 61))
	testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropAmplification) == 1 })
	tellGram(t, s, back, strings.Repeat("r", 60))
	hearGram(t, c, strings.Repeat("r", 60))
}

// Of replies that come together, as many as are allowed are sent.
func TestAmplificationFit(t *testing.T) {
	f := &datagramFlow{}
	f.cfg = &ListenConfig{Datagram: DatagramConfig{Amplification: 3}}
	f.moved[up].read = 100
	for _, c := range []struct{ n, seg, want int }{{120, 50, 120}, {200, 60, 180}, {1, 0, 0}, {10, 5, 0}} {
		if got := f.amplificationFit(c.n, c.seg); got != c.want {
			t.Errorf("of %d bytes in datagrams of %d: %d, want %d", c.n, c.seg, got, c.want)
		}
	}
	f.verified = true
	if got := f.amplificationFit(1<<16, 0); got != 1<<16 {
		t.Errorf("of a verified client: %d", got)
	}
	f.cfg.Datagram.AmplificationAlways = true
	for _, c := range []struct{ read, returned, n, want int64 }{
		{1000, 2900, 100, 100}, {1000, 2901, 100, 0}, {1 << 40, 3 << 40, 1, 0}, {1 << 40, 3<<40 - 1, 1, 1}, {math.MaxInt64 / 2, math.MaxInt64 - 10, 10, 10},
	} {
		f.moved[up].read, f.returned = c.read, c.returned
		if got := f.amplificationFit(int(c.n), 0); got != int(c.want) || f.returned != c.returned+c.want {
			t.Errorf("of %d bytes after %d for %d: %d, then %d", c.n, c.returned, c.read, got, f.returned)
		}
	}
}

// With AmplificationAlways, who sends blindly again and again does not get around the limit.
func TestAmplificationAlways(t *testing.T) {
	r := newDatagramRig(t, Config{Loops: 1})
	s := packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{Amplification: 3, AmplificationAlways: true}}, &up)
	c := packetSocket(t, "udp4")
	for i := range int64(10) {
		tellGram(t, c, l.Addr(), strings.Repeat("q", 40))
		back := gramAddr(hearGram(t, s, strings.Repeat("q", 40)))
		tellGram(t, s, back, strings.Repeat("r", 121-int(i%2))) // of two datagrams for 80 bytes, one fits
		if i%2 == 0 {
			testwait.Until(t, "it is dropped", func() bool { return r.dgramStats().Dropped.Get(stats.DropAmplification) == i/2+1 })
		} else {
			hearGram(t, c, strings.Repeat("r", 120))
			tellGram(t, s, back, strings.Repeat("r", 120))
			hearGram(t, c, strings.Repeat("r", 120))
		}
	}
}
