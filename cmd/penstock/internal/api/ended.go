package api

import "time"

// EndedFlow is a flow that has ended.
type EndedFlow struct {
	ID        uint64    `json:"id,string"`
	Kind      string    `json:"kind"` // stream or datagram
	Listener  string    `json:"listener"`
	Route     string    `json:"route,omitempty"`
	Group     string    `json:"group,omitempty"`
	Member    string    `json:"member,omitempty"`
	Client    Addr      `json:"client"`
	Upstream  Addr      `json:"upstream,omitzero"` // connected or tried last; absent if none was tried
	SNI       string    `json:"sni,omitempty"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	Duration  float64   `json:"duration"`
	Attempts  int       `json:"attempts"`
	Queued    float64   `json:"queued,omitempty"`
	Connect   float64   `json:"connect,omitempty"`    // absent if it was never connected
	FirstByte float64   `json:"first_byte,omitempty"` // absent if there was none
	Up        Transfer  `json:"up"`
	Down      Transfer  `json:"down"`
	Cause     string    `json:"cause"`            // docs/causes.md
	Reason    string    `json:"reason,omitempty"` // why the daemon refused or ended the flow, if it did
	Error     string    `json:"error,omitempty"`  // of the system call that failed
	Problem   bool      `json:"problem"`          // it was refused, or the relay could not do its job
}

// EndedFlows is the body of /v1/ended, latest first.
type EndedFlows struct {
	Flows []EndedFlow `json:"flows"`
	Kept  int         `json:"kept"` // number of flows that were examined
}

// MatchEnded reports whether the filter matches an ended flow. It ignores State and MinIdle.
func (f *Filter) MatchEnded(e *EndedFlow) bool {
	open := Flow{
		ID: e.ID, Kind: e.Kind, State: f.State, Listener: e.Listener, Route: e.Route, Group: e.Group, Member: e.Member,
		Client: e.Client, Age: e.Duration, Idle: f.MinIdle.Seconds(), Up: e.Up, Down: e.Down,
	}
	return f.Match(&open)
}

// Histogram is a distribution of times since the start of the daemon. Counts has one more
// value than Bounds: the number of values above the last bound.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // upper bounds in seconds, ascending
	Counts []int64   `json:"counts"` // per bucket
	Sum    float64   `json:"sum"`
}

// Latency holds the times until flows were connected, and from then until the first byte of
// the upstream. Percentiles follow from the difference between two of them.
type Latency struct {
	Connect   Histogram `json:"connect"`
	FirstByte Histogram `json:"first_byte"`
}

// Refusal is the number of flows of a listener that the daemon refused or ended for a reason.
type Refusal struct {
	Listener string `json:"listener"`
	Reason   string `json:"reason"`
	Count    int64  `json:"count"`
}
