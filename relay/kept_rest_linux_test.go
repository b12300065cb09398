package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/testwait"
)

// A flow that goes on to another upstream has its key for that one: what the first one's socket rests under
// is not the same, also when all are handed over.
func TestHandOverAfterNextUpstream(t *testing.T) {
	k := newKeptTable(t)
	gone, there := newGramUpstream(t, "udp4"), newGramUpstream(t, "udp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "udp4")}, Upstream: gone.addr.String(), Next: there.addr.String()}
	p := k.start(o)
	o.Listen = p.urls()
	c := gramClients(t, "udp4", 1)[0]
	c.tell(t, p.addrs[0], "text")
	c.hear(t, p.addrs[0], "text!")
	k.expect(holdFlow, 1)
	first := k.heldOf(holdFlow)[0]
	gone.conn.Close()
	c.tell(t, p.addrs[0], "lost")
	testwait.Until(t, "the next upstream answers", func() bool { return p.ask("stats").Stats.Total().Connects == 2 })
	c.tell(t, p.addrs[0], "again")
	c.hear(t, p.addrs[0], "again!")
	testwait.Until(t, "the next socket is held", func() bool {
		all := k.heldOf(holdFlow)
		return len(all) == 1 && all[0].Key == first.Key
	})
	p.ask("handover")
	p.kill()
	k.expect(holdFlow, 1)
	p = k.start(o)
	if p.Restored.Flows != 1 {
		t.Errorf("%+v", p.Restored)
	}
	there.push(c.name, "push")
	c.hear(t, p.addrs[0], "push")
}
