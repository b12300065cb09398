package app

import (
	"encoding/json"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// Ended returns the flows that ended last, the youngest first. Those that ended in the worker before this one are
// among them, if it has handed over.
func (d *daemon) Ended(problems bool) []api.EndedFlow {
	entries := d.hooks.Accounting.Recent(problems)
	list := make([]api.EndedFlow, len(entries))
	for i := range entries {
		list[i] = endedFlow(&entries[i])
	}
	before := d.endedBefore()
	earlier := before.All
	if problems {
		earlier = before.Problems
	}
	return append(list, earlier[:max(0, min(len(earlier), account.MaxRecent-len(list)))]...)
}

// savedEnded is the document of the flows that ended last.
type savedEnded struct {
	All      []api.EndedFlow `json:"all"`
	Problems []api.EndedFlow `json:"problems"`
}

const labelEnded = "ended"

// readEnded returns what the worker before has left of the flows that ended in it. It is called when somebody asks,
// because nobody relays while a worker starts.
func (k *keeping) readEnded() (s savedEnded) {
	if k == nil || k.ended == nil {
		return s
	}
	text, err := k.ended.Read()
	if err != nil || json.Unmarshal(text, &s) != nil {
		return savedEnded{} // a list for persons begins anew
	}
	return s
}

// saveEnded leaves the flows that ended last to the next worker.
func (d *daemon) saveEnded() error {
	text, err := json.Marshal(savedEnded{d.Ended(false), d.Ended(true)})
	if err == nil {
		err = d.keeping.ended.Write(text)
	}
	return err
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
