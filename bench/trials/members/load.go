//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/internal/echo"
	"github.com/penstock/penstock/bench/internal/stat"
)

const messageSize = 64

// upstream echoes messages, at all addresses of the machine.
type upstream struct {
	l    net.Listener
	port int
	work sync.WaitGroup
}

func newUpstream() (*upstream, error) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{l: l, port: l.Addr().(*net.TCPAddr).Port}
	u.work.Go(func() {
		echo.Serve(l, func(c net.Conn) {
			var b [messageSize]byte
			for {
				if _, err := io.ReadFull(c, b[:]); err != nil {
					return
				}
				if _, err := c.Write(b[:]); err != nil {
					return
				}
			}
		})
	})
	return u, nil
}

func (u *upstream) close() { u.l.Close(); u.work.Wait() }

// wrong returns an error if clients got wrong bytes.
func (u *upstream) wrong() error {
	if n := wrongEchoes.Load(); n > 0 {
		return fmt.Errorf("%d echoes were wrong", n)
	}
	return nil
}

var wrongEchoes atomic.Int64

// load connects so many times a second, whether or not the clients before have been served.
type load struct {
	addr string
	stop chan struct{}
	work sync.WaitGroup

	mu     sync.Mutex
	times  []uint32 // in us
	failed int
}

func newLoad(addr string, rate int) *load {
	l := &load{addr: addr, stop: make(chan struct{})}
	if rate == 0 {
		return l
	}
	l.work.Go(func() {
		begin := time.Now()
		for made := 0; ; {
			select {
			case <-l.stop:
				return
			case <-time.After(time.Millisecond):
			}
			for due := int(time.Since(begin).Seconds() * float64(rate)); made < due; made++ {
				mark := byte(made)
				l.work.Go(func() { l.client(mark) })
			}
		}
	})
	return l
}

// client connects, sends a message, waits for its echo, and closes.
func (l *load) client(mark byte) {
	start := time.Now()
	err := func() error {
		c, err := net.DialTimeout("tcp", l.addr, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		var out [messageSize]byte
		for i := range out {
			out[i] = mark + byte(i)
		}
		return echo.Ask(c, out[:])
	}()
	took := time.Since(start)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, echo.ErrOther) {
		wrongEchoes.Add(1)
	}
	if err != nil {
		l.failed++
		return
	}
	l.times = append(l.times, uint32(took.Microseconds()))
}

// forget forgets what was measured so far.
func (l *load) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times, l.failed = nil, 0
}

// end ends the load. What is open then does not count.
func (l *load) end() (p50, p99, most time.Duration, n, failed int) {
	l.mu.Lock()
	times, failed := l.times, l.failed
	l.mu.Unlock()
	close(l.stop)
	l.work.Wait()
	times = slices.Sorted(slices.Values(times))
	us := func(x uint32) time.Duration { return time.Duration(x) * time.Microsecond }
	if n = len(times); n > 0 {
		most = us(times[n-1])
	}
	return us(stat.Percentile(times, 0.5)), us(stat.Percentile(times, 0.99)), most, n, failed
}
