package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// admission bounds the connections of one listener. A connection is a stranger's
// until one of its requests has shown a token:
//
//	accepted ──▶ stranger ──token──▶ known ──▶ closed
//	                └──too slow, or a newer stranger needs its place──▶ closed
//
// Strangers have few places and little time, and the oldest gives way to
// a new one. So clients without a token cannot lock out one that has it: it
// sends its request at once. On a Unix socket, where the file's mode has decided, every
// connection is known.
type admission struct {
	net.Listener
	strangers, known int           // how many of each there may be
	patience         time.Duration // that a stranger has for everything

	mu      sync.Mutex
	waiting []*conn   // strangers, the oldest first
	inside  int       // known connections
	room    sync.Cond // of mu: a known connection was closed, or the listener
	closed  bool
}

func admit(l net.Listener, patience time.Duration) *admission {
	a := &admission{Listener: l, strangers: maxStrangers, known: maxConns, patience: patience}
	a.room.L = &a.mu
	return a
}

// Accept waits, where all are known at once, for a place; further clients are then in
// the kernel's queue.
func (a *admission) Accept() (net.Conn, error) {
	trusted := a.Addr().Network() == "unix"
	if trusted && !a.wait() {
		return nil, net.ErrClosed
	}
	raw, err := a.Listener.Accept()
	if err != nil {
		if trusted {
			a.leave()
		}
		return nil, err
	}
	c := &conn{Conn: raw, of: a, known: trusted}
	if trusted {
		return c, nil
	}
	c.limit = time.Now().Add(a.patience)
	raw.SetDeadline(c.limit)
	var oldest *conn
	a.mu.Lock()
	if a.waiting = append(a.waiting, c); len(a.waiting) > a.strangers {
		oldest = a.waiting[0]
		a.forget(oldest)
	}
	a.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close() // the server notices, and closes the rest
	}
	return c, nil
}

// wait takes a known connection's place when one is free. It reports whether the listener
// is open.
func (a *admission) wait() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.inside >= a.known && !a.closed {
		a.room.Wait()
	}
	if a.closed {
		return false
	}
	a.inside++
	return true
}

func (a *admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside--
	a.room.Signal()
}

// forget takes a stranger's place away, if it has one. Under the lock.
func (a *admission) forget(c *conn) {
	if i := slices.Index(a.waiting, c); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
}

func (a *admission) Close() error {
	a.mu.Lock()
	a.closed = true
	a.room.Broadcast()
	a.mu.Unlock()
	return a.Listener.Close()
}

// conn is a connection of an admission.
type conn struct {
	net.Conn
	of    *admission
	once  sync.Once
	limit time.Time // of a stranger's reads and writes

	known bool // under the admission's lock
}

type connKey struct{}

// remember puts a connection where its requests find it: see http.Server.ConnContext.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// prove makes the connection of a request a known one. The request has shown a token.
func prove(w http.ResponseWriter, r *http.Request) error {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	a := c.of
	a.mu.Lock()
	was := c.known
	full := !was && a.inside >= a.known
	if !was && !full {
		c.known = true
		a.forget(c)
		a.inside++
	}
	a.mu.Unlock()
	switch {
	case full:
		w.Header().Set("Connection", "close")
		return api.NewProblem(http.StatusServiceUnavailable, "too many connections are open", "128 with a token at once")
	case !was:
		c.Conn.SetReadDeadline(time.Now().Add(readTime))
		c.Conn.SetWriteDeadline(time.Now().Add(writeTime))
	}
	return nil
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		known := c.known
		c.of.forget(c)
		c.of.mu.Unlock()
		if known {
			c.of.leave()
		}
	})
	return c.Conn.Close()
}

// The server sets deadlines for each request. Those of a stranger never go beyond
// its own.

func (c *conn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(c.atMost(t)) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.atMost(t)) }
func (c *conn) SetDeadline(t time.Time) error      { return c.Conn.SetDeadline(c.atMost(t)) }

func (c *conn) atMost(t time.Time) time.Time {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.known && (t.IsZero() || t.After(c.limit)) {
		return c.limit
	}
	return t
}
