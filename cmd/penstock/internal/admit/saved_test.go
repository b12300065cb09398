package admit

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

func limited() *spec.Listener {
	return &spec.Listener{Name: "l", Limits: spec.Limits{
		Flows: 3, NewFlows: 1, Burst: 5, Source: spec.SourceLimits{Flows: 2, NewFlows: 0.1, Burst: 2},
	}}
}

// A restart gives nobody new tokens, and flows that go on count where they did.
func TestLimitsGoOn(t *testing.T) {
	now := time.Now()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	total := NewTotal(spec.Limits{NewFlows: 1, Burst: 4}, nil)
	g := NewController(total, limited(), nil, nil)
	var flows []Admission
	for _, peer := range []netip.Addr{a, a, b} {
		f, why := g.Admit(peer, now)
		if why != spec.ReasonNone {
			t.Fatal(why)
		}
		flows = append(flows, f)
	}
	flows[1].Release()
	text, _ := json.Marshal([2]SavedLimits{total.Save(now), g.Save(now, 1<<16)})
	var saved [2]SavedLimits
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}

	total = NewTotal(spec.Limits{NewFlows: 1, Burst: 4}, nil)
	g = NewController(total, limited(), nil, nil)
	total.RestoreLimits(saved[0], now)
	g.RestoreLimits(saved[1], now)
	var again []Admission
	for _, f := range []Admission{flows[0], flows[2]} {
		source, flags := f.State()
		again = append(again, g.Restore(source, flags))
	}
	if g.Flows() != 2 || total.Flows() != 2 || g.Sources() != 2 {
		t.Errorf("%d, %d flows, %d sources", g.Flows(), total.Flows(), g.Sources())
	}
	if _, why := g.Admit(a, now); why != spec.ReasonSourceRate {
		t.Errorf("a source whose bucket was empty: %v", why)
	}
	third, why := g.Admit(b, now) // the last token of the total
	if why != spec.ReasonNone {
		t.Error(why)
	}
	if _, why := g.Admit(netip.Addr{}, now); why != spec.ReasonListenerFlows {
		t.Errorf("a fourth flow: %v", why)
	}
	again[0].Release()
	if _, why := g.Admit(netip.Addr{}, now); why != spec.ReasonRate {
		t.Errorf("without a token: %v", why)
	}
	again[1].Release()
	third.Release()
	if g.Flows() != 0 || total.Flows() != 0 {
		t.Errorf("%d, %d flows at the end", g.Flows(), total.Flows())
	}
	if _, why := g.Admit(a, now.Add(30*time.Second)); why != spec.ReasonNone {
		t.Errorf("after some time: %v", why)
	}
}

// A flow that waits for its PROXY header goes on waiting for it, and has no source yet.
func TestRestoreExpectsProxy(t *testing.T) {
	l := limited()
	l.ProxyFrom = []spec.Network{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}
	g := NewController(NewTotal(spec.Limits{}, nil), l, nil, nil)
	f, _ := g.Admit(netip.MustParseAddr("192.0.2.1"), time.Now())
	g2 := NewController(NewTotal(spec.Limits{}, nil), l, nil, nil)
	again := g2.Restore(f.State())
	if !again.ExpectsProxy() || g2.Sources() != 0 || g2.Flows() != 1 {
		t.Errorf("%+v", again)
	}
	if why := g2.Identify(&again, netip.MustParseAddr("198.51.100.1"), time.Now()); why != spec.ReasonNone || g2.Sources() != 1 {
		t.Error(why)
	}
	again.Release()
}

// Damaged buckets do no harm: no source is locked out for long, and the table stays bounded.
func FuzzRestoreBuckets(f *testing.F) {
	now := time.Now()
	tb := newSourceTable(6400)
	tb.enter(1, newSourceLimit(spec.SourceLimits{NewFlows: 1, Burst: 3}), now)
	f.Add(tb.save(now, 6400))
	f.Add([]byte("0123456789abcdef0123456789abcdef0"))
	f.Fuzz(func(t *testing.T, saved []byte) {
		now := time.Now()
		tb := newSourceTable(640)
		limit := newSourceLimit(spec.SourceLimits{NewFlows: 1, Burst: 3})
		tb.restoreBuckets(saved, limit, now)
		if n := tb.len(); n > 640 || n > len(saved)/16 {
			t.Fatalf("%d sources", n)
		}
		for i := range tb.shards {
			for key := range tb.shards[i].sources {
				if why := tb.enter(key, limit, now.Add(4*time.Second)); why != spec.ReasonNone {
					t.Fatal(why)
				}
				return
			}
		}
	})
}
