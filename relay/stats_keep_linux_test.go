package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// The counters go on in the next process, whatever the number of its loops, and agree with each other:
// what was lost is counted as that.
func TestStatsOutliveProcess(t *testing.T) {
	k := newKeptTable(t)
	u := newSealedUpstream(t, "udp4")
	upstream := echoServer(t, "tcp4")
	tcp, udp := keptPlace(t, "tcp4"), keptPlace(t, "udp4")
	o := keptOrder{Loops: 3, Listen: []string{tcp}, Upstream: upstream.String()}
	p := k.start(o)
	tcp = p.urls()[0]
	var before stats.Loop
	check := func(p *keptProcess, flows int64) {
		t.Helper()
		s := p.ask("stats").Stats
		now := s.Total()
		if now.Accepted < before.Accepted || now.BytesRead < before.BytesRead || now.BytesWritten < before.BytesWritten || now.Connects < before.Connects ||
			now.Waits < before.Waits || now.Datagrams.Received < before.Datagrams.Received || now.Datagrams.Begun < before.Datagrams.Begun {
			t.Errorf("counters went back: %+v, before %+v", now, before)
		}
		var ended int64
		for _, n := range now.Ended {
			ended += n
		}
		if now.Flows != flows || now.Accepted != ended+flows {
			t.Errorf("%d accepted, %d ended, %d open, want %d", now.Accepted, ended, now.Flows, flows)
		}
		if now.BytesRead != now.BytesWritten+now.BytesDropped {
			t.Errorf("%d bytes read, %d written, %d dropped", now.BytesRead, now.BytesWritten, now.BytesDropped)
		}
		d := &now.Datagrams
		if lost := d.Received - d.Sent - d.Dropped.Total(); lost != 0 {
			t.Errorf("%d datagrams are missing: %+v", lost, d)
		}
		before = now
	}
	for i := range 10 {
		c := testnet.Dial(t, toNet(p.addrs[0]))
		say(t, c, c, "text")
		if i < 5 {
			c.Close()
		}
	}
	k.expect(holdFlow, 5)
	testwait.Until(t, "five have ended", func() bool { s := p.ask("stats").Stats; return s.Flows() == 5 })
	check(p, 5)
	o.Loops, o.Listen = 2, []string{tcp}
	for range 3 {
		p.kill()
		p = k.start(o)
		check(p, 5)
	}
	// Without flows, fewer loops are fewer; their counters are another's.
	p.ask("kill flows")
	k.expect(holdFlow, 0)
	p.kill()
	o = keptOrder{Loops: 1, Listen: []string{udp}, Upstream: u.addr.String()}
	p = k.start(o)
	check(p, 0)
	c := &sealedClient{PacketConn: packetSocket(t, "udp4"), flow: 1}
	c.answered(t, p.addrs[0])
	k.expect(holdFlow, 1)
	o.Listen = p.urls()
	for range 3 {
		p.kill()
		p = k.start(o)
		check(p, 1)
		c.answered(t, p.addrs[0])
	}
	p.ask("close")
}
