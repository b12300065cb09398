//go:build linux

package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/stat"
	"github.com/penstock/penstock/bench/internal/world"
)

const messageSize = 64 // with its head

// upstream answers messages, at all addresses of the machine.
type upstream struct {
	l     net.Listener
	port  int
	work  sync.WaitGroup
	wrong atomic.Int64 // messages
}

func newUpstream() (*upstream, error) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{l: l, port: l.Addr().(*net.TCPAddr).Port}
	u.work.Go(func() { world.ServeAnswers(l, &u.wrong) })
	return u, nil
}

func (u *upstream) close() { u.l.Close(); u.work.Wait() }

// newLoad connects so many times a second, whether or not the clients before have been served.
func newLoad(addr string, rate int) *world.Newcomers {
	n := &world.Newcomers{Dial: world.Dial(addr), Within: patience, Size: messageSize - world.MessageHead}
	if rate > 0 {
		n.Begin(time.Second / time.Duration(rate))
	}
	return n
}

// end ends the load. What is open then does not count.
func end(n *world.Newcomers) (p50, p99, most time.Duration, served, failed int, err error) {
	c, waits := n.Read(0)
	n.Stop()
	if last, _ := n.Read(0); last.Wrong > 0 {
		err = fmt.Errorf("%d answers were wrong", last.Wrong)
	}
	p50, p99, most = stat.Waits(waits)
	return p50, p99, most, c.Served, c.Tried - c.Served, err
}
