package api

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Bans are the networks whose clients are refused by all listeners.
type Bans struct {
	Bans []Ban `json:"bans"`
	Hits int64 `json:"hits"` // clients that were refused
}

// Ban is one of them.
type Ban struct {
	Network netip.Prefix `json:"network"`
	At      time.Time    `json:"at"`
	Until   time.Time    `json:"until,omitzero"` // missing: until it is lifted
	By      string       `json:"by,omitempty"`
	Why     string       `json:"why,omitempty"`
	Fleet   bool         `json:"fleet"`           // all relays of the fleet have it
	Ended   int64        `json:"ended,omitempty"` // flows that this relay has ended; only in the answer to a new ban
	Error   string       `json:"error,omitempty"` // why the fleet could not be told; this relay has it nevertheless
}

// NewBan is the body of a new ban. One of the same network is replaced.
type NewBan struct {
	Network  string  `json:"network"`       // or an address
	For      float64 `json:"for,omitempty"` // seconds, at least 1; 0: until it is lifted
	Why      string  `json:"why,omitempty"`
	EndFlows bool    `json:"end_flows,omitempty"` // end open flows, too
}

// maxBanSeconds is ten years.
const maxBanSeconds = 10 * 365 * 86400

// Check returns an error if the ban is invalid. It does not check the network.
func (n *NewBan) Check() error {
	switch {
	case n.Network == "":
		return NewProblem(http.StatusBadRequest, "the network is missing", "network: an address or a network")
	case n.For != 0 && !(n.For >= 1 && n.For <= maxBanSeconds):
		return NewProblem(http.StatusBadRequest, "for: out of range", "0, or 1 to 315360000 seconds")
	case len(n.Why) > 255:
		return NewProblem(http.StatusBadRequest, "why: too long", "up to 255 bytes")
	}
	return nil
}

// Bans returns the bans that hold.
func (c *Client) Bans(ctx context.Context) (b Bans, err error) { return b, c.get(ctx, "/v1/bans", &b) }

// Ban bans a network.
func (c *Client) Ban(ctx context.Context, n NewBan) (b Ban, err error) {
	return b, c.send(ctx, "POST", "/v1/bans", n, &b)
}

// Unban lifts the ban of a network.
func (c *Client) Unban(ctx context.Context, network string) (b Ban, err error) {
	return b, c.do(ctx, "DELETE", "/v1/bans/"+url.PathEscape(network), "", nil, &b)
}
