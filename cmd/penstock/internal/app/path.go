package app

import (
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/upstream"
	"github.com/penstock/penstock/relay"
)

// path is the way of a byte through the daemon: which station is asked at which
// step. The steps between are the engine's. Hooks run on its event loops, so no
// station may block there.
//
//	arrives     the engine accepts the client, or its first datagram begins a flow
//	admitted    everybody is
//	routed      to the one group that the command line names
//	connected   upstream.Group: in turn, and the next one after a failure
//	relayed     the engine copies or splices streams, and sends datagrams in runs
//	accounted   account.Log: a line in the log
//	closed      the engine
func path(group *upstream.Group, journal *account.Log) relay.Hooks {
	// A lease is the value of a flow from its first attempt to its record.
	leases := sync.Pool{New: func() any { return new(upstream.Lease) }}
	return relay.Hooks{
		Upstream: func(f *relay.Flow, attempt int) *relay.Addr {
			if attempt == 0 {
				f.SetValue(leases.Get())
			}
			m, _ := group.Pick(f.Value().(*upstream.Lease), netip.AddrPort{}, netip.AddrPort{})
			if m == nil {
				return nil
			}
			return m.Addr()
		},
		Connected: func(f *relay.Flow, _ *relay.Addr, took time.Duration, err error) {
			f.Value().(*upstream.Lease).Connected(err, took)
		},
		Done: func(r *relay.Record) {
			journal.Enter(&account.Entry{Record: *r})
			if l, ok := r.Value.(*upstream.Lease); ok {
				l.Release()
				leases.Put(l)
			}
		},
	}
}
