package sandboxneeds

import (
	"github.com/penstock/penstock/sandbox"
)

// Held is what a process has kept, after it has entered its sandbox.
type Held struct {
	Policy sandbox.Policy
	Report sandbox.Report
	// Had are the capabilities that the process had before, as bits. What it never had is not missing.
	Had uint64
}

// Missing returns those of the needs that the process has given up. bound reports whether a port is bound already; nil: no port is.
func (h *Held) Missing(n Needs, bound func(Need) bool) (missing Needs) {
	for _, a := range n {
		if !h.allows(a) && (bound == nil || !bound(a)) {
			missing = append(missing, a)
		}
	}
	return missing
}

// allows reports whether the process may still do what a need says. A nil Held, and one that only logs, has given up nothing.
func (h *Held) allows(n Need) bool {
	if h == nil || h.Policy.Mode == sandbox.Log {
		return true
	}
	k := &kinds[n.Kind]
	if !h.Report.Held(k.layer) || k.layer == sandbox.Capabilities && h.Had>>k.capability&1 == 0 {
		return true
	}
	return k.allowed(&h.Policy, n)
}
