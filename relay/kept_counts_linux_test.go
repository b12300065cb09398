package relay

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/ledger"
	"github.com/penstock/penstock/internal/testnet"
)

// What the process that died had moved and not counted is counted by the next one, and nothing else is: not
// if the note names a flow, and what was counted is still that of another one, or of the other half.
func TestCountsOfLastTurn(t *testing.T) {
	k := newKeptTable(t)
	s := newServer(t, "tcp4")
	o := keptOrder{Loops: 1, Listen: []string{keptPlace(t, "tcp4")}, Upstream: s.addr.String()}
	j := &journey{k: k, o: o, proc: k.start(o)}
	j.o.Listen = j.proc.urls()
	a := j.dial(t)
	b := s.accept(t)
	say(t, a, b, "up")
	say(t, b, a, "down")
	const far = 1 << 40
	for _, c := range []struct {
		name string
		do   func(n ledger.Turn, slot, gen uint32)
		more int64
	}{
		{"no turn", func(n ledger.Turn, slot, gen uint32) { n.Begin(slot, gen) }, 0},
		{"another flow's", func(n ledger.Turn, slot, gen uint32) { n.SetCounted(0, far, far, far); n.Begin(slot, gen) }, 0},
		{"the other half's", func(n ledger.Turn, slot, gen uint32) { n.Begin(slot, gen); n.SetCounted(1, far, far, far) }, 0},
		{"the turn's", func(n ledger.Turn, slot, gen uint32) { n.Begin(slot, gen); n.SetCounted(0, 1, 1, 0) }, 1},
	} {
		was := j.proc.ask("stats").Stats.Total()
		j.proc.kill()
		k.edit(func(l *ledger.Ledger) {
			for slot, r := range l.All() {
				c.do(l.Turn(), slot, r.Generation())
			}
		})
		j.proc = k.start(j.o)
		is := j.proc.ask("stats").Stats.Total()
		if is.BytesRead != was.BytesRead+c.more || is.BytesWritten != was.BytesWritten+c.more || is.BytesSpliced != 0 {
			t.Errorf("%s: %d read, %d written, %d spliced, and before %d, %d", c.name, is.BytesRead, is.BytesWritten, is.BytesSpliced, was.BytesRead, was.BytesWritten)
		}
	}
	say(t, a, b, "up")
}

// Bytes of which the record said that they were spliced, before it said that this was over, are counted once.
func TestSplicedCountsOnce(t *testing.T) {
	s := newServer(t, "tcp4")
	j, _ := newJourney(t, "tcp4", "tcp4", testnet.Script{}, keptOrder{Upstream: s.addr.String()})
	a := j.dial(t)
	b := s.accept(t)
	for range 40 { // enough to be spliced
		say(t, b, a, strings.Repeat("much ", 20_000))
	}
	j.proc.ask("turn")
	j.proc.kill()
	var want int64
	j.k.edit(func(l *ledger.Ledger) {
		for slot, r := range l.All() {
			const last = 1000
			half := r.Half(down)
			if want = half.Spliced(); want < last || half.Pipe() != 0 {
				t.Fatalf("%d bytes were spliced, pipe %d", want, half.Pipe())
			}
			n := l.Turn()
			n.Begin(slot, r.Generation())
			n.SetSpliced(want - last)
			n.SetCounts(half.In(), half.Out()-last)
			n.Set(down, ledger.PhaseEmptying, 0)
		}
	})
	j.proc = j.k.start(j.o)
	say(t, a, b, "on")
	a.Close()
	b.Close()
	j.k.settled(0)
	if rec := <-j.proc.records; rec.Down.Spliced != want {
		t.Errorf("%d bytes were spliced, want %d: %+v", rec.Down.Spliced, want, rec.Down)
	}
}
