package relay

import (
	"log/slog"

	"github.com/penstock/penstock/internal/enum"
)

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

// MarshalText returns the side's name. The error is always nil.
func (s Side) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets s to the side of that name.
func (s *Side) UnmarshalText(text []byte) error { return enum.Set(s, "side", sideNames, text) }

// LogValue returns the side's name. It implements [slog.LogValuer].
func (s Side) LogValue() slog.Value { return slog.StringValue(s.String()) }
