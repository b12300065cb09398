package relay

import (
	"log/slog"

	"github.com/penstock/penstock/internal/enum"
	"github.com/penstock/penstock/internal/pump"
)

// Path is how the bytes of a direction moved.
type Path uint8

// The data paths, with their names.
const (
	PathNone   Path = iota // "none": no byte has moved
	PathCopy               // "copy": through user space
	PathSplice             // "splice": at least some through a pipe
	PathGSO                // "gso": at least some in GSO runs of datagrams
)

// NumPaths is the number of values of Path.
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

// Why is the reason why a direction did not use the fastest path: why a stream was not
// spliced, or datagrams were not sent in runs.
type Why uint8

// The reasons, with their names.
const (
	WhyNone    Why = iota // "": it did, or no byte has moved
	WhySmall              // "small reads": copying small messages is cheaper
	WhyOff                // "switched off": splicing or GSO is switched off
	WhyPipes              // "no pipe": Config.MaxPipes or the kernel's limit was reached
	WhyKernel             // "refused by the kernel": it cannot splice these sockets, or send runs on this route
	_                     // used by package splice
	WhyBuiltin            // "built-in end": the upstream is Echo or Discard
	WhySingle             // "single datagrams": no two datagrams came together
	WhyTLS                // "TLS": a side's bytes are encrypted and decrypted here
)

// NumWhys is the number of values of Why.
const NumWhys = int(WhyTLS) + 1

// String returns the reason's name.
func (w Why) String() string { return enum.Name(pump.WhyNames, w) }

// MarshalText returns the reason's name. The error is always nil.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w to the reason of that name.
func (w *Why) UnmarshalText(text []byte) error { return enum.Set(w, "reason", pump.WhyNames, text) }

// LogValue returns the reason's name. It implements [slog.LogValuer].
func (w Why) LogValue() slog.Value { return slog.StringValue(w.String()) }
