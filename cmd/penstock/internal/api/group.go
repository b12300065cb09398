package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Listeners is the body of /v1/listeners.
type Listeners struct {
	Listeners []Listener `json:"listeners"`
}

// Listener is one address that clients come to.
type Listener struct {
	Name    string  `json:"name"`
	Address string  `json:"address"` // where it is bound, as a URL; the port is the real one
	Kind    string  `json:"kind"`    // stream or datagram
	State   string  `json:"state"`   // open, resting (no descriptor left), closed (draining)
	Numbers         // of all its flows
	Routes  []Route `json:"routes"` // in the order in which they are asked
}

// Route is one rule of a listener.
type Route struct {
	Name    string   `json:"name"`
	Group   string   `json:"group"`
	From    []string `json:"from,omitempty"`
	SNI     []string `json:"sni,omitempty"`
	ALPN    []string `json:"alpn,omitempty"`
	Default bool     `json:"default,omitempty"` // for clients that no other route takes
	Numbers
}

// Groups is the body of /v1/groups.
type Groups struct {
	Groups []Group `json:"groups"`
}

// Group is a set of upstreams.
type Group struct {
	Name    string `json:"name"`
	Balance string `json:"balance"`
	Panic   bool   `json:"panic,omitempty"` // too few members are well: all take flows
	Queue   Queue  `json:"queue"`
	Retries int64  `json:"retries"` // connects that were tried again at another member
	Numbers
	Latency Latency  `json:"latency"`           // of its flows
	Lookups []Lookup `json:"lookups,omitempty"` // of names, of members too
	Members []Member `json:"members"`
}

// Lookup is what DNS says of a name.
type Lookup struct {
	Name     string    `json:"name"`
	Members  int       `json:"members"`            // that it has now
	LeftOut  int       `json:"left_out,omitempty"` // members beyond lookups.max-members
	Failures int64     `json:"failures"`           // look-ups that found nothing
	Time     time.Time `json:"time,omitzero"`      // of the last one; none: it is under way
	Error    string    `json:"error,omitempty"`    // of the last one; its members are those of the last good one
}

// Queue is where flows wait while all members of a group are at their caps.
type Queue struct {
	Size        int   `json:"size"`
	Flows       int   `json:"flows"`        // in the queue now
	QueuedTotal int64 `json:"queued_total"` // flows that entered the queue
	TimedOut    int64 `json:"timed_out"`    // flows refused because they had queued for too long
	Full        int64 `json:"full"`         // flows refused because the queue was full
}

// States are what a member is to those who pick, from the one that hides the
// others on: slow-start and up take flows, and so does checking, where the first check has not ended.
var States = []string{"disabled", "drained", "down", "ejected", "checking", "slow-start", "up"}

// Member is one upstream of a group. Name and address together are unique: a name
// that DNS resolves to several addresses is several members.
type Member struct {
	Name           string    `json:"name"`
	Address        string    `json:"address"`
	State          string    `json:"state"` // one of States
	Why            string    `json:"why,omitempty"`
	Since          time.Time `json:"since,omitzero"`
	Until          time.Time `json:"until,omitzero"` // of ejected: when it is tried again
	Available      bool      `json:"available"`      // takes new flows now
	Weight         int       `json:"weight"`         // 1 to 256
	Backup         bool      `json:"backup"`
	Discovered     bool      `json:"discovered"`      // by DNS, not in the file
	MaxFlows       int       `json:"max_flows"`       // 0: no cap
	Connects       int64     `json:"connects"`        // attempts that succeeded
	Failures       int64     `json:"failures"`        // attempts to connect that failed
	ConnectSeconds float64   `json:"connect_seconds"` // total of all successful attempts
	Check          *Check    `json:"check,omitempty"`
	Numbers
}

// Members is the answer to a change: all members of that name or address.
type Members struct {
	Members []Member `json:"members"`
}

// Check is the last active health check of a member.
type Check struct {
	Time   time.Time `json:"time"`
	OK     bool      `json:"ok"`
	Took   float64   `json:"took"`
	Error  string    `json:"error,omitempty"`
	Streak int       `json:"streak"` // how many in a row ended so
}

// MemberChange is the body of a PATCH of a member. What is nil or empty stays.
// It lasts until the process ends, or the file says something else about the same thing than before.
type MemberChange struct {
	Weight *int   `json:"weight,omitempty"` // 1 to 256; 0: the file's
	State  string `json:"state,omitempty"`  // one of MemberStates
}

// MemberStates are the values of MemberChange.State: take flows, take no new
// ones, take none and end those that are there, and what the file says.
var MemberStates = []string{"enable", "drain", "disable", "file"}

// Check returns what is wrong with a change, or nil.
func (c *MemberChange) Check() error {
	switch {
	case c.Weight == nil && c.State == "":
		return NewProblem(http.StatusBadRequest, "a change of nothing", "weight, state")
	case c.Weight != nil && (*c.Weight < 0 || *c.Weight > 256):
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("weight: %d", *c.Weight), "1 to 256, or 0 for the file's")
	case c.State != "" && !slices.Contains(MemberStates, c.State):
		return NewProblem(http.StatusBadRequest, "state: "+Quote(c.State), strings.Join(MemberStates, ", "))
	}
	return nil
}
