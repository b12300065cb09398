package admin

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// reserveSize is how many clients a listener can still accept when the process has no
// descriptor left.
const reserveSize = 4

// reserve is a listener with descriptors of its own: when flows have taken all others,
// which is when operators want to know, their connections are accepted in place of
// these. A connection that is closed makes up for one.
type reserve struct {
	net.Listener

	mu     sync.Mutex
	spare  []*os.File
	closed bool
}

func newReserve(l net.Listener) *reserve {
	r := &reserve{Listener: l}
	r.refill()
	return r
}

func (r *reserve) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		switch {
		case err == nil:
			return &reservedConn{c, r}, nil
		case !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE), !r.spend():
			return nil, err
		}
	}
}

// spend closes one of the reserved descriptors. It reports whether there was one.
func (r *reserve) spend() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.spare)
	if n == 0 {
		return false
	}
	r.spare[n-1].Close()
	r.spare = r.spare[:n-1]
	return true
}

// refill opens what is missing, as far as descriptors go.
func (r *reserve) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.closed && len(r.spare) < reserveSize {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		r.spare = append(r.spare, f)
	}
}

func (r *reserve) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for r.spend() {
	}
	return r.Listener.Close()
}

type reservedConn struct {
	net.Conn
	of *reserve
}

func (c *reservedConn) Close() error {
	err := c.Conn.Close()
	c.of.refill()
	return err
}
