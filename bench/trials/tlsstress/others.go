//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/stat"
)

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

// oldFlows are the connections that are there before a flood.
type oldFlows struct {
	conns []*oldFlow
	all   sync.WaitGroup
	over  chan struct{}
}

type oldFlow struct {
	net.Conn
	secure bool
	mu     sync.Mutex
	waits  waits
}

// oldFlows makes connections, each of which asks every 10 ms.
func (s *stress) oldFlows(r *relay) (*oldFlows, error) {
	o := &oldFlows{over: make(chan struct{})}
	for i := range 2 * s.flows {
		f := &oldFlow{secure: i%2 == 0}
		c, err := net.Dial("tcp", r.plain)
		if f.secure {
			c, err = tls.Dial("tcp", r.secure, s.trusting())
		}
		if err != nil {
			o.end()
			return nil, err
		}
		f.Conn = c
		o.conns = append(o.conns, f)
		o.all.Go(func() { f.talk(o.over) })
	}
	return o, nil
}

func (f *oldFlow) talk(over <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		begun := time.Now()
		err := ask(f.Conn, patience)
		f.mu.Lock()
		if err != nil {
			f.waits.lost++
		} else {
			f.waits.all = append(f.waits.all, time.Since(begun))
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// ask sends some bytes and wants them back.
func ask(c net.Conn, within time.Duration) error {
	c.SetDeadline(time.Now().Add(within))
	return echo.Ask(c, []byte("a question of sixty-four bytes, which an echo answers just so.\r\n"))
}

// mark forgets what was before.
func (o *oldFlows) mark() {
	for _, f := range o.conns {
		f.mu.Lock()
		f.waits = waits{}
		f.mu.Unlock()
	}
}

// read returns what was since then.
func (o *oldFlows) read() (secure, plain waits) {
	for _, f := range o.conns {
		to := &plain
		if f.secure {
			to = &secure
		}
		f.mu.Lock()
		to.lost += f.waits.lost
		to.all = append(to.all, f.waits.all...)
		f.mu.Unlock()
	}
	return secure, plain
}

func (o *oldFlows) end() {
	close(o.over)
	o.all.Wait()
	for _, f := range o.conns {
		f.Close()
	}
}

// newClients starts a client with TLS every 20 ms. The function that it returns waits for the last one.
func (s *stress) newClients(r *relay) (end func() waits) {
	over := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	var w waits
	config := s.trusting()
	all.Go(func() {
		echo.Every(20*time.Millisecond, over, func() {
			begun := time.Now()
			err := once(r.secure, config)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.lost++
			} else {
				w.all = append(w.all, time.Since(begun))
			}
		})
	})
	return func() waits {
		close(over)
		all.Wait()
		return w
	}
}

// once is a client that wants an answer within 10 s.
func once(addr string, config *tls.Config) error {
	const within = 10 * time.Second
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: within}, "tcp", addr, config)
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(c, within)
}
