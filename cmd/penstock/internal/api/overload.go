package api

// Overload reports how close the daemon is to its limits, and what it does about it; see
// docs/running.md, Overload.
type Overload struct {
	Resources []OverloadResource `json:"resources"` // those that have a limit
	Actions   []OverloadAction   `json:"actions"`   // in the order of resources and thresholds
}

// OverloadResource is something that the daemon has only so much of.
type OverloadResource struct {
	Name     string  `json:"name"`             // memory, ...
	Limit    int64   `json:"limit"`            // in the unit of the resource
	Use      int64   `json:"use"`              // in the same unit
	Pressure float64 `json:"pressure"`         // Use by Limit, or the greatest of several such ratios
	Source   string  `json:"source,omitempty"` // where the limit comes from
	Error    string  `json:"error,omitempty"`  // why Limit or Use are not exact
}

// OverloadAction is what the daemon does when the pressure of a resource has reached a threshold,
// until it has fallen somewhat below.
type OverloadAction struct {
	Name      string  `json:"name"`
	Resource  string  `json:"resource"`
	Threshold float64 `json:"threshold"`
	Active    bool    `json:"active"`
	Count     int64   `json:"count"` // of what it has turned away, ended or given back
}

// Active reports whether any action is active.
func (o *Overload) Active() bool {
	for i := range o.Actions {
		if o.Actions[i].Active {
			return true
		}
	}
	return false
}
