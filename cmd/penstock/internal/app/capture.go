package app

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// How often a capture looks for flows of which no hook tells: those of datagrams that have no answer yet, and those to a built-in upstream.
// At most maxCaptured flows are told of.
const (
	captureLook = 500 * time.Millisecond
	maxCaptured = 10_000
)

// upstreamLocal returns the relay's address of the connection to a flow's upstream.
func upstreamLocal(f *relay.FlowInfo) relay.Addr {
	if !f.UpstreamLocal.IsValid() {
		return relay.Addr{}
	}
	return relay.Addr{Network: f.Upstream.Network, AddrPort: f.UpstreamLocal}
}

// Capture tells of the flows that a capture is about.
func (d *daemon) Capture(ctx context.Context, n api.NewCapture, source netip.Prefix, tell func(api.CaptureLine) error) error {
	wants := func(id uint64, listener string, client netip.Addr) bool {
		if n.Flow != 0 {
			return id == n.Flow
		}
		return (n.Listener == "" || n.Listener == listener) && (!source.IsValid() || source.Contains(client))
	}
	w := d.hooks.Watchers.Add(wants)
	defer d.hooks.Watchers.Remove(w)
	c := capturing{daemon: d, tell: tell, told: map[uint64]bool{}, watcher: w, wants: wants, only: n.Flow}
	if n.Flow != 0 {
		f, ok := d.engine.Flow(n.Flow)
		if !ok {
			return api.NotFound("open flow", strconv.FormatUint(n.Flow, 10), "an id of GET /v1/flows")
		}
		if err := c.open(&f); err != nil {
			return err
		}
	}
	ticks := time.NewTicker(captureLook)
	defer ticks.Stop()
	if err := c.look(); err != nil {
		return err
	}
	for !c.over {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case s := <-w.Seen:
			err = c.seen(&s)
		case <-ticks.C:
			err = c.look()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// capturing is a capture.
type capturing struct {
	*daemon
	tell    func(api.CaptureLine) error
	told    map[uint64]bool // open flows
	watcher *hooks.Watcher
	wants   func(uint64, string, netip.Addr) bool
	only    uint64 // the one flow; 0: it is about several
	over    bool   // the one flow has ended
}

// look tells of the open flows that were not told of, and of what the watcher has seen meanwhile.
func (c *capturing) look() error {
	at := time.Now()
	line := api.CaptureLine{At: at, Through: at}
	var ids []uint64
	see := func(f *relay.FlowInfo) {
		switch {
		case f.State != stats.StateRelaying:
			if begun := at.Add(-f.Duration); begun.Before(line.Through) {
				line.Through = begun
			}
		case !c.told[f.ID] && len(c.told)+len(ids) < maxCaptured:
			ids = append(ids, f.ID)
		}
	}
	if c.only != 0 {
		if f, ok := c.engine.Flow(c.only); ok {
			see(&f)
		}
	} else {
		hooks.EachFlow(c.engine, func(f *relay.FlowInfo, p *hooks.State) {
			if c.wants(f.ID, p.Names().Listener, f.Client.AddrPort.Addr().Unmap()) {
				see(f)
			}
		})
	}
	for _, id := range ids {
		if f, ok := c.engine.Flow(id); ok {
			if err := c.open(&f); err != nil {
				return err
			}
		}
	}
	for range len(c.watcher.Seen) {
		s := <-c.watcher.Seen
		if err := c.seen(&s); err != nil {
			return err
		}
	}
	line.Dropped = c.watcher.Dropped.Load()
	return c.tell(line)
}

// open tells of an open flow.
func (c *capturing) open(f *relay.FlowInfo) error {
	c.told[f.ID] = true
	now := time.Now() // with both clocks: f was asked for a while ago, and the host's clock may have been set meanwhile
	out := api.CaptureFlow{
		ID: f.ID, Kind: "stream", Client: f.Client, Peer: f.Peer, Local: f.Local, Upstream: f.Upstream, UpstreamLocal: upstreamLocal(f),
		ClientTLS: f.ClientTLS != nil, UpstreamTLS: f.UpstreamTLS != nil, Since: now.Add(-now.Sub(f.Start)),
	}
	if f.Peer.Network.Datagrams() {
		out.Kind = "datagram"
	}
	if p, ok := f.Value.(*hooks.State); ok {
		n := p.Names()
		out.Listener, out.Route, out.Group, out.Member, out.Shared = n.Listener, n.Route, n.Group, n.Member, p.SharesPeer(f.Peer)
		if h, _ := p.Hello(); h != nil {
			out.SNI = h.ServerName
		}
	}
	return c.tell(api.CaptureLine{Flow: &out})
}

// seen tells of a flow that a hook has seen.
func (c *capturing) seen(s *hooks.Sighting) error {
	if c.over {
		return nil
	}
	if s.Ended.IsZero() && s.Datagrams { // the connection to its member is as old as the flow, at most
		if f, ok := c.engine.Flow(s.ID); ok {
			return c.open(&f)
		}
	}
	out := api.CaptureFlow{
		ID: s.ID, Kind: "stream", Listener: s.Listener, Route: s.Route, Group: s.Group, Member: s.Member, SNI: s.SNI,
		Client: s.Client, Peer: s.Peer, Shared: s.Shared, Local: s.Local, Upstream: s.Upstream, UpstreamLocal: s.UpstreamLocal,
		ClientTLS: s.ClientTLS, UpstreamTLS: s.UpstreamTLS, Since: s.ConnectBegan,
	}
	if s.Datagrams {
		out.Kind = "datagram"
	}
	if s.Ended.IsZero() {
		if len(c.told) < maxCaptured {
			c.told[s.ID] = true
		}
		return c.tell(api.CaptureLine{Flow: &out})
	}
	delete(c.told, s.ID)
	c.over = s.ID == c.only
	out.Since, out.Ended, out.Cause, out.Reason = s.Began, s.Ended, s.Cause.String(), s.Reason.String()
	if s.Err != nil {
		out.Error = config.OneLine(s.Err)
	}
	return c.tell(api.CaptureLine{Flow: &out})
}
