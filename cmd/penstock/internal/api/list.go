package api

import (
	"context"
	"time"
)

// Lists are the lists of networks.
type Lists struct {
	Lists []List `json:"lists"`
}

// List is one list of networks.
type List struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"`
	Networks int       `json:"networks"` // without those that others contain
	Bytes    int       `json:"bytes"`    // of memory
	Hits     int64     `json:"hits"`     // clients that were looked up and found
	Loaded   time.Time `json:"loaded,omitzero"`
	Saved    bool      `json:"saved,omitempty"`     // what it has is from the disk, because it was not loaded yet since the start
	BadLines int       `json:"bad_lines,omitempty"` // of what was loaded; they were left out
	FirstBad []string  `json:"first_bad,omitempty"` // the first of them
	Error    string    `json:"error,omitempty"`     // of the last attempt; what was loaded before stays
	Since    time.Time `json:"since,omitzero"`      // since when it fails
	Failures int64     `json:"failures"`
}

// Lists returns the lists of networks.
func (c *Client) Lists(ctx context.Context) (l Lists, err error) {
	return l, c.get(ctx, "/v1/lists", &l)
}
