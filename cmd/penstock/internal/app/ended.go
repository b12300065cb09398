package app

import (
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Ended returns the flows that ended last, the youngest first.
func (d *daemon) Ended(problems bool) []api.EndedFlow {
	entries := d.accounting.recent.Load().Last(problems)
	list := make([]api.EndedFlow, len(entries))
	for i := range entries {
		list[i] = endedFlow(&entries[i])
	}
	return list
}

func endedFlow(e *account.Entry) api.EndedFlow {
	out := api.EndedFlow{
		ID: e.ID, Kind: "stream", Listener: e.ListenerName, Route: e.Route, Group: e.Group, Member: e.Member,
		Client: e.Client, Upstream: e.Upstream, SNI: e.SNI, Start: e.Start, End: e.Start.Add(e.Duration), Duration: e.Duration.Seconds(),
		Attempts: e.Attempts, Queued: e.Queued.Seconds(), Connect: e.Connect.Seconds(), FirstByte: e.FirstByte.Seconds(),
		Up: transfer(&e.Up), Down: transfer(&e.Down), Cause: e.Cause.String(), Reason: e.Reason.String(), Problem: e.Problem(),
	}
	if e.Datagrams {
		out.Kind = "datagram"
	}
	if e.Err != nil {
		out.Error = e.Err.Error()
	}
	return out
}
