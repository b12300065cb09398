package relay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
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
	unheard := make(map[string]bool) // each comes once at most, unless it is dropped
	for round := range rounds {
		var texts []string
		for i := range all {
			texts = append(texts, fmt.Sprintf("datagram %03d of %02d", i, round))
			unheard[texts[i]] = true
		}
		release := r.holdLoop() // so that one turn meets many
		for some := range slices.Chunk(texts, per) {
			sendRun(t, s, back.AddrPort, some...)
		}
		r.k.FailAfter(round*all/rounds, testkernel.SendBatch, sys.EAGAIN, 1)
		release()
		end := fmt.Sprintf("end of %02d", round)
		for _, text := range hearUntil(t, c, end, func() { tellGram(t, s, back, end) }) {
			if !unheard[text] && !strings.HasPrefix(text, "end of") {
				t.Fatalf("round %d: heard %q", round, text)
			}
			delete(unheard, text)
		}
		r.k.Heal()
	}
	// The loopback device of a busy machine drops some, so that the engine has received less than was sent to it.
	testwait.Until(t, "all that was received is sent, or dropped", func() bool {
		d := r.dgramStats()
		return d.Received == d.Sent+d.Dropped.Get(stats.DropFull)
	})
	d := r.dgramStats()
	if heard := int64(rounds*all - len(unheard)); heard == 0 || heard > d.Sent {
		t.Errorf("%d heard: %+v", heard, d)
	}
}

// hearUntil returns what comes before an end. It asks for the end again while that does not come, for it may be
// dropped, too.
func hearUntil(t *testing.T, c net.PacketConn, end string, send func()) (heard []string) {
	t.Helper()
	b := make([]byte, 1<<16)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		send()
		for {
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, _, err := c.ReadFrom(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(b[:n]) == end {
				return heard
			}
			heard = append(heard, string(b[:n]))
		}
	}
	t.Fatalf("%q does not come", end)
	return nil
}
