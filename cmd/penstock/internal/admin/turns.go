package admin

import (
	"context"
	"sync"
	"time"
)

// turns bounds how many answers of a kind are made at once; others wait. An answer that is written while it
// is made takes as long as its client reads: while others wait, its connection is closed if a part of it does
// not leave for slowTime, or all of it takes longer than writeTime.
type turns struct {
	slots    chan struct{}
	slowTime time.Duration

	mu    sync.Mutex
	since map[*conn]time.Time // of answers that are written while they are made
}

func newTurns(n int) *turns {
	return &turns{slots: make(chan struct{}, n), slowTime: slowTime, since: map[*conn]time.Time{}}
}

// take waits for a turn and returns what ends it. c is the connection to which the answer is written
// while it is made, or nil.
func (t *turns) take(ctx context.Context, c *conn) (end func(), err error) {
	for {
		again := time.NewTimer(t.slowTime)
		select {
		case t.slots <- struct{}{}:
			again.Stop()
			t.note(c, true)
			return func() {
				t.note(c, false)
				<-t.slots
			}, nil
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-again.C:
			t.cutSlow()
		}
	}
}

func (t *turns) note(c *conn, began bool) {
	if c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if began {
		t.since[c] = time.Now()
	} else {
		delete(t.since, c)
	}
}

// cutSlow closes the connections of answers that take too long.
func (t *turns) cutSlow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, since := range t.since {
		if c.stalled(t.slowTime) || time.Since(since) >= writeTime {
			c.Conn.Close() // the server notices, and closes the rest
		}
	}
}
