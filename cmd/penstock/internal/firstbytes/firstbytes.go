// Package firstbytes tells from a client's first bytes what it speaks, and which host it asks for by HTTP.
//
// Each answer is No, Maybe or Yes, and only Maybe may change as more bytes arrive. So a decision can be taken as soon as it is
// certain, and does not depend on how the bytes were divided.
package firstbytes

import (
	"bytes"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// A Verdict is an answer as far as it is known.
type Verdict uint8

// The verdicts. Only Maybe changes with more bytes.
const (
	No Verdict = iota
	Maybe
	Yes
)

// and returns the verdict on two conditions that must both hold.
func (v Verdict) and(w Verdict) Verdict { return min(v, w) }

// Conditions are what the first bytes of a client must be, for one route. All that are set must hold.
type Conditions struct {
	Protocols Set           // one of them; 0: any
	Prefixes  [][]byte      // one of them; none: any
	Host      bool          // HTTP's host must be known; which hosts, the caller compares
	Silence   time.Duration // the client has sent nothing for this long; 0: no condition
}

// Empty reports whether nothing is asked of the first bytes.
func (c *Conditions) Empty() bool {
	return c.Protocols == 0 && len(c.Prefixes) == 0 && !c.Host && c.Silence == 0
}

// Seen is what has been seen of one client's first bytes.
type Seen struct {
	yes, maybe Set
	http       request
	head       []byte
	over       bool
	silent     time.Duration
}

// New returns what is known before the first byte.
func New() *Seen { return &Seen{maybe: all, http: request{is: Maybe, named: Maybe}} }

// Add looks at the client's bytes: b has all since the beginning. The slice is used until the next call of Add or Keep. If over is true,
// no more will come, and what is not certain now is not so.
//
// The time that all calls take together is linear in the bytes, however they are divided.
func (s *Seen) Add(b []byte, over bool) {
	s.head = b
	if len(b) > 0 && s.maybe != 0 {
		for p := range NumProtocols {
			if !s.maybe.Has(p) {
				continue
			}
			switch s.look(p, b) {
			case Yes:
				s.yes |= 1 << p
			case Maybe:
				continue
			}
			s.maybe &^= 1 << p
		}
		if s.yes != 0 {
			s.maybe = 0 // nobody speaks two of them
		}
	}
	if s.yes.Has(HTTP) {
		s.http.read(b)
	} else if !s.maybe.Has(HTTP) {
		s.http.named = No
	}
	if over {
		s.over, s.maybe = true, 0
		if s.http.named == Maybe {
			s.http.named = No
		}
	}
}

func (s *Seen) look(p Protocol, b []byte) Verdict {
	if p == HTTP {
		s.http.read(b)
		return s.http.is
	}
	return protocols[p].looks(b)
}

// Wait notes that the client has sent nothing for this long.
func (s *Seen) Wait(d time.Duration) {
	if len(s.head) == 0 {
		s.silent = d
	}
}

// Keep keeps what is needed of the bytes after the caller has reused them.
func (s *Seen) Keep() { s.head = bytes.Clone(s.head[:min(len(s.head), spec.MaxPrefix)]) }

// Speaks returns the client's protocol; NumProtocols: it is not known.
func (s *Seen) Speaks() Protocol {
	if s != nil {
		for p := range NumProtocols {
			if s.yes.Has(p) {
				return p
			}
		}
	}
	return NumProtocols
}

// Protocol returns the name of the client's protocol; empty: it is not known.
func (s *Seen) Protocol() string {
	if p := s.Speaks(); p < NumProtocols {
		return p.String()
	}
	return ""
}

// Over reports whether no more bytes count.
func (s *Seen) Over() bool { return s.over }

// May reports whether the client speaks a protocol, or its next bytes may show that it does.
func (s *Seen) May(p Protocol) bool { return (s.yes | s.maybe).Has(p) }

// Host returns the host that the client asks for by HTTP, in lower case and without a port; empty: none is known.
func (s *Seen) Host() string {
	if s == nil {
		return ""
	}
	return s.http.host
}

// Head returns the first of the bytes, of which Keep has kept no more than routes need. It belongs to s.
func (s *Seen) Head() []byte { return s.head }

// Silent returns how long the client has sent nothing.
func (s *Seen) Silent() time.Duration {
	if s == nil {
		return 0
	}
	return s.silent
}

// Pending reports which kinds of conditions may still change.
func (s *Seen) Pending() (protocol, host bool) { return s.maybe != 0, s.http.named == Maybe }

// Holds returns the verdict on conditions. Without anything seen, only empty ones hold.
func (s *Seen) Holds(c *Conditions) Verdict {
	switch {
	case c.Empty():
		return Yes
	case s == nil:
		return No
	}
	return s.speaks(c.Protocols).and(s.begins(c.Prefixes)).and(s.named(c.Host)).and(s.waits(c.Silence))
}

func (s *Seen) speaks(one Set) Verdict {
	switch {
	case one == 0, one&s.yes != 0:
		return Yes
	case one&s.maybe != 0:
		return Maybe
	}
	return No
}

func (s *Seen) begins(one [][]byte) Verdict {
	v := No
	for _, p := range one {
		n := min(len(p), len(s.head))
		switch {
		case !bytes.Equal(p[:n], s.head[:n]):
		case n == len(p):
			return Yes
		case !s.over:
			v = Maybe
		}
	}
	if len(one) == 0 {
		return Yes
	}
	return v
}

func (s *Seen) named(must bool) Verdict {
	if !must {
		return Yes
	}
	return s.http.named
}

func (s *Seen) waits(d time.Duration) Verdict {
	switch {
	case d == 0:
		return Yes
	case len(s.head) > 0:
		return No
	case s.silent >= d:
		return Yes
	case s.over:
		return No
	}
	return Maybe
}

// Given returns what would have been seen of a client that speaks a protocol, asks for a host, begins with these bytes, or has been
// silent for this long.
func Given(protocol, host string, head []byte, silent time.Duration) *Seen {
	s := New()
	s.Add(head, true)
	s.silent = silent
	if host != "" {
		protocol = HTTP.String()
		s.http.host, s.http.named = host, Yes
	}
	if p, ok := ByName(protocol); ok {
		s.yes = 1 << p
	}
	if len(head) == 0 && s.yes != 0 {
		s.silent = 0
	}
	return s
}
