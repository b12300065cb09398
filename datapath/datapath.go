// Package datapath names how the bytes of one direction of a flow were moved ([Path]), and why not
// by a faster path ([Why]). Packages splice and relay report both in their Transfer.
package datapath

import "github.com/penstock/penstock/internal/enum"

// Path is how the bytes of a direction moved.
type Path uint8

// The data paths, with their names.
const (
	None   Path = iota // "none": no byte has moved
	Copy               // "copy": through user space
	Splice             // "splice": at least some through a pipe, or by sendfile(2)
	GSO                // "gso": at least some in GSO runs of datagrams
)

// The names must not be changed.
var pathNames = []string{None: "none", Copy: "copy", Splice: "splice", GSO: "gso"}

// String returns the path's name.
func (p Path) String() string { return enum.Name(pathNames, p) }

// MarshalText returns the path's name. The error is always nil.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText sets p to the path of that name.
func (p *Path) UnmarshalText(text []byte) error { return enum.Set(p, "data path", pathNames, text) }

// Why is the reason why a direction did not use the fastest path: why a stream was not
// spliced, or datagrams were not sent in runs.
type Why uint8

// The reasons, with their names.
const (
	WhyNone      Why = iota // "": it did, or no byte has moved
	WhySmall                // "small reads": copying small messages is cheaper
	WhyOff                  // "switched off": splicing or GSO is switched off
	WhyPipes                // "no pipe": the maximum of pipes or the kernel's limit on them was reached
	WhyKernel               // "refused by the kernel": it cannot splice these sockets, or send runs on this route
	WhyNotSocket            // "not a stream socket": an end is neither a TCP nor a Unix stream socket
	WhyBuiltin              // "built-in end": the upstream is relay.Echo or relay.Discard
	WhySingle               // "single datagrams": no two datagrams came together
	WhyTLS                  // "TLS": a side's bytes are encrypted and decrypted here
)

// The names must not be changed.
var whyNames = []string{
	WhyNone:      "",
	WhySmall:     "small reads",
	WhyOff:       "switched off",
	WhyPipes:     "no pipe",
	WhyKernel:    "refused by the kernel",
	WhyNotSocket: "not a stream socket",
	WhyBuiltin:   "built-in end",
	WhySingle:    "single datagrams",
	WhyTLS:       "TLS",
}

// String returns the reason's name.
func (w Why) String() string { return enum.Name(whyNames, w) }

// MarshalText returns the reason's name. The error is always nil.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText sets w to the reason of that name.
func (w *Why) UnmarshalText(text []byte) error { return enum.Set(w, "reason", whyNames, text) }
