package relay

import "github.com/penstock/penstock/internal/enum"

// Side is one of the two sides of a flow.
type Side uint8

// The sides, with their names.
const (
	SideClient   Side = iota // "client"
	SideUpstream             // "upstream"
)

var sideNames = []string{"client", "upstream"}

// String returns the side's name.
func (s Side) String() string { return enum.Name(sideNames, s) }
