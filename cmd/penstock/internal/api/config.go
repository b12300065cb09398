package api

import "time"

// ConfigInfo tells where the running configuration came from, and how the last reload ended.
type ConfigInfo struct {
	Source string    `json:"source"` // the name of the file; empty if started by penstock relay
	Hash   string    `json:"hash"`   // SHA-256 of its text, in hex
	Loaded time.Time `json:"loaded"`
	// Failed is the last reload, if it failed.
	Failed *FailedReload `json:"failed,omitempty"`
	// Remote are the texts that are kept in registries.
	Remote []RemoteConfig `json:"remote,omitempty"`
}

// RemoteConfig is a text of the configuration that is kept in a registry, and which of its versions runs.
type RemoteConfig struct {
	Source    string    `json:"source"` // its URL, without options
	Version   string    `json:"version"`
	Published time.Time `json:"published,omitzero"`
	Trial     bool      `json:"trial,omitempty"` // only some relays run the version, and may be told to go back
	// Saved is where the version is from, as long as the registry has not answered: a file, or the worker before.
	Saved string `json:"saved,omitempty"`
	// Error is why the registry does not answer, or has nothing that can be used; empty: all is well.
	Error   string          `json:"error,omitempty"`
	Since   time.Time       `json:"since,omitzero"` // of the error
	Refused *RefusedVersion `json:"refused,omitempty"`
}

// RefusedVersion is the version that the registry asks for, if it cannot be applied.
type RefusedVersion struct {
	Version string    `json:"version"`
	Error   string    `json:"error"`
	Time    time.Time `json:"time"`
}

// FailedReload is a reload that changed nothing.
type FailedReload struct {
	Time   time.Time     `json:"time"`
	Errors []ConfigError `json:"errors"`
}

// Config is the running configuration, without its secrets.
type Config struct {
	ConfigInfo
	Text string `json:"text"` // the text of the file, or of all files together, with variables as written
}

// ConfigError is an error in a configuration.
type ConfigError struct {
	Source  string `json:"source,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0 if the error has no position
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Allowed string `json:"allowed,omitempty"`
}

// Diff describes what a new configuration changed, or would change.
type Diff struct {
	Applied bool     `json:"applied"` // false if nothing was changed
	Hash    string   `json:"hash"`    // of the new configuration
	Changes []Change `json:"changes"`
	Flows   int64    `json:"flows"`   // open flows that end or drain
	Restart bool     `json:"restart"` // some changes need a restart, and were not applied
	// NewWorker reports that another worker takes over to apply some changes. Open flows continue, except for TLSFlows.
	NewWorker bool `json:"new_worker,omitempty"`
	// TLSFlows are the open flows that end when another worker takes over: see Resources.TLSFlows.
	TLSFlows int64 `json:"tls_flows,omitempty"`
}

// Change is one difference.
type Change struct {
	Kind    string   `json:"kind"` // listener, route, group, member, setting
	Name    string   `json:"name"` // a route is LISTENER/ROUTE, a member GROUP/MEMBER
	What    string   `json:"what"` // added, removed, changed
	Fields  []string `json:"fields,omitempty"`
	Flows   int64    `json:"flows"` // open flows that end or drain
	Restart bool     `json:"restart,omitempty"`
	// NewWorker reports that another worker applies the change.
	NewWorker bool `json:"new_worker,omitempty"`
}
