package relay

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// A flow may end in the middle of its own batch: what is left of it is dropped
// and counted, and the client's next datagram begins another.
func TestFlowEndsInItsBatch(t *testing.T) {
	const per, all = 40, 120
	for _, after := range []int{0, 1, 62, 63, 100} {
		t.Run(fmt.Sprint("after=", after), func(t *testing.T) {
			r := newDatagramRig(t, Config{Loops: 1, NoGSO: true}) // so that a super-packet takes many places
			s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
			up := gramAddr(s.LocalAddr())
			l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{Datagram: DatagramConfig{OnUnreachable: UnreachableEnd}}, &up)
			tellGram(t, c, l.Addr(), "first")
			hearGram(t, s, "first")
			release := r.holdLoop()
			texts := numbered(all)
			for some := range slices.Chunk(texts, per) {
				sendRun(t, c, l.Addr().AddrPort, some...)
			}
			r.k.FailAfter(after, testkernel.SendBatch, sys.ECONNREFUSED, 1)
			release()
			sent := r.expect(CauseUpstreamRefused).Up.Datagrams - 1 // the last of a plan leaves by another call
			for _, text := range texts[:sent] {
				hearGram(t, s, text)
			}
			testwait.Until(t, "the rest is dropped", func() bool {
				d := r.dgramStats()
				return d.Received == 1+all && d.Dropped.Get(stats.DropUnreachable)+d.Dropped.Get(stats.DropEnded) == all-sent
			})
			tellGram(t, c, l.Addr(), "another flow")
			hearGram(t, s, "another flow")
		})
	}
}
