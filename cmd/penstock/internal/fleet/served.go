package fleet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// Served counts how clients were served, since the start of the service: two reports make rates and shares. It is small,
// because reports come every second during a trial.
type Served struct {
	Begun           int64            `json:"begun"`                     // flows
	Ends            map[string]int64 `json:"ends,omitempty"`            // flows that have ended, by cause; at most maxEnds
	ConnectFailures int64            `json:"connect_failures"`          // attempts to connect that failed
	BytesDown       int64            `json:"bytes_down"`                // to clients
	Sizes           []int64          `json:"sizes,omitempty"`           // flows by the bytes that went down so far, also open ones; the first: none
	FirstByte       []int64          `json:"first_byte_time,omitempty"` // ended flows by the time until the first byte from their upstream; the last: longest
}

// A Listener is what a report says of one.
type Listener struct {
	Served
	Socket
}

// A Socket is where a listener listens, as the configuration says it. Whoever judges a canary knows a listener by it that has
// another name.
type Socket struct {
	Listen    string `json:"listen,omitempty"` // its URL; empty: a version of the program does not report it
	Interface string `json:"interface,omitempty"`
}

// overlaps reports whether a client could reach either of two sockets, if they were there at different times.
func (s Socket) overlaps(o Socket) bool {
	if s.Interface != o.Interface && s.Interface != "" && o.Interface != "" {
		return false
	}
	a, failed := spec.ParseListener(s.Listen)
	b, err := spec.ParseListener(o.Listen)
	if failed != nil || err != nil || a.Port == 0 || b.Port == 0 { // a name that is handed down, a path, any free port
		return s.Listen == o.Listen
	}
	everywhere := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.IsUnspecified()
	}
	return a.Kind == b.Kind && (a.Host == b.Host || everywhere(a.Host) || everywhere(b.Host)) &&
		a.Port <= max(b.Port, b.LastPort) && b.Port <= max(a.Port, a.LastPort)
}

// The bounds of Served, beside those of a report. Listeners are the first ones by name, so that relays with the same
// configuration say the same of each; all of them are in the sum.
const (
	maxListeners = 20
	maxEnds      = 64
	maxClasses   = 16
)

// FirstByteBounds are the upper bounds in seconds of the classes of Served.FirstByte. The last class has the rest.
var FirstByteBounds = []float64{0.25, 1, 5}

// check returns an error if no relay can have counted this.
func (s *Served) check() error {
	numbers := [][]int64{{s.Begun, s.ConnectFailures, s.BytesDown}, s.Sizes, s.FirstByte, slices.Collect(maps.Values(s.Ends))}
	if len(s.Ends) > maxEnds || len(s.Sizes) > maxClasses || len(s.FirstByte) > maxClasses {
		return fmt.Errorf("%d causes, %d sizes and %d times; allowed: %d, %d and %d", len(s.Ends), len(s.Sizes), len(s.FirstByte), maxEnds, maxClasses, maxClasses)
	}
	for _, list := range numbers {
		for _, n := range list {
			if n < 0 {
				return fmt.Errorf("a number below 0: %d", n)
			}
		}
	}
	return nil
}

// Ended returns the number of flows that have ended.
func (s *Served) Ended() (n int64) {
	for _, k := range s.Ends {
		n += k
	}
	return n
}

// Empty returns the number of flows to whose clients nothing was sent; known is false if the relay does not say it.
func (s *Served) Empty() (n int64, known bool) {
	if len(s.Sizes) == 0 {
		return 0, false
	}
	return s.Sizes[0], true
}

// add adds to s what o has counted.
func (s *Served) add(o *Served) { s.combine(o, 1) }

// since returns what was counted after an earlier report.
func (s *Served) since(before *Served) Served {
	var d Served
	d.combine(s, 1)
	d.combine(before, -1)
	// A flow moves from one class to another, or ends, while a report is made.
	d.Begun, d.ConnectFailures, d.BytesDown = max(0, d.Begun), max(0, d.ConnectFailures), max(0, d.BytesDown)
	for _, list := range [][]int64{d.Sizes, d.FirstByte} {
		for i := range list {
			list[i] = max(0, list[i])
		}
	}
	for cause, n := range d.Ends {
		d.Ends[cause] = max(0, n)
	}
	return d
}

// combine adds o, times sign. Nothing of o is shared with s.
func (s *Served) combine(o *Served, sign int64) {
	s.Begun += sign * o.Begun
	s.ConnectFailures += sign * o.ConnectFailures
	s.BytesDown += sign * o.BytesDown
	for cause, n := range o.Ends {
		if s.Ends == nil {
			s.Ends = make(map[string]int64, len(o.Ends))
		}
		s.Ends[cause] += sign * n
	}
	for _, l := range []struct {
		to   *[]int64
		from []int64
	}{{&s.Sizes, o.Sizes}, {&s.FirstByte, o.FirstByte}} {
		for len(*l.to) < len(l.from) {
			*l.to = append(*l.to, 0)
		}
		for i, n := range l.from {
			(*l.to)[i] += sign * n
		}
	}
}

// total returns the sum of numbers.
func total(list []int64) (n int64) {
	for _, k := range list {
		n += k
	}
	return n
}
