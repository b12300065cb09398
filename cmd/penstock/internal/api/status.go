package api

import "time"

// The states of the daemon.
const (
	StateStarting = "starting"
	StateReady    = "ready"
	StateDraining = "draining"
)

// Status is the whole of the daemon at one moment.
type Status struct {
	Version string     `json:"version"`
	PID     int        `json:"pid"`
	Started time.Time  `json:"started"`
	Config  ConfigInfo `json:"config"`
	Access  string     `json:"access"` // what the asker may do: read or full
	Sample
}

// Sample is what changes: one is sent a second by the stream. Rates are for the
// reader to take from the difference of two.
type Sample struct {
	Time      time.Time         `json:"time"`
	Uptime    float64           `json:"uptime"`
	State     string            `json:"state"`
	Hash      string            `json:"config_hash"` // of the configuration in force
	LastEvent uint64            `json:"last_event"`  // the id of the youngest event; 0: none yet
	Totals    Numbers           `json:"totals"`
	Loops     []Loop            `json:"loops"`
	Resources Resources         `json:"resources"`
	Paths     []PathCount       `json:"paths"`
	Listeners []ListenerSummary `json:"listeners"`
	Groups    []GroupSummary    `json:"groups"`
	Refusals  []Refusal         `json:"refusals"` // those that there were
	Latency   Latency           `json:"latency"`  // of all flows
}

// Numbers are the counters of flows, and the gauge of those that are open.
type Numbers struct {
	Flows         int64 `json:"flows"` // open now
	Begun         int64 `json:"begun"`
	Refused       int64 `json:"refused"`
	Failed        int64 `json:"failed"` // ended by an error or a limit, not by both sides
	BytesUp       int64 `json:"bytes_up"`
	BytesDown     int64 `json:"bytes_down"`
	DatagramsUp   int64 `json:"datagrams_up"`
	DatagramsDown int64 `json:"datagrams_down"`
}

// Loop is one event loop.
type Loop struct {
	Flows       int64   `json:"flows"`
	Busy        float64 `json:"busy"`         // seconds that it was not asleep
	LongestTurn float64 `json:"longest_turn"` // in the last 15 to 30 seconds
	Events      int64   `json:"events"`
	Waits       int64   `json:"waits"`   // epoll_wait calls
	Wakeups     int64   `json:"wakeups"` // of them, those that slept
}

// Resources are what the daemon holds, and the bounds of it. A bound of 0 is unknown.
type Resources struct {
	FDs               int64   `json:"fds"` // open descriptors; 0: the kernel does not tell cheaply
	MaxFDs            int64   `json:"max_fds"`
	PipesOpen         int64   `json:"pipes_open"`
	PipesLeased       int64   `json:"pipes_leased"`
	PipesMax          int64   `json:"pipes_max"`
	PipesRefused      int64   `json:"pipes_refused"`
	DatagramsLost     int64   `json:"datagrams_lost"`      // datagrams that the kernel dropped before they could be read
	GSOFallbacks      int64   `json:"gso_fallbacks"`       // runs of datagrams that had to be sent one by one
	DatagramHeldBytes int64   `json:"datagram_held_bytes"` // of datagrams, while upstream sockets are full
	LogLinesDropped   int64   `json:"log_lines_dropped"`   // of the log and the access log
	Goroutines        int     `json:"goroutines"`
	HeapBytes         int64   `json:"heap_bytes"`
	CPU               float64 `json:"cpu"` // seconds of user and system time; 0: unknown
}

// PathCount tells how many directions of ended flows went by a data path, and why not by a faster one.
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
	Up      int    `json:"up"`     // members that take new flows
	Queued  int    `json:"queued"` // flows in its queue
	Numbers
}

// Ready is the body of /healthz and /readyz.
type Ready struct {
	State string `json:"state"`
}

// Drain is how far the end of the daemon has come.
type Drain struct {
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"` // when the rest is cut
	AtStart  int64     `json:"flows_at_start"`
	Flows    int64     `json:"flows"` // still open
}

// Level is the level of the log.
type Level struct {
	Level string `json:"level"` // debug, info, warn or error
}

// Levels are the values of Level.
var Levels = []string{"debug", "info", "warn", "error"}

// Event is something that happened to the daemon, not to a flow.
type Event struct {
	ID      uint64    `json:"id"` // ascending from 1
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`   // info, warn or error
	Kind    string    `json:"kind"`    // health, reload, member, drain, kill, log, listener, discovery
	Subject string    `json:"subject"` // what it happened to: a listener, GROUP/MEMBER, a file
	Message string    `json:"message"`
	By      string    `json:"by,omitempty"` // who asked for it; empty: nobody did, it happened
}

// Events are the youngest ones, oldest first.
type Events struct {
	Events []Event `json:"events"`
	// Dropped is the number of events after the requested id that are no longer kept.
	Dropped uint64 `json:"dropped"`
}
