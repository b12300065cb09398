package api

import "time"

// The states of the daemon.
const (
	StateStarting = "starting"
	StateReady    = "ready"
	StateDraining = "draining"
	StateDrained  = "drained" // the fleet's operator wants no new flows; the daemon goes on
)

// Status is the state of the daemon.
type Status struct {
	Version string     `json:"version"`
	PID     int        `json:"pid"`
	Started time.Time  `json:"started"`
	Config  ConfigInfo `json:"config"`
	Access  string     `json:"access"`            // of the client that asks: read or full
	Sandbox *Sandbox   `json:"sandbox,omitempty"` // nil: the process has given up nothing
	// KernelTLS says whether the kernel has TLS: works, or why not; empty: kernel: auto is nowhere in the configuration, and was not.
	KernelTLS string `json:"kernel_tls,omitempty"`
	Sample
}

// Sample is the part of Status that changes all the time. The stream sends one per second.
// Rates follow from the difference between two samples.
type Sample struct {
	Time      time.Time         `json:"time"`
	Uptime    float64           `json:"uptime"`
	State     string            `json:"state"`
	Hash      string            `json:"config_hash"` // of the running configuration
	LastEvent uint64            `json:"last_event"`  // the id of the latest event; 0 if there is none
	Totals    Numbers           `json:"totals"`
	Loops     []Loop            `json:"loops"`
	Resources Resources         `json:"resources"`
	Overload  Overload          `json:"overload"`
	Names     *Names            `json:"names,omitempty"` // absent without groups with a destination
	QUIC      *QUIC             `json:"quic,omitempty"`  // absent where no connections of QUIC are recognised
	Paths     []PathCount       `json:"paths"`
	Listeners []ListenerSummary `json:"listeners"`
	Groups    []GroupSummary    `json:"groups"`
	Refusals  []Refusal         `json:"refusals"`         // that have occurred
	Latency   Latency           `json:"latency"`          // of all flows
	Keeper    *Keeper           `json:"keeper,omitempty"` // nil: there is none
	Fleet     *Fleet            `json:"fleet,omitempty"`  // nil: the relay is in none
}

// Numbers counts flows and what they moved.
type Numbers struct {
	Flows         int64 `json:"flows"` // open now
	Begun         int64 `json:"begun"`
	Refused       int64 `json:"refused"`
	Failed        int64 `json:"failed"` // ended because the relay could not do its job
	BytesUp       int64 `json:"bytes_up"`
	BytesDown     int64 `json:"bytes_down"`
	DatagramsUp   int64 `json:"datagrams_up"`
	DatagramsDown int64 `json:"datagrams_down"`
}

// Loop is one event loop.
type Loop struct {
	Flows       int64   `json:"flows"`
	Busy        float64 `json:"busy"`         // seconds that it was not waiting
	LongestTurn float64 `json:"longest_turn"` // in the last 15 to 30 seconds
	Events      int64   `json:"events"`
	Waits       int64   `json:"waits"`   // epoll_wait calls
	Wakeups     int64   `json:"wakeups"` // of waits, those that slept
}

// Resources are the resources in use, and their limits. A limit of 0 is unknown.
type Resources struct {
	FDs               int64          `json:"fds"` // open descriptors; 0 if unknown
	MaxFDs            int64          `json:"max_fds"`
	PipesOpen         int64          `json:"pipes_open"`
	PipesLeased       int64          `json:"pipes_leased"`
	PipesMax          int64          `json:"pipes_max"`
	PipesRefused      int64          `json:"pipes_refused"`
	DatagramsLost     int64          `json:"datagrams_lost"`              // datagrams that the kernel dropped before they could be read
	DatagramsDropped  []DatagramDrop `json:"datagrams_dropped,omitempty"` // by the relay, for the reasons that have occurred
	GSOFallbacks      int64          `json:"gso_fallbacks"`               // messages of several datagrams that had to be sent datagram by datagram
	DatagramHeldBytes int64          `json:"datagram_held_bytes"`         // of datagrams, while upstream sockets are full
	LogLinesDropped   int64          `json:"log_lines_dropped"`           // of the log and the access log
	TLSFlows          int64          `json:"tls_flows"`                   // open flows whose TLS ends or begins here; no other worker can continue them
	Goroutines        int            `json:"goroutines"`
	HeapBytes         int64          `json:"heap_bytes"`
	CPU               float64        `json:"cpu"` // seconds of user and system time; 0 if unknown
}

// DatagramDrop is the number of datagrams that were read and not delivered, for a reason.
type DatagramDrop struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// PathCount is the number of directions of ended flows that used a data path, and why they
// did not use a faster one.
type PathCount struct {
	Path       string `json:"path"`
	Why        string `json:"why,omitempty"`
	Directions int64  `json:"directions"`
}

// ListenerSummary is a listener in a sample.
type ListenerSummary struct {
	Name string `json:"name"`
	Numbers
}

// GroupSummary is a group in a sample.
type GroupSummary struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
	Up      int    `json:"up"`      // members that take new flows
	Changed int    `json:"changed"` // members that differ from the file
	Queued  int    `json:"queued"`  // flows in its queue
	// LookupError is the error of one of its lookups, and LookupGoodTime when its last good answer came.
	LookupError    string    `json:"lookup_error,omitempty"`
	LookupGoodTime time.Time `json:"lookup_good_time,omitzero"`
	Numbers
}

// Ready is the body of /healthz and /readyz.
type Ready struct {
	State string `json:"state"`
}

// Drain is the progress of the drain of the daemon.
type Drain struct {
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"` // when the remaining flows are cut
	AtStart  int64     `json:"flows_at_start"`
	Flows    int64     `json:"flows"` // still open
}

// Level is the level of the log.
type Level struct {
	Level string `json:"level"` // debug, info, warn or error
}

// Levels are the values of Level.
var Levels = []string{"debug", "info", "warn", "error"}

// Event is something that happened to the daemon, as opposed to a flow.
type Event struct {
	ID      uint64    `json:"id"` // ascending from 1
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`   // info, warn or error
	Kind    string    `json:"kind"`    // health, reload, member, split, drain, kill, log, listener, discovery, worker, fleet, overload, certificate
	Subject string    `json:"subject"` // a listener, GROUP/MEMBER or a file
	Message string    `json:"message"`
	By      string    `json:"by,omitempty"` // who asked for it; empty: nobody did, it happened
}

// Events are the latest events, oldest first.
type Events struct {
	Events []Event `json:"events"`
	// Dropped is the number of events after the requested id that are no longer kept.
	Dropped uint64 `json:"dropped"`
}
