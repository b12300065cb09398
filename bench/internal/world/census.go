//go:build linux

package world

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
)

// A Census is what the processes of a daemon have at one moment.
type Census struct {
	Worker     int     // its process
	WorkerRSS  float64 // KiB, without the pages of files
	KeeperRSS  float64
	WorkerFDs  float64
	KeeperFDs  float64
	Goroutines float64
	Pipes      float64 // open, two descriptors each
	leased     float64 // pipes that a flow has
	resting    float64 // sockets of datagram flows that have ended
	flows      float64 // open
	Items      float64 // that the keeper holds, as the worker knows it: it is told every 256 changes or so
}

// own returns the descriptors of the worker that belong neither to a flow nor to what is kept for the next one.
func (c *Census) own() float64 { return c.WorkerFDs - 2*c.Pipes - c.resting }

// Census reads the metrics and /proc. It fails while there is no worker.
func (d *Daemon) Census() (c Census, err error) {
	if c.Worker, err = d.worker(); err != nil {
		return c, err
	}
	m, err := d.Metrics()
	if err != nil {
		return c, err
	}
	if c.WorkerRSS, err = proc.OwnMemory(c.Worker); err != nil {
		return c, err
	}
	c.WorkerFDs = float64(proc.Files(c.Worker))
	if d.kept {
		if c.KeeperRSS, err = proc.OwnMemory(d.First()); err != nil {
			return c, err
		}
		c.KeeperFDs = float64(proc.Files(d.First()))
	}
	c.Goroutines, c.Pipes, c.leased = m.Values["go_goroutines"], m.Values["penstock_pipes_open"], m.Values["penstock_pipes_leased"]
	c.resting, c.Items = m.Values["penstock_datagram_resting_sockets"], m.Values["penstock_keeper_items"]
	for _, open := range m.Sum("penstock_flows_open", "listener") {
		c.flows += open
	}
	if after, err := d.worker(); err != nil || after != c.Worker {
		return c, errors.New("the worker was replaced meanwhile")
	}
	return c, nil
}

// CensusAtRest is Census of a daemon without load. Its goroutines are without those of the admin listener's connections, of which that of the
// request before may still be there. It takes memory of the daemon that Census does not take.
func (d *Daemon) CensusAtRest() (c Census, err error) {
	if c, err = d.Census(); err == nil {
		c.Goroutines, err = d.goroutines()
	}
	return c, err
}

// goroutines returns the goroutines of the worker, without those of the admin listener's connections.
func (d *Daemon) goroutines() (n float64, err error) {
	stacks, err := d.Get("/debug/pprof/goroutine?debug=2")
	if err != nil {
		return 0, err
	}
	if n = countGoroutines(string(stacks)); n == 0 {
		return 0, errors.New("no listing of goroutines")
	}
	return n, nil
}

// countGoroutines counts those of a listing as of a panic: a paragraph for each, with the functions of its stack and the one that created
// it, which is there also when it has not begun to run. The goroutine that reads from the connection of a request has not, often.
func countGoroutines(stacks string) (n float64) {
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		ofConnection := strings.Contains(stack, "net/http.(*conn") || strings.Contains(stack, "created by net/http.(*Server).Serve ")
		if strings.HasPrefix(stack, "goroutine ") && !ofConnection {
			n++
		}
	}
	return n
}

// The lines of the balance of what a process has: what it had before the load came, and what it has when all flows
// have ended.
var left = []struct {
	name string
	of   func(*Census) float64
	none bool // it must be 0, not what it was
}{
	{"open flows", func(c *Census) float64 { return c.flows }, true},
	{"pipes that a flow has", func(c *Census) float64 { return c.leased }, true},
	{"descriptors of the worker, without idle pipes and resting sockets", (*Census).own, false},
	{"descriptors of the keeper", func(c *Census) float64 { return c.KeeperFDs - 2*c.Pipes }, false},
	{"goroutines of the worker", func(c *Census) float64 { return c.Goroutines }, false},
}

// leftOver returns what there is more at the end than at the beginning, a line for each kind.
func leftOver(before, after *Census) (all []string) {
	for _, l := range left {
		was := l.of(before)
		if l.none {
			was = 0
		}
		if is := l.of(after); is > was {
			all = append(all, fmt.Sprintf("%s: %.0f, and %.0f before the load", l.name, is, was))
		}
	}
	return all
}

// LeastCensus returns the census of a daemon without load: the least of several, because the connection of one census may be
// in another.
func LeastCensus(read func() (Census, error)) (least Census, err error) {
	for i := range 5 {
		c, err := read()
		if err != nil {
			return c, err
		}
		if i > 1 { // the first ones make what stays: a listener's buffers, the runtime's own descriptors
			c.WorkerFDs, c.KeeperFDs = min(c.WorkerFDs, least.WorkerFDs), min(c.KeeperFDs, least.KeeperFDs)
			c.Goroutines = min(c.Goroutines, least.Goroutines)
		}
		least = c
		time.Sleep(50 * ms)
	}
	return least, nil
}

// SettleCensus reads the census until nothing is left over, for at most the given time.
func SettleCensus(before *Census, read func() (Census, error), wait time.Duration) (after Census, over []string, err error) {
	for end := time.Now().Add(wait); ; time.Sleep(200 * ms) {
		if after, err = read(); err == nil {
			if over = leftOver(before, &after); len(over) == 0 {
				return after, nil, nil
			}
		}
		if time.Now().After(end) {
			return after, over, err
		}
	}
}
