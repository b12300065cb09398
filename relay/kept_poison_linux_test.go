package relay

import (
	"testing"

	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay/hold"
)

// A flow that the process dies of while it is restored is given up after some deaths; others go on.
func TestDeathInRestore(t *testing.T) {
	for _, network := range []string{"tcp4", "udp4"} {
		t.Run(network, func(t *testing.T) {
			k := newKeptTable(t)
			o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, network)}, Upstream: "echo:"}
			p := k.start(o)
			o.Listen = p.urls()
			var healthy func(text string)
			if network == "udp4" {
				all := gramClients(t, network, 2)
				for _, c := range all {
					c.tell(t, p.addrs[0], "text")
					c.hear(t, p.addrs[0], "text")
				}
				o.Poison = gramAddr(all[0].LocalAddr()).String()
				healthy = func(text string) {
					all[1].tell(t, p.addrs[0], text)
					all[1].hear(t, p.addrs[0], text)
				}
			} else {
				sick, c := testnet.Dial(t, toNet(p.addrs[0])), testnet.Dial(t, toNet(p.addrs[0]))
				say(t, sick, sick, "text")
				say(t, c, c, "text")
				o.Poison = fromNet(sick.LocalAddr()).String()
				healthy = func(text string) { say(t, c, c, text) }
				k.settled(2)
			}
			if a := p.ask("stats"); a.Stats.Total().Kept != 2 {
				t.Fatalf("%d flows are kept", a.Stats.Total().Kept)
			}
			p.kill()
			for range crashesMost + 1 {
				p = k.begin(o)
				<-p.gone
				p.kill()
			}
			p = k.start(o)
			if r := p.Restored; r.Flows != 1 || r.Lost.Get(hold.LossRepeated) != 1 || r.TotalLost() != 1 {
				t.Errorf("%+v", r)
			}
			healthy("on it goes")
		})
	}
}
