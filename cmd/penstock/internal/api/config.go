package api

import "time"

// ConfigInfo tells where the running configuration came from, and how the last reload ended.
type ConfigInfo struct {
	Source string    `json:"source"` // the file's name, or empty for a command line
	Hash   string    `json:"hash"`   // SHA-256 of its text, in hex
	Loaded time.Time `json:"loaded"`
	// Failed is the last attempt to reload if that failed.
	Failed *FailedReload `json:"failed,omitempty"`
}

// FailedReload is a reload that changed nothing.
type FailedReload struct {
	Time   time.Time     `json:"time"`
	Errors []ConfigError `json:"errors"`
}

// Config is the running configuration, without its secrets.
type Config struct {
	ConfigInfo
	Text string `json:"text"` // as in the file, but for the secrets
}

// ConfigError is one thing that is wrong with a configuration.
type ConfigError struct {
	Source  string `json:"source,omitempty"`
	Line    int    `json:"line,omitempty"` // from 1; 0: it has no place
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
	Allowed string `json:"allowed,omitempty"`
}

// Diff is what a new configuration changes, or would change.
type Diff struct {
	Applied bool     `json:"applied"` // false: nothing was changed, it was only asked for
	Hash    string   `json:"hash"`    // of the new configuration
	Changes []Change `json:"changes"`
	Flows   int64    `json:"flows"`   // open flows that it ends or drains
	Restart bool     `json:"restart"` // some of it needs a restart, and was left as it is
}

// Change is one difference.
type Change struct {
	Kind    string   `json:"kind"` // listener, route, group, member, setting
	Name    string   `json:"name"` // a route is LISTENER/ROUTE, a member GROUP/MEMBER
	What    string   `json:"what"` // added, removed, changed
	Fields  []string `json:"fields,omitempty"`
	Flows   int64    `json:"flows"` // open flows that it ends or drains
	Restart bool     `json:"restart,omitempty"`
}
