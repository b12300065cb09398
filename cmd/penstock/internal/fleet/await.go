package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// AwaitVersion looks at the relays' reports until all of them run a version or have refused it, or ctx ends. Only what a relay
// has reported since the call counts: the others may be dead.
func (o *Operator) AwaitVersion(ctx context.Context, version int64, tell func(Progress)) Progress {
	view := o.watchReports(ctx)
	defer view.close()
	p := Progress{Why: "no reports could be read"}
	var since int64
	hurried := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-hurried }()
	go func() {
		defer close(hurried)
		o.hurryAll(ctx)
	}()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if since == 0 {
			if s, err := o.State(ctx); err == nil {
				since = s.revision
			}
		}
		if reports := view.reports(); reports != nil && since != 0 {
			p = progressOf(reports, version, since)
			tell(p)
		}
		if p.Outcome != Undecided {
			return p
		}
		select {
		case <-ctx.Done():
			return p
		case <-tick.C:
		}
	}
}

// hurryAll orders all relays to report more often until ctx ends. It is no failure if they do not.
func (o *Operator) hurryAll(ctx context.Context) {
	nodes, err := o.Nodes(ctx)
	if err != nil {
		return
	}
	var names []string
	for i := range nodes {
		if nodes[i].Present() {
			names = append(names, nodes[i].Node)
		}
	}
	o.Hold(ctx, names, Order{Kind: OrderReport, Every: ReportEvery(len(names))})
}

// ReportEvery returns the seconds between reports of so many relays with which etcd has at most 100 to write in a second.
func ReportEvery(relays int) int { return min(60, max(1, (relays+99)/100)) }

// progressOf says how many relays run a version, by what they have reported after a revision. It is Good if all do, and Bad
// if some have refused it and the others run it.
func progressOf(reports map[string]sighting, version, after int64) Progress {
	var p Progress
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		r := reports[name]
		if r.Version == 0 && (r.Refused == nil || r.Refused.Version == 0) {
			continue // its configuration is from elsewhere
		}
		p.Of++
		switch {
		case r.Refused != nil && r.Refused.Version == version:
			p.Refused = append(p.Refused, name+": "+r.Refused.Error)
		case r.Version >= version && r.mod > after:
			p.Run++
		case p.Why == "" && r.Version >= version:
			p.Why = fmt.Sprintf("%s has not reported for %v", name, r.silent.Truncate(time.Second))
		case p.Why == "":
			p.Why = "not run yet by " + name
		}
	}
	switch {
	case p.Run == p.Of:
		p.Outcome = Good
	case p.Run+len(p.Refused) == p.Of:
		p.Outcome, p.Why = Bad, "refused by "+p.Refused[0]
	}
	return p
}
