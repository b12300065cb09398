package relay

import (
	"log/slog"
	"time"

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

// TLS describes the TLS connection of one side of a flow. What a [Transfer] counts of that side is what is
// inside of the records.
type TLS struct {
	Version     uint16        // such as tls.VersionTLS13; 0 if there was no handshake that succeeded
	CipherSuite uint16        // such as tls.TLS_AES_128_GCM_SHA256
	ServerName  string        // that was asked for; empty: none was
	Protocol    string        // that ALPN (RFC 7301) chose; empty: none
	Resumed     bool          // an earlier session was resumed
	Handshake   time.Duration // how long the handshake took
	// Received and Sent count the bytes of the socket, those of the handshake and of the records' headers
	// included.
	Received, Sent int64
}
