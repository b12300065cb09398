//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/pattern"
	"github.com/penstock/penstock/bench/internal/stat"
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
	w       *world
	network string

	all  sync.WaitGroup
	stop chan struct{}

	mu    sync.Mutex
	byWho [3]clients
	waits [3][]time.Duration
	back  time.Duration // from the end of the fault to the first answer; 0: none yet
}

func newNewClients(w *world, network string) *newClients {
	return &newClients{w: w, network: network, stop: make(chan struct{})}
}

// begin makes a client after each pause.
func (n *newClients) begin(pause time.Duration) {
	n.all.Go(func() { echo.Every(pause, n.stop, n.runOne) })
}

// runOne is one client.
func (n *newClients) runOne() {
	id, when, start := n.w.old.next.Add(1), n.w.phase(), time.Now()
	ask := n.stream
	if n.network == "udp" {
		ask = n.datagram
	}
	connected, err := ask(id)
	took := time.Since(start)
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &n.byWho[when]
	c.Tried++
	var ne net.Error
	switch {
	case err == nil:
		c.Served++
		if took > time.Second {
			c.Slow++
		}
		n.waits[when] = append(n.waits[when], took)
		if when == after && n.back == 0 {
			n.back = time.Since(n.w.faultEnd())
		}
	case errors.Is(err, errWrong), errors.Is(err, pattern.ErrDatagram):
		c.Wrong++
		n.w.old.fault(id, err)
	case errors.As(err, &ne) && ne.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		c.Late++
	case connected:
		c.Cut++
	default:
		c.Refused++
	}
}

func (n *newClients) stream(id uint64) (connected bool, err error) {
	end := time.Now().Add(newPatience)
	c, err := (&net.Dialer{Deadline: end}).Dial("tcp", relayAddr(streamPort))
	if err != nil {
		return false, err
	}
	defer c.Close()
	c.SetDeadline(end)
	return true, exchange(c, id, 200)
}

// datagram asks again every second, as clients of datagrams do.
func (n *newClients) datagram(id uint64) (connected bool, err error) {
	c, err := net.Dial("udp", relayAddr(streamPort))
	if err != nil {
		return false, err
	}
	defer c.Close()
	end := time.Now().Add(newPatience)
	b := make([]byte, 2048)
	for number := uint64(1); time.Now().Before(end); number++ {
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
	close(n.stop)
	n.all.Wait()
	for i, c := range []*clients{&r.Before, &r.During, &r.After} {
		*c = n.byWho[i]
		p50, p99, longest := stat.Waits(n.waits[i])
		c.P50, c.P99, c.Max = inMillis(p50), inMillis(p99), inMillis(longest)
	}
	if n.back == 0 {
		return r, -time.Millisecond
	}
	return r, n.back
}
