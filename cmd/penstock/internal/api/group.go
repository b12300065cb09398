package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
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

	// ProxyProtocol says that proxies name its clients in a PROXY header: packets come from the proxies.
	ProxyProtocol bool `json:"proxy_protocol,omitempty"`

	// Protocols are what clients spoke that were routed by their first bytes; nil: none were.
	Protocols []ProtocolCount `json:"protocols,omitempty"`

	// Certificates are those that the listener shows, where it terminates TLS; the first is the default.
	Certificates []Certificate `json:"certificates,omitempty"`
	// FailingFiles are files of certificates and keys that have changed and cannot be used; what was read before is. CertificateFailures counts
	// how often one was.
	FailingFiles        []string `json:"failing_files,omitempty"`
	CertificateFailures int64    `json:"certificate_failures,omitempty"`
}

// ProtocolCount is the number of clients that have spoken a protocol.
type ProtocolCount struct {
	Protocol string `json:"protocol"` // one of a route's protocol; unknown: none of these
	Count    int64  `json:"count"`
}

// Certificate is one of a listener, with its chain.
type Certificate struct {
	File      string    `json:"file"`
	Names     []string  `json:"names,omitempty"` // server names that it is chosen by
	Key       string    `json:"key"`             // the kind of its key: RSA, ECDSA, Ed25519
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"` // in hexadecimal digits
	NotBefore time.Time `json:"not_before"`
	Expires   time.Time `json:"expires"` // that of the chain which ends first
	Stapled   bool      `json:"stapled,omitempty"`
	// StapleExpires is the end of the OCSP response that was read for it, whether it is still sent or not.
	StapleExpires time.Time `json:"staple_expires,omitzero"`
}

// Route is one rule of a listener.
type Route struct {
	Name  string   `json:"name"`
	Group string   `json:"group,omitempty"` // where it leads, if that is one group
	Parts []Part   `json:"parts,omitempty"` // where it leads otherwise
	From  []string `json:"from,omitempty"`
	SNI   []string `json:"sni,omitempty"`
	ALPN  []string `json:"alpn,omitempty"`
	// What the first bytes of clients must be.
	Protocols []string `json:"protocols,omitempty"`
	Prefixes  []string `json:"prefixes,omitempty"` // as quoted strings of Go
	Hosts     []string `json:"hosts,omitempty"`
	Silence   float64  `json:"silence,omitempty"` // seconds
	// ClientNames are names in a client's certificate, and PassTLS reports that TLS passes through, where the listener terminates it.
	ClientNames []string `json:"client_names,omitempty"`
	PassTLS     bool     `json:"pass_tls,omitempty"`
	Default     bool     `json:"default,omitempty"` // no other route matches
	// FleetWeights says that operators have changed the weights of the parts on all relays of the fleet.
	FleetWeights bool   `json:"fleet_weights,omitempty"`
	Error        string `json:"error,omitempty"` // why the fleet could not be told of a change, which this relay has; only in the answer to one
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
	// Destination says where flows go instead of to members; absent: to members.
	Destination string `json:"destination,omitempty"`
	Panic       bool   `json:"panic,omitempty"` // panic mode: too few members are healthy, so all take flows
	Queue       Queue  `json:"queue"`
	Retries     int64  `json:"retries"` // connects that were retried at another member
	// DownKept are the flows that down has not ended, because their member went down together with most of the group.
	DownKept int64 `json:"down_kept"`
	Numbers
	Latency Latency  `json:"latency"`           // of its flows
	Lookups []Lookup `json:"lookups,omitempty"` // of the names of the group and of its members
	Changed int      `json:"changed"`           // members that differ from the file: see MemberChanges
	Members []Member `json:"members"`
}

