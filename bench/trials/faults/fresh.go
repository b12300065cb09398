//go:build linux

package main

import (
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/world"
)

// newPatience is how long a new client waits for its answer.
const newPatience = 5 * time.Second

// phase says when something happened.
type phase int

const (
	before phase = iota
	during
	after
)

// newClients come all the time, each with one message.
type newClients struct {
	world.Newcomers
	back atomic.Int64 // from the end of the fault to the first answer, in ns; 0: none yet
}

func newNewClients(w *testbed, network string) *newClients {
	n := &newClients{}
	n.Dial, n.Within, n.Size = world.Dial(relayAddr(streamPort)), newPatience, 200
	if network == "udp" {
		n.Ask = askDatagram
	}
	n.Phase = func() int { return int(w.phase()) }
	n.Told = func(when int, err error) {
		if err == nil && phase(when) == after {
			n.back.CompareAndSwap(0, int64(time.Since(w.faultEnd())))
		}
		w.old.fault(err)
	}
	return n
}

// askDatagram asks again every second, as clients of datagrams do.
func askDatagram(id uint64, by time.Time) (connected bool, err error) {
	c, err := net.Dial("udp", relayAddr(streamPort))
	if err != nil {
		return false, err
	}
	defer c.Close()
	b := make([]byte, 2048)
	for number := uint64(1); time.Now().Before(by); number++ {
		c.Write(pattern.MakeDatagram(b[:200], id, number, pattern.Up))
		c.SetReadDeadline(time.Now().Add(time.Second))
		size, err := c.Read(b)
		if err != nil {
			continue
		}
		got, _, d, err := pattern.ReadDatagram(b[:size])
		if err == nil && (got != id || d != pattern.Down) {
			return true, nil // a late answer to a client that had the port before
		}
		return true, err
	}
	return true, os.ErrDeadlineExceeded
}

// finish waits for the last clients, and tells what happened to all.
func (n *newClients) finish() (r newByPhase, back time.Duration) {
	n.Stop()
	for i, c := range []*clients{&r.Before, &r.During, &r.After} {
		count, waits := n.Read(i)
		p50, p99, longest := stat.Waits(waits)
		*c = clients{Arrivals: count, P50: inMillis(p50), P99: inMillis(p99), Max: inMillis(longest)}
	}
	if back = time.Duration(n.back.Load()); back == 0 {
		back = -time.Millisecond
	}
	return r, back
}
