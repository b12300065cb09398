//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/world"
)

// questionSize is the length of what clients ask, with its head.
const questionSize = 64

// waits are how long some clients waited for their answers.
type waits struct {
	lost int // got none
	all  []time.Duration
}

// text is a part of a line of the table.
func (w waits) text() string {
	p50, p99, longest := stat.Waits(w.all)
	return fmt.Sprintf("%.2f\t%.2f\t%.2f", stat.Millis(p50), stat.Millis(p99), stat.Millis(longest))
}

// oldFlows makes connections, with TLS and without in turn, each of which asks every 10 ms.
func (s *stress) oldFlows(r *relay) (*world.Talkers, error) {
	o := &world.Talkers{
		Size: func(*rand.Rand, int) int { return questionSize - world.MessageHead },
		Rest: func(*rand.Rand) time.Duration { return 10 * time.Millisecond },
	}
	first := make(chan error, 2*s.flows) // a flow without an answer is lost
	for i := range 2 * s.flows {
		c, err := net.Dial("tcp", r.plain)
		if i%2 == 0 {
			c, err = tls.Dial("tcp", r.secure, s.trusting())
		}
		if err != nil {
			o.Stop()
			return nil, err
		}
		o.Begin(c, first)
	}
	return o, nil
}

// read returns what old flows have seen since the mark.
func read(o *world.Talkers) (secure, plain waits) {
	for i, t := range o.All {
		to := &plain
		if i%2 == 0 {
			to = &secure
		}
		if _, err := t.Ended(); err != nil {
			to.lost++
		}
		took, _ := t.Measured()
		to.all = append(to.all, took...)
	}
	return secure, plain
}

// newClients starts a client with TLS every 20 ms. The function that it returns waits for the last one.
func (s *stress) newClients(r *relay) (end func() waits) {
	n := &world.Newcomers{Dial: dialTLS(r.secure, s.trusting()), Within: within, Size: questionSize - world.MessageHead}
	n.Begin(20 * time.Millisecond)
	return func() waits {
		n.Stop()
		c, took := n.Read(0)
		return waits{lost: c.Tried - c.Served, all: took}
	}
}

// within is how long a client waits for its answer.
const within = 10 * time.Second

func dialTLS(addr string, config *tls.Config) func(by time.Time) (net.Conn, error) {
	return func(by time.Time) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Deadline: by}, "tcp", addr, config)
	}
}

// ask sends a question and wants the answer.
func ask(c net.Conn, within time.Duration) error {
	c.SetDeadline(time.Now().Add(within))
	return world.Ask(c, world.NextNumber(), questionSize-world.MessageHead)
}

// once is a client that wants an answer in time.
func once(addr string, config *tls.Config) error {
	c, err := dialTLS(addr, config)(time.Now().Add(within))
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(c, within)
}
