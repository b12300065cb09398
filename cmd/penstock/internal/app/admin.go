package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/dashboard"
	"github.com/penstock/penstock/cmd/penstock/internal/hooks"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/stats"
)

// checkAdmin returns an error if somebody else has a port that the next worker is to listen on: it would go on without.
func (d *daemon) checkAdmin(cfg *spec.Admin) error {
	old := d.active.Load()
	if !d.keeping.Present() || old.since.IsZero() {
		return nil
	}
	for _, at := range cfg.Listen {
		if at.Kind != spec.TCP || slices.Contains(old.Admin.Listen, at) {
			continue
		}
		l, err := admin.Listen(at, cfg.Mode)
		if err == nil {
			l.Close()
		} else if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("admin.listen: %w", err)
		}
	}
	return nil
}

// serveAdmin makes the admin listener serve on all its addresses, if there are any.
func (d *daemon) serveAdmin() {
	cfg := d.active.Load().Admin
	list := d.keeping.AdminListeners()
	if len(list) == 0 {
		return // or it was logged why there are none
	}
	d.hooks.Accounting.KeepRecent()
	d.server = admin.New(d, admin.Config{
		Token: cfg.Token, ReadToken: cfg.ReadToken, Events: d.log.events, Started: d.started, Page: dashboard.Files(),
	})
	for _, l := range list {
		at := urlOf(l.Addr())
		d.log.Info("admin", "listener", at)
		go func() {
			if err := d.server.Serve(l); err != nil {
				d.log.Error("admin listener failed", "listener", at, "error", err)
			}
		}()
	}
}

func urlOf(a net.Addr) string { return a.Network() + "://" + a.String() }

// closeAdmin stops the admin server. most bounds the time for pending answers.
func (d *daemon) closeAdmin(most time.Duration) {
	if d.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	d.server.Close(ctx)
}

// Flows passes all open flows to yield.
func (d *daemon) Flows(ctx context.Context, yield func([]api.Flow) bool) error {
	var list []api.Flow
	d.engine.Flows(func(flows []relay.FlowInfo) bool {
		if ctx.Err() != nil {
			return false
		}
		list = list[:0]
		for i := range flows {
			list = append(list, flowOf(&flows[i]))
		}
		return yield(list)
	})
	return ctx.Err()
}

func flowOf(f *relay.FlowInfo) api.Flow {
	out := api.Flow{
		ID: f.ID, Kind: "stream", State: string(f.State), Client: f.Client, Upstream: f.Upstream,
		Start: f.Start, Age: f.Duration.Seconds(), Idle: f.Idle.Seconds(), Up: transfer(&f.Up), Down: transfer(&f.Down),
	}
	if f.Peer.Network.Datagrams() {
		out.Kind = "datagram"
	}
	if p, ok := f.Value.(*hooks.State); ok {
		n := p.Names()
		out.Listener, out.Route, out.Group, out.Member = n.Listener, n.Route, n.Group, cmp.Or(n.Member, p.Named())
		out.Protocol = p.Protocol()
		if h, _ := p.Hello(); h != nil {
			out.SNI = h.ServerName
		}
	}
	return out
}

func transfer(t *relay.Transfer) api.Transfer {
	return api.Transfer{
		Bytes: t.Written, Held: t.Held, Spliced: t.Spliced, Datagrams: t.Datagrams, DatagramsDropped: t.DatagramsDropped,
		Path: t.Path.String(), Why: t.Why.String(),
	}
}

// Flow returns one open flow, with what the kernel knows about it.
func (d *daemon) Flow(_ context.Context, id uint64) (api.FlowDetail, bool) {
	f, ok := d.engine.Flow(id)
	if !ok {
		return api.FlowDetail{}, false
	}
	out := api.FlowDetail{
		Flow: flowOf(&f), Loop: f.Loop, Local: f.Local, Attempts: f.Attempts,
		UpstreamLocal: upstreamLocal(&f),
		Peer:          f.Peer, Connect: f.Connect.Seconds(), FirstByte: f.FirstByte.Seconds(), Queued: f.Queued.Seconds(),
		ClientTCP: tcpInfo(f.ClientTCP), UpstreamTCP: tcpInfo(f.UpstreamTCP),
	}
	out.ClientTLS, out.UpstreamTLS = tlsShown(f.ClientTLS), tlsShown(f.UpstreamTLS)
	if p, ok := f.Value.(*hooks.State); ok {
		if h, id := p.Hello(); h != nil {
			out.ALPN, out.JA4 = h.SupportedProtos, p.JA4()
			if id != nil {
				out.Identity = &api.Identity{Subject: id.Subject, Names: id.Names(), Serial: id.Serial}
			}
		}
		q := p.QUIC()
		out.QUICVersion, out.QUICID, out.QUICCame = q.Version, q.ID, q.Came
		if w := p.Target(); w != nil {
			out.IdleLimit, out.LifeLimit, out.RateLimit = max(0, w.Timeouts.Idle).Seconds(), w.TimeoutsOf(f.ID).Life.Seconds(), w.Route.Bandwidth
		}
	}
	return out, true
}

func tlsShown(t *stats.TLS) *api.TLS {
	if t == nil {
		return nil
	}
	out := &api.TLS{ServerName: t.ServerName, Protocol: t.Protocol, Resumed: t.Resumed, Handshake: t.Handshake.Seconds(), Kernel: t.Kernel, Received: t.Received, Sent: t.Sent}
	if t.Version != 0 {
		out.Version, out.Cipher = strings.TrimPrefix(tls.VersionName(t.Version), "TLS "), tls.CipherSuiteName(t.CipherSuite)
	}
	return out
}

func tcpInfo(t *stats.TCPInfo) *api.TCPInfo {
	if t == nil {
		return nil
	}
	return &api.TCPInfo{
		State: t.State, RTT: t.RTT.Seconds(), RTTVar: t.RTTVar.Seconds(), MinRTT: t.MinRTT.Seconds(),
		Retransmits: int64(t.Retransmits), Lost: int64(t.Lost), Cwnd: int64(t.Cwnd), MSS: int64(t.MSS), Unacked: int64(t.Unacked), Unsent: t.NotSent,
		PacingRate: t.PacingRate, DeliveryRate: t.DeliveryRate, RecvSpace: t.RecvSpace, Congestion: t.Congestion,
	}
}

// Kill ends flows, and returns how many of them were still open.
func (d *daemon) Kill(ctx context.Context, ids []uint64) (n int64) {
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		if d.engine.Kill(id, relay.CauseKilled) {
			n++
		}
	}
	return n
}

// Level returns the level of the log.
func (d *daemon) Level() string { return logs.LevelName(d.log.level.Level()) }

// SetLevel changes the level of the log until the next reload.
func (d *daemon) SetLevel(level string) { d.log.level.Set(logs.LevelOf(level)) }
