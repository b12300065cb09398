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
//
// An authenticated connection keeps its place while it makes progress. If all places are
// taken, a new one displaces the one that has waited for longest for its next request, or
// for the rest of it; if there is none, the one whose answer has made no progress for
// longest, after slowTime. So clients that send half a request, or do not read their answers,
// keep no operator out.
type connLimit struct {
	net.Listener
	maxAnonymous, maxAuthenticated int
	anonymousTime                  time.Duration // for everything that an anonymous connection does
	slowTime                       time.Duration

	mu            sync.Mutex
	anonymous     []*conn // oldest first
	authenticated map[*conn]struct{}
	room          sync.Cond // of mu: an authenticated connection or the listener was closed, or some time has passed
	closed        bool
}

func limitConns(l net.Listener, anonymousTime, slowTime time.Duration) *connLimit {
	a := &connLimit{Listener: l, maxAnonymous: maxAnonymousConns, maxAuthenticated: maxConns, anonymousTime: anonymousTime, slowTime: slowTime,
		authenticated: map[*conn]struct{}{}}
	a.room.L = &a.mu
	return a
}

// Accept accepts a connection. On a Unix socket it waits while all places are taken by
// connections that make progress; further clients then wait in the kernel's queue.
func (a *connLimit) Accept() (net.Conn, error) {
	raw, err := a.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, limit: a, progress: time.Now()}
	if a.Addr().Network() == "unix" {
		if !a.admit(c) {
			raw.Close()
			return nil, net.ErrClosed
		}
		return c, nil
	}
	c.deadline = c.progress.Add(a.anonymousTime)
	raw.SetDeadline(c.deadline)
	var oldest *conn
	a.mu.Lock()
	if a.anonymous = append(a.anonymous, c); len(a.anonymous) > a.maxAnonymous {
		oldest = a.anonymous[0]
		a.removeLocked(oldest)
	}
	a.mu.Unlock()
	if oldest != nil {
		oldest.Conn.Close() // the server notices, and closes the rest
	}
	return c, nil
}

// admit waits for a place for an authenticated connection, and gives it to c. It returns
// false if the listener was closed.
func (a *connLimit) admit(c *conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.closed {
		if a.admitLocked(c) {
			return true
		}
		again := time.AfterFunc(a.slowTime, func() { // one of them may be slow by then
			a.mu.Lock()
			a.room.Broadcast()
			a.mu.Unlock()
		})
		a.room.Wait()
		again.Stop()
	}
	return false
}

// admitLocked gives c a place for an authenticated connection, if there is one or another
// connection can be displaced.
func (a *connLimit) admitLocked(c *conn) bool {
	if len(a.authenticated) >= a.maxAuthenticated {
		weakest := a.weakestLocked()
		if weakest == nil {
			return false
		}
		a.removeLocked(weakest)
		weakest.Conn.Close() // the server notices, and closes the rest
	}
	c.authenticated = true
	a.authenticated[c] = struct{}{}
	return true
}

// weakestLocked returns the authenticated connection that is the first to be displaced, or nil.
func (a *connLimit) weakestLocked() (weakest *conn) {
	slow := time.Now().Add(-a.slowTime)
	for c := range a.authenticated {
		if c.serving && c.progress.After(slow) {
			continue
		}
		if weakest == nil || !c.serving && weakest.serving || c.serving == weakest.serving && c.progress.Before(weakest.progress) {
			weakest = c
		}
	}
	return weakest
}

// removeLocked takes the place of c back, if it has one.
func (a *connLimit) removeLocked(c *conn) {
	if i := slices.Index(a.anonymous, c); i >= 0 {
		a.anonymous = slices.Delete(a.anonymous, i, i+1)
	}
	if _, ok := a.authenticated[c]; ok {
		delete(a.authenticated, c)
		a.room.Signal()
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
	deadline time.Time // of reads and writes while the connection is anonymous

	// Guarded by limit.mu.
	authenticated               bool
	serving                     bool      // a handler runs
	progress                    time.Time // when it was accepted, a handler began or ended, or a part of an answer left
	writing                     time.Time // since when a part of an answer has been leaving; zero for none
	readDeadline, writeDeadline time.Time // as set by the server; zero for none
}

// serve notes that a handler begins or ends.
func (c *conn) serve(serving bool) {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.serving, c.progress = serving, time.Now(); !serving {
		c.limit.room.Signal() // it may be displaced now
	}
}

// Write notes the progress of an answer.
func (c *conn) Write(b []byte) (int, error) {
	note := func(writing bool) {
		now := time.Now()
		c.limit.mu.Lock()
		defer c.limit.mu.Unlock()
		if c.writing = now; !writing {
			c.writing, c.progress = time.Time{}, now
		}
	}
	note(true)
	defer note(false)
	return c.Conn.Write(b)
}

// stalled reports whether a part of an answer has been leaving for so long.
func (c *conn) stalled(long time.Duration) bool {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	return !c.writing.IsZero() && time.Since(c.writing) >= long
}

type connKey struct{}

// withConn returns a context for the requests of c; see http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, or nil in a test without one.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// authenticate marks the connection of a request that has shown a token as authenticated.
func authenticate(w http.ResponseWriter, r *http.Request) error {
	c := connOf(r)
	if c == nil {
		return nil
	}
	a := c.limit
	a.mu.Lock()
	was := c.authenticated
	full := !was && !a.admitLocked(c)
	if !was && !full {
		a.anonymous = slices.DeleteFunc(a.anonymous, func(x *conn) bool { return x == c })
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
	c.limit.mu.Lock()
	c.limit.removeLocked(c)
	c.limit.mu.Unlock()
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
