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
	Upstream  Addr      `json:"upstream"` // connected, or tried last; empty: none was tried
	SNI       string    `json:"sni,omitempty"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	Duration  float64   `json:"duration"`
	Attempts  int       `json:"attempts"`
	Queued    float64   `json:"queued,omitempty"`
	Connect   float64   `json:"connect,omitempty"`    // absent: it never was connected
	FirstByte float64   `json:"first_byte,omitempty"` // absent: none came
	Up        Transfer  `json:"up"`
	Down      Transfer  `json:"down"`
	Cause     string    `json:"cause"`            // docs/causes.md
	Reason    string    `json:"reason,omitempty"` // the daemon's, where it refused or ended the flow
	Error     string    `json:"error,omitempty"`  // the system call's
	Problem   bool      `json:"problem"`          // it was refused, or an operator should look
}

// EndedFlows is the body of /v1/ended, the youngest first.
type EndedFlows struct {
	Flows []EndedFlow `json:"flows"`
	Kept  int         `json:"kept"` // how many the filter was asked of
}

// MatchEnded reports whether the filter chooses an ended flow. State and idle time are not looked at.
func (f *Filter) MatchEnded(e *EndedFlow) bool {
	open := Flow{
		ID: e.ID, Kind: e.Kind, State: f.State, Listener: e.Listener, Route: e.Route, Group: e.Group, Member: e.Member,
		Client: e.Client, Age: e.Duration, Idle: f.MinIdle.Seconds(), Up: e.Up, Down: e.Down,
	}
	return f.Match(&open)
}

// Histogram counts how long something took, since the daemon's start. Counts has one
// more value than Bounds: those above the last bound.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // upper bounds in seconds, ascending
	Counts []int64   `json:"counts"` // between one bound and the next
	Sum    float64   `json:"sum"`
}

// Latency is how long flows took until they were connected, and from then on until the
// upstream's first byte. Percentiles are for the reader to take, of the difference of two.
type Latency struct {
	Connect   Histogram `json:"connect"`
	FirstByte Histogram `json:"first_byte"`
}

// Refusal counts the flows of a listener that were refused, or ended, for a reason of the daemon's.
type Refusal struct {
	Listener string `json:"listener"`
	Reason   string `json:"reason"`
	Count    int64  `json:"count"`
}
