package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
)

// A port whose socket fills up while replies are taken keeps datagrams apart:
// none joins one that stands in the plan already.
func TestFullListenerKeepsDatagramsApart(t *testing.T) {
	const per, all, rounds = 40, 240, 30
	r := newDatagramRig(t, Config{Loops: 1, NoGSO: true}) // so that a super-packet takes many places
	s, c := packetSocket(t, "udp4"), packetSocket(t, "udp4")
	up := gramAddr(s.LocalAddr())
	l := r.listenAt(gramPlace(t, "udp4"), ListenConfig{}, &up)
	tellGram(t, c, l.Addr(), "first")
	back := gramAddr(hearGram(t, s, "first"))
	b := make([]byte, 1<<16)
	dropped := int64(0)
	for round := range int64(rounds) {
		var texts []string
		for i := range all {
			texts = append(texts, fmt.Sprintf("datagram %03d of %02d", i, round))
		}
		release := r.holdLoop() // so that one turn meets many
		for some := range slices.Chunk(texts, per) {
			sendRun(t, s, back.AddrPort, some...)
		}
		r.k.FailAfter(int(round)*all/rounds, testkernel.SendBatch, sys.EAGAIN, 1)
		release()
		eventually(t, "all are sent, or dropped", func() bool {
			d := r.dgramStats()
			return d.Received == 1+(round+1)*all && d.Received == d.Sent+d.Dropped[DropFull]
		})
		r.k.Heal()
		full := r.dgramStats().Dropped[DropFull]
		for range all - (full - dropped) {
			c.SetReadDeadline(time.Now().Add(patience))
			n, _, err := c.ReadFrom(b)
			if i := slices.Index(texts, string(b[:n])); err != nil || i < 0 {
				t.Fatalf("round %d: heard %q, %v", round, b[:n], err)
			} else {
				texts[i] = "" // each comes once
			}
		}
		dropped = full
	}
}
