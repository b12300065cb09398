package api

import "time"

// Fleet is the part of the relay in a fleet.
type Fleet struct {
	Source   string    `json:"source"` // the fleet's key, as a URL without options
	Node     string    `json:"node"`   // who the relay is
	Present  bool      `json:"present"`
	Since    time.Time `json:"since,omitzero"` // since when it is present, or is not
	Reported time.Time `json:"reported,omitzero"`
	Reports  int64     `json:"reports"`  // written since the start
	Failures int64     `json:"failures"` // failed requests to the registry, since the start
	Error    string    `json:"error,omitempty"`
	Conflict string    `json:"conflict,omitempty"` // who else has the same id, so that this relay does not report
	// SharedMembers are members whose checks are shared, and CheckedMembers those of them that this relay checks.
	SharedMembers  int `json:"shared_members"`
	CheckedMembers int `json:"checked_members"`
}
