package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"
)

// MaxCapture is how long a capture may last, in seconds.
const MaxCapture = 3600

// NewCapture is the body of a request for the flows that a capture is about: one open flow, or those of a source, of a listener, or both.
type NewCapture struct {
	Flow     uint64  `json:"flow,omitempty,string"`
	Source   string  `json:"source,omitempty"` // of the client: an address or a network
	Listener string  `json:"listener,omitempty"`
	For      float64 `json:"for"` // seconds, at least 1
}

// Check returns an error if the request is invalid, and the network of its source.
func (n *NewCapture) Check() (source netip.Prefix, err error) {
	switch {
	case n.Flow == 0 && n.Source == "" && n.Listener == "":
		return source, NewProblem(http.StatusBadRequest, "a capture of all flows", "flow, or source, listener or both")
	case n.Flow != 0 && n.Source+n.Listener != "":
		return source, NewProblem(http.StatusBadRequest, "a flow, and a source or a listener", "either")
	case !(n.For >= 1 && n.For <= MaxCapture):
		return source, NewProblem(http.StatusBadRequest, "for: out of range", "1 to 3600 seconds")
	}
	if n.Source != "" {
		source, err = parseSource(n.Source)
	}
	return source, err
}

// CaptureLine is a line of the answer.
type CaptureLine struct {
	Flow *CaptureFlow `json:"flow,omitempty"`
	// At says that everything that happened before it was told; twice a second.
	At time.Time `json:"at,omitzero"`
	// Through comes with At: a flow that has not been told has begun after it. It is earlier than At while a flow is not connected yet,
	// by which nobody can say where its packets are.
	Through time.Time `json:"through,omitzero"`
	// Dropped is how many flows were not told, because they were too many at once; in total.
	Dropped int64 `json:"dropped,omitempty"`
}

// CaptureFlow is where the packets of a flow are: between Peer and Local, and between UpstreamLocal and Upstream. A flow is told when it is
// connected to a member, again when it goes on to another one, and when it has ended.
type CaptureFlow struct {
	ID            uint64    `json:"id,string"`
	Kind          string    `json:"kind"` // stream or datagram
	Listener      string    `json:"listener"`
	Route         string    `json:"route,omitempty"`
	Group         string    `json:"group,omitempty"`
	Member        string    `json:"member,omitempty"`
	SNI           string    `json:"sni,omitempty"`
	Client        Addr      `json:"client"`
	Peer          Addr      `json:"peer"`              // the other end of the client's socket: a proxy or the client itself
	Shared        bool      `json:"shared,omitempty"`  // by several clients is Peer, which a proxy names in each datagram: these are not this flow's alone
	Local         Addr      `json:"local,omitzero"`    // absent if it is not known: of a flow that was never connected
	Upstream      Addr      `json:"upstream,omitzero"` //
	UpstreamLocal Addr      `json:"upstream_local,omitzero"`
	ClientTLS     bool      `json:"client_tls,omitempty"`   // ends at the relay
	UpstreamTLS   bool      `json:"upstream_tls,omitempty"` // begins at the relay
	Since         time.Time `json:"since"`                  // when the present connection to the upstream was begun, by the host's clock
	Ended         time.Time `json:"ended,omitzero"`
	Cause         string    `json:"cause,omitempty"`
	Reason        string    `json:"reason,omitempty"`
	Error         string    `json:"error,omitempty"`
}

// Capture calls do with each line of the answer, until the context ends, the daemon ends it, or do returns an error, which it returns. The
// end of the time, or of the one flow, is no error.
func (c *Client) Capture(ctx context.Context, n NewCapture, do func(*CaptureLine) error) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	resp, err := c.open(ctx, "POST", "/v1/captures", "application/json", b)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var line CaptureLine
		if err := dec.Decode(&line); err != nil {
			return ctx.Err() // the end, in whatever way
		}
		if err := do(&line); err != nil {
			return err
		}
	}
}
