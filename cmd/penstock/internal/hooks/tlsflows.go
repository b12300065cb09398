package hooks

import (
	"sync/atomic"

	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/relay"
)

// TLSFlows counts the open flows whose TLS ends or begins here. They end with the worker, because nobody else has their
// keys. The count is in memory that the next worker finds, so that it knows how many of the lost flows were such flows.
type TLSFlows struct {
	open   *atomic.Int64
	before int64 // what the worker before has left
	// While this worker hands over, those that end are left in the count; others that cannot be handed over are
	// counted in others.
	handing atomic.Bool
	others  *atomic.Int64
	left    int64 // others of the worker before
}

// NewTLSFlows returns the count that the worker before has left.
func NewTLSFlows(v *saved.Values) *TLSFlows {
	c := &TLSFlows{open: v.LeftWord("flows.tls"), others: v.LeftWord("flows.not-handed-over")}
	c.before, c.left = c.open.Load(), c.others.Load()
	return c
}

// Now returns the number of such flows.
func (c *TLSFlows) Now() int64 { return max(0, c.open.Load()-c.before) }

// HandingOver says whether this worker hands over now.
func (c *TLSFlows) HandingOver(now bool) { c.handing.Store(now) }

// begin notes that the TLS of a flow ends or begins here.
func (c *TLSFlows) begin(p *State) {
	if !p.endsTLS {
		p.endsTLS = true
		c.open.Add(1)
	}
}

// lingers notes that the TLS of a flow stays in this process, which hands over: the flow is the next worker's.
func (c *TLSFlows) lingers(p *State) {
	if p.endsTLS {
		p.endsTLS = false
		c.open.Add(-1)
	}
}

// end is called when a flow has ended.
func (c *TLSFlows) end(p *State, r *relay.Record) {
	lost := r.Cause == relay.CauseCrashed && r.Err == nil && c.handing.Load() // of one whose TLS was another worker's, which has died, there is an error
	switch {
	case p.endsTLS && !lost:
		c.open.Add(-1)
	case lost && !p.endsTLS:
		c.others.Add(1)
	}
}

// Settle returns how many flows of the worker before have ended with it: those with TLS, and the others. crashed are
// those that nobody has counted as ended, because it died; when it hands over, it does so itself.
func (c *TLSFlows) Settle(crashed int64) (tls, others int64) {
	tls = max(0, c.before)
	others = max(0, c.left) + max(0, crashed-tls)
	c.open.Add(-c.before)
	c.others.Add(-c.left)
	c.before, c.left = 0, 0
	return tls, others
}
