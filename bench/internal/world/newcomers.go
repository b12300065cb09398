//go:build linux

package world

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
)

// Arrivals is what happened to new clients.
type Arrivals struct {
	Tried   int `json:"tried"`
	Served  int `json:"served"`
	Refused int `json:"refused"` // the connect failed
	Cut     int `json:"cut"`     // accepted, and ended without the whole answer
	Late    int `json:"late"`    // without an answer in time
	Wrong   int `json:"wrong"`
	Slow    int `json:"slow"` // served, after more than a second
}

// Newcomers are clients that come all the time, each with one message, whether or not those before have been served.
type Newcomers struct {
	Dial   func(by time.Time) (net.Conn, error)
	Within time.Duration // from when a client comes until it has its answer
	Size   int           // of the message
	// Ask does all of it instead, for clients that have no connection; nil: they have one.
	Ask   func(id uint64, by time.Time) (connected bool, err error)
	Phase func() int                 // when a client comes; nil: 0 always
	Told  func(phase int, err error) // if not nil: how a client fared

	stop chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	count [3]Arrivals
	waits [3][]time.Duration
}

// Begin makes a client after each pause, and more at once if that was missed.
func (n *Newcomers) Begin(pause time.Duration) {
	n.stop = make(chan struct{})
	n.all.Go(func() {
		begun := time.Now()
		for made := 0; !wait(n.stop, max(pause, time.Millisecond)); {
			for due := int(time.Since(begun) / pause); made < due; made++ {
				n.all.Go(n.come)
			}
		}
	})
}

func (n *Newcomers) come() {
	id, phase, begun := NextNumber(), 0, time.Now()
	if n.Phase != nil {
		phase = n.Phase()
	}
	ask := n.Ask
	if ask == nil {
		ask = n.stream
	}
	connected, err := ask(id, begun.Add(n.Within))
	took := time.Since(begun)
	n.mu.Lock()
	c := &n.count[phase]
	c.Tried++
	var timeout net.Error
	switch {
	case err == nil:
		c.Served++
		if took > time.Second {
			c.Slow++
		}
		n.waits[phase] = append(n.waits[phase], took)
	case errors.Is(err, ErrWrong), errors.Is(err, pattern.ErrDatagram):
		c.Wrong++
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		c.Late++
	case connected:
		c.Cut++
	default:
		c.Refused++
	}
	n.mu.Unlock()
	if n.Told != nil {
		n.Told(phase, err)
	}
}

func (n *Newcomers) stream(id uint64, by time.Time) (connected bool, err error) {
	c, err := n.Dial(by)
	if err != nil {
		return false, err
	}
	defer c.Close()
	c.SetDeadline(by)
	return true, Ask(c, id, n.Size)
}

// Forget forgets what happened so far.
func (n *Newcomers) Forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count, n.waits = [3]Arrivals{}, [3][]time.Duration{}
}

// Read returns what happened so far to those that came in a phase.
func (n *Newcomers) Read(phase int) (Arrivals, []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[phase], n.waits[phase]
}

// Stop waits for the last client.
func (n *Newcomers) Stop() {
	if n.stop != nil {
		close(n.stop)
	}
	n.all.Wait()
}

// Dial returns what connects by TCP.
func Dial(addr string) func(by time.Time) (net.Conn, error) {
	return func(by time.Time) (net.Conn, error) { return (&net.Dialer{Deadline: by}).Dial("tcp", addr) }
}
