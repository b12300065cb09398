package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/api"
)

// connLimit bounds the connections of one listener. A connection is anonymous until one
// of its requests has shown a token:
//
//	accepted ──▶ anonymous ──token──▶ authenticated ──▶ closed
//	                └──too slow, or displaced by a newer anonymous one──▶ closed
//
// There are few places for anonymous connections and they have little time; the oldest is
// closed to make room for a new one. So clients without a token cannot lock out a client
// with one, which sends its request at once. On a Unix socket, where the file mode has
// decided, every connection is authenticated from the start.
type connLimit struct {
	net.Listener
	maxAnonymous, maxAuthenticated int
	anonymousTime                  time.Duration // for everything that an anonymous connection does

	mu            sync.Mutex
	anonymous     []*conn // oldest first
	authenticated int
	room          sync.Cond // of mu: an authenticated connection or the listener was closed
	closed        bool
}

func limitConns(l net.Listener, anonymousTime time.Duration) *connLimit {
	a := &connLimit{Listener: l, maxAnonymous: maxAnonymousConns, maxAuthenticated: maxConns, anonymousTime: anonymousTime}
	a.room.L = &a.mu
	return a
}

// Accept accepts a connection. On a Unix socket it waits while all places are taken;
// further clients then wait in the kernel's queue.
func (a *connLimit) Accept() (net.Conn, error) {
	trusted := a.Addr().Network() == "unix"
	if trusted && !a.acquire() {
		return nil, net.ErrClosed
	}
	raw, err := a.Listener.Accept()
	if err != nil {
		if trusted {
			a.release()
		}
		return nil, err
	}
	c := &conn{Conn: raw, limit: a, authenticated: trusted}
	if trusted {
		return c, nil
	}
	c.deadline = time.Now().Add(a.anonymousTime)
	raw.SetDeadline(c.deadline)
	var oldest *conn
	a.mu.Lock()
	if a.anonymous = append(a.anonymous, c); len(a.anonymous) > a.maxAnonymous {
		oldest = a.anonymous[0]
		a.removeAnonymousLocked(oldest)
	}
	a.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close() // the server notices, and closes the rest
	}
	return c, nil
}

// acquire waits for a place for an authenticated connection and takes it. It returns false
// if the listener was closed.
func (a *connLimit) acquire() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.authenticated >= a.maxAuthenticated && !a.closed {
		a.room.Wait()
	}
	if a.closed {
		return false
	}
	a.authenticated++
	return true
}

// release gives back the place of an authenticated connection.
func (a *connLimit) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.authenticated--
	a.room.Signal()
}

// removeAnonymousLocked removes c from the anonymous connections, if it is one.
func (a *connLimit) removeAnonymousLocked(c *conn) {
	if i := slices.Index(a.anonymous, c); i >= 0 {
		a.anonymous = slices.Delete(a.anonymous, i, i+1)
	}
}

func (a *connLimit) Close() error {
	a.mu.Lock()
	a.closed = true
	a.room.Broadcast()
	a.mu.Unlock()
	return a.Listener.Close()
}

// conn is a connection accepted by a connLimit.
type conn struct {
	net.Conn
	limit    *connLimit
	once     sync.Once
	deadline time.Time // of reads and writes while the connection is anonymous

	// Guarded by limit.mu.
	authenticated               bool
	readDeadline, writeDeadline time.Time // as set by the server; zero for none
}

type connKey struct{}

// withConn returns a context for the requests of c; see http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// authenticate marks the connection of a request that has shown a token as authenticated.
func authenticate(w http.ResponseWriter, r *http.Request) error {
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		return nil
	}
	a := c.limit
	a.mu.Lock()
	was := c.authenticated
	full := !was && a.authenticated >= a.maxAuthenticated
	if !was && !full {
		c.authenticated = true
		a.removeAnonymousLocked(c)
		a.authenticated++
	}
	read, write := c.readDeadline, c.writeDeadline
	a.mu.Unlock()
	switch {
	case full:
		w.Header().Set("Connection", "close")
		return api.NewProblem(http.StatusServiceUnavailable, "too many connections are open", fmt.Sprintf("%d at once with a token", a.maxAuthenticated))
	case !was:
		// The server has set deadlines for this request already.
		c.Conn.SetReadDeadline(read)
		c.Conn.SetWriteDeadline(write)
	}
	return nil
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.limit.mu.Lock()
		authenticated := c.authenticated
		c.limit.removeAnonymousLocked(c)
		c.limit.mu.Unlock()
		if authenticated {
			c.limit.release()
		}
	})
	return c.Conn.Close()
}

// The server sets deadlines for each request. While a connection is anonymous they do not
// exceed its own; from then on they are those of the server.

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.Conn.SetReadDeadline(c.bound(t, &c.readDeadline))
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.bound(t, &c.writeDeadline))
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// bound records the deadline t in set, and returns the one that applies.
func (c *conn) bound(t time.Time, set *time.Time) time.Time {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	*set = t
	if !c.authenticated && (t.IsZero() || t.After(c.deadline)) {
		return c.deadline
	}
	return t
}
