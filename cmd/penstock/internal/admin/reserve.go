package admin

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// reserveSize is the number of clients that a listener can still accept when the process
// has run out of descriptors.
const reserveSize = 4

// reserve is a listener that holds descriptors in reserve. When flows have taken all others,
// which is when operators want to look, it closes one of its own to accept a connection.
// When that connection is closed, it opens one again.
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
		case !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE), !r.release():
			return nil, err
		}
	}
}

// release closes one of the reserved descriptors. It reports whether there was one.
func (r *reserve) release() bool {
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

// refill opens the missing reserved descriptors, as far as the limit allows.
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
	for r.release() {
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
