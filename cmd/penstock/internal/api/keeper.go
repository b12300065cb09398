package api

import "time"

// Keeper is the state of the keeper, the process that holds the sockets of flows, and of the
// workers that it has started. Counts begin with the keeper.
type Keeper struct {
	PID   int       `json:"pid"`
	Up    bool      `json:"up"` // false: the keeper is gone, and flows end with the worker
	Since time.Time `json:"since"`
	// Worker is the process that relays, and WorkerSince its start.
	Worker      int       `json:"worker_pid"`
	WorkerSince time.Time `json:"worker_since"`
	// Healthy is false until the worker of an upgrade has run for keeper.healthy-after: until then
	// its death would bring the old binary back.
	Healthy bool          `json:"healthy"`
	Starts  []StartCount  `json:"starts"`         // of workers after the first one, by reason
	Last    *WorkerStart  `json:"last,omitempty"` // the latest of Starts
	Flows   int64         `json:"flows"`          // open flows that would continue after a crash
	Errors  int64         `json:"errors"`         // attempts to have a flow held that failed
	Held    int64         `json:"held"`           // what the keeper holds: flows, sockets of listeners, pipes and shared memory
	Total   RestoredFlows `json:"total"`          // of all starts
	Pause   float64       `json:"pause"`          // seconds that traffic stood still, at all starts
	// Lingering are workers that have handed over and go on with the TLS of flows, the oldest first.
	Lingering []LingeringWorker `json:"lingering,omitempty"`
}

// LingeringWorker is a worker that has handed over, and goes on with the TLS of flows that are another worker's. See keeper.linger.
type LingeringWorker struct {
	PID   int       `json:"pid"`
	Since time.Time `json:"since"` // when it has handed over
	Until time.Time `json:"until"` // when it is ended, if its flows have not ended before
}

// StartCount is the number of workers that were started for a reason.
type StartCount struct {
	Reason string `json:"reason"` // one of StartReasons
	Count  int64  `json:"count"`
}

// StartReasons are the reasons for the start of a worker after the first one. A worker is started
// after a crash, for an upgrade, to undo one (rollback), and for a change of the configuration that
// needs a new worker (restart).
var StartReasons = []string{"crash", "upgrade", "rollback", "restart"}

// WorkerStart is the start of a worker after the first one.
type WorkerStart struct {
	Number  int64     `json:"number"` // 1 is the first after the first worker
	Time    time.Time `json:"time"`   // when the worker was ready
	Reason  string    `json:"reason"`
	Cause   string    `json:"cause"` // how the worker before ended: signal 9, exit status 2, no heartbeat
	Version string    `json:"version"`
	Pause   float64   `json:"pause"` // seconds from the end of the worker before until this one was ready
	RestoredFlows
}

// RestoredFlows counts what became of the flows of a worker that has ended.
type RestoredFlows struct {
	Restored int64       `json:"restored"`   // flows that continue
	Holding  int64       `json:"holding"`    // of these, those of which the worker had read bytes that it had not delivered
	Bytes    int64       `json:"held_bytes"` // these bytes
	Lost     []LostFlows `json:"lost"`       // flows that ended with it, by reason
}

// LostFlows is a number of flows that could not be restored.
type LostFlows struct {
	Reason string `json:"reason"` // see docs/upgrades.md
	Count  int64  `json:"count"`
}

// TotalLost returns the number of lost flows.
func (r *RestoredFlows) TotalLost() (n int64) {
	for _, l := range r.Lost {
		n += l.Count
	}
	return n
}

// Upgrade is the body of a request to replace the worker.
type Upgrade struct {
	// Binary is the path of the new binary; empty for the path of the running one.
	Binary string `json:"binary,omitempty"`
	// DryRun only checks whether the new binary could take over.
	DryRun bool `json:"dry_run,omitempty"`
}

// UpgradeStep is one line of the answer to an upgrade. The last line has Done or Error, unless the
// answer ends because the worker that gives it has handed over: then the status of the next worker
// tells how it ended, see Keeper.Last.
type UpgradeStep struct {
	Step  string `json:"step"`
	Done  bool   `json:"done,omitempty"`  // nothing more will happen
	Error string `json:"error,omitempty"` // why nothing was changed
	// TLSFlows are the open flows that the upgrade ends, or would end: see Resources.TLSFlows.
	TLSFlows int64 `json:"tls_flows,omitempty"`
}
