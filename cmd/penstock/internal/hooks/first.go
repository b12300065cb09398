package hooks

import (
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/firstbytes"
	"github.com/penstock/penstock/relay"
)

// firstWait returns how long the engine waits for the client's first bytes, or for more of them, before it asks again: until the next
// silence for which there is a route, and then as long as the listener says.
func (p *State) firstWait() time.Duration {
	all, over, waited := p.plan.routes.Silences(), p.clientTLS().silences, time.Duration(0)
	if over > 0 {
		waited = all[over-1]
	}
	if over < len(all) {
		return all[over] - waited
	}
	return max(p.plan.Spec.Sniff.Timeout-waited, time.Millisecond)
}

// waits looks at the first bytes, and reports whether the route of a client depends on what it has not sent yet. incomplete says that
// they are the beginning of a ClientHello, as no byte is, too.
func (h *Hooks) waits(f *relay.Flow, p *State, b []byte, last, incomplete bool) bool {
	sniff := &p.plan.Spec.Sniff
	if !sniff.First {
		return incomplete && !last
	}
	known := p.hello.Load()
	if known == nil {
		known = new(clientTLS)
		p.hello.Store(known)
	}
	if known.first == nil {
		known.first = firstbytes.New()
	}
	seen := known.first
	seen.Add(b, false)
	incomplete = incomplete && seen.May(firstbytes.TLS)
	if all := p.plan.routes.Silences(); last && !f.ClientEnded() && len(b) < sniff.Max && known.silences < len(all) {
		silence := all[known.silences]
		known.silences++
		seen.Wait(silence)
		if last = silence >= sniff.Timeout; !last {
			f.StartSniff(sniff.Max, p.firstWait())
		}
	}
	if !last {
		m := h.describeClient(f, p)
		m.Halting = incomplete
		if p.plan.routes.Pending(m) {
			return true
		}
		// Which certificate the listener shows depends on the name, unless TLS passes through.
		if r, ok := p.plan.routes.Find(m); incomplete && p.plan.Certs != nil && (!ok || !r.PassTLS) {
			return true
		}
	}
	if !seen.Over() { // a flow that waits for the name of its host is asked about again
		p.plan.sniffSeries.Sniffed(int(seen.Speaks()))
	}
	seen.Add(b, true)
	seen.Keep()
	return false
}

// Protocol returns the name of the protocol that the client speaks by its first bytes; empty: it is not known, or the flow has no target
// yet. It may be called by anybody.
func (p *State) Protocol() string {
	if p.target.Load() == nil {
		return ""
	}
	return p.clientTLS().first.Protocol()
}