// Lookup is the result of looking up a name in DNS, or in a registry.
type Lookup struct {
	Name     string    `json:"name"`
	Registry string    `json:"registry,omitempty"` // where it is looked up; absent: DNS
	Members  int       `json:"members"`            // that the name has now
	LeftOut  int       `json:"left_out,omitempty"` // members beyond lookups.max-members
	Failures int64     `json:"failures"`           // failed lookups
	Time     time.Time `json:"time,omitzero"`      // of the last lookup; absent before the first has ended
	GoodTime time.Time `json:"good_time,omitzero"` // of the last good answer, which may be from before the start; absent before the first
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
	Name             string          `json:"name"`
	Address          string          `json:"address"`
	State            string          `json:"state"` // one of States
	Why              string          `json:"why,omitempty"`
	Since            time.Time       `json:"since,omitzero"`
	Until            time.Time       `json:"until,omitzero"` // of ejected: when the ejection ends
	Available        bool            `json:"available"`      // takes new flows now
	Weight           int             `json:"weight"`         // 1 to 256
	Backup           bool            `json:"backup"`
	Zone             string          `json:"zone,omitempty"`
	Priority         int             `json:"priority,omitempty"` // 0 is used first
	Draining         bool            `json:"draining,omitempty"` // its registry says that it gets no new flows
	Health           string          `json:"health,omitempty"`   // what an xDS control plane says of it: degraded, unhealthy, draining; empty: healthy, or nothing
	Metadata         json.RawMessage `json:"metadata,omitempty"` // what its registry knows of it, an object
	Discovered       bool            `json:"discovered"`         // by DNS or in a registry, not in the file
	MaxFlows         int             `json:"max_flows"`          // 0 for no cap
	Connects         int64           `json:"connects"`           // successful attempts to connect
	Failures         int64           `json:"failures"`           // failed attempts to connect
	ConnectSeconds   float64         `json:"connect_seconds"`    // total of all successful attempts
	Answers          int64           `json:"answers"`            // ended flows in which the member sent a byte
	FirstByteSeconds float64         `json:"first_byte_seconds"` // total of their times from the connect until the first byte
	Check            *Check          `json:"check,omitempty"`
	Agent            *Agent          `json:"agent,omitempty"`
	Numbers
}

// Members is the answer to a change: all members with that name or address.
type Members struct {
	Members []Member `json:"members"`
	// NewWorker reports that another worker takes over, which has the member at its new address; this one may not connect there. Open flows
	// continue, except for TLSFlows.
	NewWorker bool  `json:"new_worker,omitempty"`
	TLSFlows  int64 `json:"tls_flows,omitempty"`
	// NoneAvailable reports that after the change no member of the group takes new flows.
	NoneAvailable bool `json:"none_available,omitempty"`
}

// Check is the last active health check of a member.
type Check struct {
	Time   time.Time `json:"time"`
	OK     bool      `json:"ok"`
	Took   float64   `json:"took"`
	Error  string    `json:"error,omitempty"`
	Streak int       `json:"streak"` // consecutive checks with this result
	// CertificateExpires is the end of the certificate that the member has shown last, whether or not it is good; absent without TLS.
	CertificateExpires time.Time `json:"certificate_expires,omitzero"`
}

// Agent is what a member's agent has said.
type Agent struct {
	Time  time.Time `json:"time,omitzero"`   // of the last answer; absent: none yet
	Says  string    `json:"says,omitempty"`  // all that it has said and not taken back, in its own words
	Error string    `json:"error,omitempty"` // of the last time that it was asked
}

// MemberChange is the body of a PATCH of a member. A field that is nil or empty changes
// nothing. The change lasts until the daemon ends, or until the file changes the same
// setting.
type MemberChange struct {
	Weight  *int   `json:"weight,omitempty"`  // 1 to 256; 0 for the configured weight
	State   string `json:"state,omitempty"`   // one of MemberStates
	Address string `json:"address,omitempty"` // where to connect from now on, a URL
}

// MemberStates are the values of MemberChange.State: take flows; take no new flows; take no
// flows and end the open ones; follow the configuration, in address and weight too. A member
// that was removed is then there again.
var MemberStates = []string{"enable", "drain", "disable", "file"}

