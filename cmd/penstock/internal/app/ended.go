package app

import (
	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/cmd/penstock/internal/keeping"
)

// Ended returns the flows that ended last, the youngest first. Those that ended in the worker before this one are
// among them, if it has handed over.
func (d *daemon) Ended(problems bool) []api.EndedFlow {
	entries := d.hooks.Accounting.Recent(problems)
	list := make([]api.EndedFlow, len(entries))
	for i := range entries {
		list[i] = endedFlow(&entries[i])
	}
	before := d.keeping.EndedBefore()
	earlier := before.All
	if problems {
		earlier = before.Problems
	}
	return append(list, earlier[:max(0, min(len(earlier), account.MaxRecent-len(list)))]...)
}

// saveEnded leaves the flows that ended last to the next worker.
func (d *daemon) saveEnded() error {
	return d.keeping.SaveEnded(keeping.Ended{All: d.Ended(false), Problems: d.Ended(true)})
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
