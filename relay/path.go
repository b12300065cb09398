package relay

import (
	"log/slog"
	"net"

	"github.com/penstock/penstock/internal/enum"
	"github.com/penstock/penstock/internal/pump"
)

// Wrapper is a net.Conn around another one that changes nothing of its bytes.
// [Engine.Relay] takes over the socket inside.
type Wrapper interface {
	// Unwrap returns the connection inside.
	Unwrap() net.Conn
	// TakeRead returns what the wrapper has read from the connection inside
	// and not yet handed out, and forgets it. The caller delivers these bytes
	// first and from then on reads from the connection inside.
	TakeRead() []byte
}

// Path is how the bytes of a direction were moved. Its text is "none", "copy",
// "splice" or "gso".
type Path uint8

// The data paths, with their names.
const (
	PathNone   Path = iota // "none": no byte has moved yet
	PathCopy               // "copy": through user-space memory
	PathSplice             // "splice": at least in part through a pipe, without a copy
	PathGSO                // "gso": datagrams, at least in part many per system call (UDP_SEGMENT)
)

// Paths is the number of values of Path.
const NumPaths = int(PathGSO) + 1

// String returns the path's name.
func (p Path) String() string { return enum.Name(pump.PathNames, p) }

// MarshalText returns the path's name. The error is always nil.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText sets p to the path of that name.
func (p *Path) UnmarshalText(text []byte) error {
	return enum.Set(p, "data path", pump.PathNames, text)
}

// LogValue returns the path's name. It implements [slog.LogValuer].
func (p Path) LogValue() slog.Value { return slog.StringValue(p.String()) }

// Why is the reason why the bytes of a direction did not take the fastest
// path: why a stream was not spliced, or datagrams were not sent in runs. Its
// text is "small reads", "switched off", "no pipe", "refused by the kernel",
// "built-in end" or "single datagrams", and empty for WhyNone.
type Why uint8

// The reasons, with their names.
const (
	WhyNone    Why = iota // "": they did, or have not moved yet
	WhySmall              // "small reads": copying small messages is cheaper
	WhyOff                // "switched off": splicing or GSO is switched off
	WhyPipes              // "no pipe": Config.MaxPipes or the kernel's limit was reached
	WhyKernel             // "refused by the kernel": it cannot splice these sockets, or send runs on this route
	_                     // of package splice
	WhyBuiltin            // "built-in end": the upstream is Echo or Discard
	WhySingle             // "single datagrams": no two datagrams came together
)

// Whys is the number of values of Why.
const NumWhys = int(WhySingle) + 1

// String returns the reason's name.
func (w Why) String() string { return enum.Name(pump.WhyNames, w) }

// MarshalText returns the reason's name. The error is always nil.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w to the reason of that name.
func (w *Why) UnmarshalText(text []byte) error { return enum.Set(w, "reason", pump.WhyNames, text) }

// LogValue returns the reason's name. It implements [slog.LogValuer].
func (w Why) LogValue() slog.Value { return slog.StringValue(w.String()) }
