package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// FlowCmd shows one flow.
type FlowCmd struct {
	ClientFlags
	ID uint64 `arg:"" name:"ID" help:"The id of the flow, as shown by penstock flows."`
}

// Run executes the command.
func (c *FlowCmd) Run(stdout, stderr *os.File) int {
	return query(&c.ClientFlags, stdout, stderr, func(ctx context.Context, client *api.Client) (api.FlowDetail, error) { return client.Flow(ctx, c.ID) },
		func(o out, f api.FlowDetail) { printFlow(o, &f, o.width) })
}

// printFlow prints a flow, in lines of at most width cells if width is not 0.
func printFlow(w io.Writer, f *api.FlowDetail, width int) {
	at := f.Listener
	for _, next := range []string{f.Route, f.Group, f.Member} {
		if next != "" {
			at += " > " + next
		}
	}
	names := ""
	if f.SNI != "" {
		names = f.SNI
	}
	if len(f.ALPN) > 0 {
		names += " (ALPN " + strings.Join(f.ALPN, ", ") + ")"
	}
	peer := ""
	if f.Peer != f.Client {
		peer = f.Peer.String()
	}
	upstream := f.Upstream.String()
	if f.Attempts > 1 {
		upstream += fmt.Sprintf(", attempt %d", f.Attempts)
	}
	printPairs(w, [][2]string{
		{"flow", fmt.Sprintf("%d, %s, %s, on loop %d", f.ID, f.Kind, f.State, f.Loop)},
		{"route", at},
		{"client", f.Client.String()},
		{"proxy", peer},
		{"local", f.Local.String()},
		{"protocol", f.Protocol},
		{"server name", strings.TrimSpace(names)},
		{"JA4", f.JA4},
		{"QUIC", quicLine(f)},
		{"client's TLS", tlsLine(f.ClientTLS)},
		{"certificate", identityLine(f.Identity)},
		{"upstream", upstream},
		{"from", f.UpstreamLocal.String()},
		{"upstream's TLS", tlsLine(f.UpstreamTLS)},
		{"began", fmt.Sprintf("%s, %s ago; idle for %s", f.Start.Local().Format(time.DateTime), age(f.Age), span(f.Idle))},
		{"times", times(f)},
		{"limits", limits(f)},
	}...)
	fmt.Fprintln(w)
	t := newTable("", ">MOVED", ">SPLICED", ">HELD", "PATH", "~WHY NOT A FASTER ONE")
	datagrams := f.Kind == "datagram"
	if datagrams {
		t = newTable("", ">MOVED", ">DATAGRAMS", ">DROPPED", "PATH", "~WHY NOT A FASTER ONE")
	}
	for _, d := range []struct {
		name string
		*api.Transfer
	}{{"up", &f.Up}, {"down", &f.Down}} {
		second, third := volume(float64(d.Spliced)), volume(float64(d.Held))
		if datagrams {
			second, third = count(d.Datagrams), count(d.DatagramsDropped)
		}
		t.add(d.name, volume(float64(d.Bytes)), second, third, d.Path, dash(d.Why))
	}
	for _, line := range t.lines(width) {
		fmt.Fprintln(w, line)
	}
	if f.ClientTCP != nil || f.UpstreamTCP != nil {
		fmt.Fprintln(w)
		for _, line := range tcpTable(f.ClientTCP, f.UpstreamTCP).lines(width) {
			fmt.Fprintln(w, line)
		}
	}
}

// tlsLine describes the TLS of one side; empty: it does not end or begin here.
func tlsLine(t *api.TLS) string {
	switch {
	case t == nil:
		return ""
	case t.Version == "":
		return "handshake under way"
	}
	parts := []string{t.Version, t.Cipher}
	if t.ServerName != "" {
		parts = append(parts, "for "+t.ServerName)
	}
	if t.Protocol != "" {
		parts = append(parts, "ALPN "+t.Protocol)
	}
	if t.Resumed {
		parts = append(parts, "resumed")
	}
	where := "in user space"
	if t.Kernel {
		where = "in the kernel"
	}
	return strings.Join(append(parts, "handshake "+span(t.Handshake), where), ", ")
}