// Check returns an error if the change is invalid.
func (c *MemberChange) Check() error {
	switch {
	case c.Weight == nil && c.State == "" && c.Address == "":
		return NewProblem(http.StatusBadRequest, "the change is empty", "weight, state, address")
	case c.Weight != nil && (*c.Weight < 0 || *c.Weight > 256):
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("weight: %d", *c.Weight), "1 to 256, or 0 for the configured weight")
	case c.Address != "" && c.State == "file":
		return NewProblem(http.StatusBadRequest, "address: the state file restores the configured one", "an address or the state file")
	case c.State != "" && !slices.Contains(MemberStates, c.State):
		return NewProblem(http.StatusBadRequest, "state: "+Quote(c.State), strings.Join(MemberStates, ", "))
	}
	return nil
}

// NewMember is the body of a POST of a member. It stays until the daemon ends, or the file has a
// member of that name.
type NewMember struct {
	Address  string `json:"address"`             // a URL
	Name     string `json:"name,omitempty"`      // the address if empty
	Weight   int    `json:"weight,omitempty"`    // 1 to 256; 0 means 1
	Backup   bool   `json:"backup,omitempty"`    // takes flows only if no other member can
	MaxFlows int    `json:"max_flows,omitempty"` // 0 for no limit

	CheckPort    int        `json:"check_port,omitempty"`   // to check instead of its own; 0: as the group's check says
	CheckAddress netip.Addr `json:"check_address,omitzero"` // to check instead of its own

	QUICServerID string `json:"quic_server_id,omitempty"` // its ID in connection IDs of QUIC, in hexadecimal digits
}

// maxMemberCap is the maximum of NewMember.MaxFlows.
const maxMemberCap = 1 << 20

// Check returns an error if the member is invalid. It does not check the address and the name,
// for which the rules of the configuration hold.
func (m *NewMember) Check() error {
	switch {
	case m.Address == "":
		return NewProblem(http.StatusBadRequest, "address: missing", "a URL, such as tcp://10.0.0.1:80")
	case m.Weight < 0 || m.Weight > 256:
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("weight: %d", m.Weight), "1 to 256, or 0 for 1")
	case m.MaxFlows < 0 || m.MaxFlows > maxMemberCap:
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("max_flows: %d", m.MaxFlows), fmt.Sprintf("0 to %d", maxMemberCap))
	case m.CheckPort < 0 || m.CheckPort > 65535:
		return NewProblem(http.StatusBadRequest, fmt.Sprintf("check_port: %d", m.CheckPort), "1 to 65535, or 0 for the port that the group's check says")
	case m.CheckAddress.IsValid() && (m.CheckAddress.Zone() != "" || m.CheckAddress.Unmap().IsUnspecified() || m.CheckAddress.IsMulticast()):
		return NewProblem(http.StatusBadRequest, "check_address: "+m.CheckAddress.String(), "the IP address of a host")
	}
	return nil
}

// MemberChanges is the body of /v1/changes: how running members, and the weights of parts, differ from the file.
type MemberChanges struct {
	Changes []MemberDifference `json:"changes"`
	Splits  []SplitDifference  `json:"splits"`
	// YAML has the members of the groups, and the parts of the routes, that differ, for the file: as an overlay, or to be put in
	// place of what it has.
	YAML string `json:"yaml"`
}

// MemberDifference is how one member differs.
type MemberDifference struct {
	Group  string            `json:"group"`
	Member string            `json:"member"`
	What   string            `json:"what"` // added, removed, changed
	Fields []FieldDifference `json:"fields"`
}

// FieldDifference is a setting of a member: to (the address), weight, or state.
type FieldDifference struct {
	Name    string `json:"name"`
	File    string `json:"file"`    // empty if the file does not have the member
	Running string `json:"running"` // empty if the member was removed
}
