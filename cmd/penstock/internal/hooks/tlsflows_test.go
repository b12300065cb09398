package hooks

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock/penstock/cmd/penstock/internal/counts"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/relay"
)

// The next worker is told how many flows a hand-over has ended, with TLS and without. A flow whose TLS was in a worker that lingers, and has died just then,
// is none of them: it has ended here, also if the hand-over fails afterwards.
func TestTLSFlowsOfHandOver(t *testing.T) {
	memory := make([]atomic.Int64, counts.Size(saved.ValuesLayout))
	worker := func(open func() (*counts.Memory, error)) *TLSFlows {
		t.Helper()
		m, err := open()
		if err != nil {
			t.Fatal(err)
		}
		return NewTLSFlows(saved.NewValues(m.Table(saved.ValuesLayout.Name)))
	}
	c := worker(func() (*counts.Memory, error) { return counts.Create(memory, saved.ValuesLayout) })
	var secure, kept, plain, theirs, late State
	for _, p := range []*State{&secure, &kept, &late} {
		c.begin(p)
	}
	c.lingers(&kept)
	c.HandingOver(true)
	c.end(&theirs, &relay.Record{Cause: relay.CauseCrashed, Err: syscall.ECONNRESET})
	c.end(&late, &relay.Record{Cause: relay.CauseEnd})
	c.HandingOver(false)
	if n, others := c.Now(), c.others.Load(); n != 1 || others != 0 {
		t.Errorf("after a hand-over that has failed: %d flows with TLS, and %d others are lost", n, others)
	}
	c.HandingOver(true)
	for _, p := range []*State{&secure, &plain} {
		c.end(p, &relay.Record{Cause: relay.CauseCrashed})
	}
	next := worker(func() (*counts.Memory, error) { return counts.Open(memory) })
	if n := next.Now(); n != 0 {
		t.Errorf("the next worker has %d flows with TLS", n)
	}
	if tls, others := next.Settle(0); tls != 1 || others != 1 {
		t.Errorf("a hand-over has ended %d flows with TLS and %d others", tls, others)
	}
}