// identityLine says who the client is by its certificate.
func identityLine(id *api.Identity) string {
	if id == nil {
		return ""
	}
	parts := []string{id.Subject}
	if id.Names != "" {
		parts = append(parts, id.Names)
	}
	return strings.Join(append(parts, "serial "+id.Serial), "; ")
}

// times returns the times until the first byte of the upstream.
func times(f *api.FlowDetail) string {
	var parts []string
	for _, w := range []struct {
		seconds float64
		what    string
	}{{f.Queued, "in the queue"}, {f.Connect, "to connect"}, {f.FirstByte, "for the first byte"}} {
		if w.seconds > 0 {
			parts = append(parts, span(w.seconds)+" "+w.what)
		}
	}
	return strings.Join(parts, ", ")
}

// limits returns the limits of the flow.
func limits(f *api.FlowDetail) string {
	var parts []string
	if f.IdleLimit > 0 {
		parts = append(parts, span(f.IdleLimit)+" idle")
	}
	if f.LifeLimit > 0 {
		parts = append(parts, span(f.LifeLimit)+" in total")
	}
	if f.RateLimit > 0 {
		parts = append(parts, rate(float64(f.RateLimit))+" in each direction")
	}
	return strings.Join(parts, ", ")
}

// tcpTable compares the TCP state of both sockets. A side that is not TCP is nil.
func tcpTable(client, upstream *api.TCPInfo) *table {
	t := newTable("TCP", ">CLIENT", ">UPSTREAM")
	row := func(name string, value func(*api.TCPInfo) string) {
		cells := []string{name, "-", "-"}
		for i, info := range []*api.TCPInfo{client, upstream} {
			if info != nil {
				cells[1+i] = value(info)
			}
		}
		t.add(cells...)
	}
	row("state", func(i *api.TCPInfo) string { return i.State })
	row("round trip", func(i *api.TCPInfo) string { return span(i.RTT) + " +-" + span(i.RTTVar) })
	row("shortest round trip", func(i *api.TCPInfo) string { return span(i.MinRTT) })
	row("retransmitted segments", func(i *api.TCPInfo) string { return count(i.Retransmits) })
	row("lost segments", func(i *api.TCPInfo) string { return count(i.Lost) })
	row("congestion window", func(i *api.TCPInfo) string { return fmt.Sprintf("%s x %d B", count(i.Cwnd), i.MSS) })
	row("unacknowledged segments", func(i *api.TCPInfo) string { return count(i.Unacked) })
	row("unsent", func(i *api.TCPInfo) string { return volume(float64(i.Unsent)) })
	row("delivery rate", func(i *api.TCPInfo) string { return rate(float64(i.DeliveryRate)) })
	row("pacing rate", func(i *api.TCPInfo) string { return rate(float64(i.PacingRate)) })
	row("receive window", func(i *api.TCPInfo) string { return volume(float64(i.RecvSpace)) })
	row("congestion control", func(i *api.TCPInfo) string { return dash(i.Congestion) })
	return t
}

// quicLine says what is known of a flow's connection of QUIC.
func quicLine(f *api.FlowDetail) string {
	came := map[string]string{
		"server-id": "the client has moved, and its ID names the server",
		"learned":   "the client has moved, and its ID is known",
		"unknown":   "the client has moved, and nobody knows its ID",
	}[f.QUICCame]
	var parts []string
	if f.QUICVersion != "" {
		parts = append(parts, "version "+f.QUICVersion)
	}
	if f.QUICID != "" {
		parts = append(parts, "connection ID "+f.QUICID)
	}
	line := strings.Join(parts, ", ")
	if line != "" && came != "" {
		line += "; "
	}
	return line + came
}
