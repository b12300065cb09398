package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Part is one of the destinations among which a route splits its clients.
type Part struct {
	Name       string `json:"name"`             // of its group, or "refuse"
	Refuse     bool   `json:"refuse,omitempty"` // its clients are refused
	Weight     int    `json:"weight"`
	FileWeight int    `json:"file_weight"` // differs from Weight if operators have changed it
	Numbers
}

// Groups returns the names of the groups to which a route leads.
func (r *Route) Groups() []string {
	if r.Group != "" {
		return []string{r.Group}
	}
	var names []string
	for i := range r.Parts {
		if !r.Parts[i].Refuse {
			names = append(names, r.Parts[i].Name)
		}
	}
	return names
}

// Share returns the share of a weight for people: 95%.
func Share(weight, total int) string {
	return strconv.FormatFloat(math.Round(1e6*float64(weight)/float64(total))/1e4, 'f', -1, 64) + "%"
}

// Share returns the share of the part with index i for people.
func (r *Route) Share(i int) string {
	total := 0
	for i := range r.Parts {
		total += r.Parts[i].Weight
	}
	return Share(r.Parts[i].Weight, total)
}

// Shares returns the shares of all parts for people: blue 95%, green 5%.
func (r *Route) Shares() string {
	var list []string
	for i := range r.Parts {
		list = append(list, r.Parts[i].Name+" "+r.Share(i))
	}
	return strings.Join(list, ", ")
}

// SplitChange is the body of a PATCH of a route. It lasts until the daemon ends, or until the file changes the parts of the route or their
// weights.
type SplitChange struct {
	Weights PartWeights `json:"weights,omitempty"` // of some parts, by their names; the others keep theirs
	State   string      `json:"state,omitempty"`   // file: all parts have the weights of the configuration again
}

// PartWeights are weights of parts by their names.
type PartWeights map[string]int

// UnmarshalJSON reads an object. null is not a weight: encoding/json would take it for 0.
func (w *PartWeights) UnmarshalJSON(b []byte) error {
	var all map[string]*int
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*w = make(PartWeights, len(all))
	for name, n := range all {
		if n == nil {
			return fmt.Errorf("weights: %s: null; allowed: a whole number", Quote(name))
		}
		(*w)[name] = *n
	}
	return nil
}

// Check returns an error if the change is invalid. It does not check the parts and the values of their weights, for which the rules of the
// configuration hold.
func (c *SplitChange) Check() error {
	switch {
	case len(c.Weights) == 0 && c.State == "":
		return NewProblem(http.StatusBadRequest, "the change is empty", "weights, state")
	case c.State != "" && c.State != "file":
		return NewProblem(http.StatusBadRequest, "state: "+Quote(c.State), "file")
	case len(c.Weights) > 0 && c.State != "":
		return NewProblem(http.StatusBadRequest, "weights: the state file restores the configured ones", "weights or the state file")
	}
	return nil
}

// SetSplit changes the weights of the parts of a route, and returns the route.
func (c *Client) SetSplit(ctx context.Context, listener, route string, change SplitChange) (r Route, err error) {
	return r, c.send(ctx, "PATCH", "/v1/listeners/"+url.PathEscape(listener)+"/routes/"+url.PathEscape(route), change, &r)
}

// SplitDifference is how the weights of a route's parts differ from the file.
type SplitDifference struct {
	Listener string           `json:"listener"`
	Route    string           `json:"route"`
	Fleet    bool             `json:"fleet,omitempty"` // all relays of the fleet were told
	Parts    []PartDifference `json:"parts"`
}

// PartDifference is a part with another weight than in the file.
type PartDifference struct {
	Name    string `json:"name"`
	File    int    `json:"file"`
	Running int    `json:"running"`
}
