package relay

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testwait"
)

// TestEvictKeeps: a flow for which a place is wanted does not give up its own, whichever list it is on.
func TestEvictKeeps(t *testing.T) {
	undecided := Hooks{Admit: func(f *Flow) Cause {
		f.StartSniff(100, time.Minute)
		return CauseNone
	}, Sniff: func(*Flow, []byte, bool) (int, SniffNext) { return 0, SniffMore }}
	for _, c := range []struct {
		list  string
		hooks Hooks
		mute  bool
		asks  int
		of    func(d *datagrams) *ages
	}{
		{list: "undecided", hooks: undecided, mute: true, of: func(d *datagrams) *ages { return &d.undecided }},
		{list: "silent", mute: true, of: func(d *datagrams) *ages { return &d.silent }},
		{list: "answered", asks: 1, of: func(d *datagrams) *ages { return &d.answered }},
		{list: "verified", asks: 2, of: func(d *datagrams) *ages { return &d.verified }},
	} {
		t.Run(c.list, func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1})
			r.e.datagrams.inUse = 0
			to := silent(t)
			if !c.mute {
				to = gramEcho(t, "udp4")
			}
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Hooks: c.hooks}, to)
			client := packetSocket(t, "udp4")
			if c.mute {
				tellGram(t, client, l.Addr(), "nobody answers")
				testwait.Until(t, "it is read", func() bool { return r.dgramStats().Received == 1 })
			}
			for range c.asks {
				askGram(t, client, l.Addr(), "again")
			}
			r.e.onLoops(func(fl *Flow) {
				d := fl.owner.(*datagrams)
				f := d.of(fl)
				if n := c.of(d).n; n != 1 {
					t.Errorf("%d flows are on the list", n)
				}
				f.active = d.loop.Now - time.Hour // as if it had been silent for so long
				if d.evict(f) || d.evictOldest(c.of(d), f) {
					t.Error("a flow has made room for itself")
				} else if !d.evict(nil) {
					t.Error("it does not make room for others")
				}
			})
			r.expect(CauseEvicted)
		})
	}
}
