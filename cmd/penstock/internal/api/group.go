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

// Listener is an address that clients connect to.
type Listener struct {
	Name    string  `json:"name"`
	Address string  `json:"address"` // as a URL, with the actual port
	Kind    string  `json:"kind"`    // stream or datagram
	State   string  `json:"state"`   // open, resting (out of descriptors) or closed (draining)
	Numbers         // of all flows of the listener
	Routes  []Route `json:"routes"` // in the order of evaluation
}

// Route is one rule of a listener.
type Route struct {
	Name    string   `json:"name"`
	Group   string   `json:"group"`
	From    []string `json:"from,omitempty"`
	SNI     []string `json:"sni,omitempty"`
	ALPN    []string `json:"alpn,omitempty"`
	Default bool     `json:"default,omitempty"` // no other route matches
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
	Panic   bool   `json:"panic,omitempty"` // panic mode: too few members are healthy, so all take flows
	Queue   Queue  `json:"queue"`
	Retries int64  `json:"retries"` // connects that were retried at another member
	Numbers
	Latency Latency  `json:"latency"`           // of its flows
	Lookups []Lookup `json:"lookups,omitempty"` // of the names of the group and of its members
	Members []Member `json:"members"`
}

// Lookup is the result of DNS lookups of a name.
type Lookup struct {
	Name     string    `json:"name"`
	Members  int       `json:"members"`            // that the name has now
	LeftOut  int       `json:"left_out,omitempty"` // members beyond lookups.max-members
	Failures int64     `json:"failures"`           // failed lookups
	Time     time.Time `json:"time,omitzero"`      // of the last lookup; absent before the first has ended
	Error    string    `json:"error,omitempty"`    // of the last lookup; the members are then those of the last good one
}

// Queue is the queue of a group, where flows wait while no member has room.
type Queue struct {
	Size        int   `json:"size"`
	Flows       int   `json:"flows"`        // in the queue now
	QueuedTotal int64 `json:"queued_total"` // flows that entered the queue
	TimedOut    int64 `json:"timed_out"`    // flows refused because they had queued for too long
	Full        int64 `json:"full"`         // flows refused because the queue was full
}

// States are the values of Member.State. A state earlier in the list hides a later one. A
// member takes flows in the states up, slow-start and checking, in which its first health
// check has not ended.
var States = []string{"disabled", "drained", "down", "ejected", "checking", "slow-start", "up"}

// Member is one upstream of a group. Name and address together are unique: a name
// that DNS resolves to several addresses is several members.
type Member struct {
	Name           string    `json:"name"`
	Address        string    `json:"address"`
	State          string    `json:"state"` // one of States
	Why            string    `json:"why,omitempty"`
	Since          time.Time `json:"since,omitzero"`
	Until          time.Time `json:"until,omitzero"` // of ejected: when the ejection ends
	Available      bool      `json:"available"`      // takes new flows now
	Weight         int       `json:"weight"`         // 1 to 256
	Backup         bool      `json:"backup"`
	Discovered     bool      `json:"discovered"`      // by DNS, not in the file
	MaxFlows       int       `json:"max_flows"`       // 0 for no cap
	Connects       int64     `json:"connects"`        // successful attempts to connect
	Failures       int64     `json:"failures"`        // failed attempts to connect
	ConnectSeconds float64   `json:"connect_seconds"` // total of all successful attempts
	Check          *Check    `json:"check,omitempty"`
	Numbers
}

// Members is the answer to a change: all members with that name or address.
type Members struct {
	Members []Member `json:"members"`
}

// Check is the last active health check of a member.
type Check struct {
	Time   time.Time `json:"time"`
	OK     bool      `json:"ok"`
	Took   float64   `json:"took"`
	Error  string    `json:"error,omitempty"`
	Streak int       `json:"streak"` // consecutive checks with this result
}

// MemberChange is the body of a PATCH of a member. A field that is nil or empty changes
// nothing. The change lasts until the process ends, or until the file changes the same
// setting.
type MemberChange struct {
	Weight *int   `json:"weight,omitempty"` // 1 to 256; 0 for the configured weight
	State  string `json:"state,omitempty"`  // one of MemberStates
}

// MemberStates are the values of MemberChange.State: take flows; take no new flows; take no
// flows and end the open ones; follow the configuration.
var MemberStates = []string{"enable", "drain", "disable", "file"}

// Check returns an error if the change is invalid.
func (c *MemberChange) Check() error {
	switch {
	case c.Weight == nil && c.State == "":
		return NewProblem(http.StatusBadRequest, "the change is empty", "weight, state")
	case c.Weight != nil && (*c.Weight < 0 || *c.Weight > 256):
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("weight: %d", *c.Weight), "1 to 256, or 0 for the configured weight")
	case c.State != "" && !slices.Contains(MemberStates, c.State):
		return NewProblem(http.StatusBadRequest, "state: "+Quote(c.State), strings.Join(MemberStates, ", "))
	}
	return nil
}
