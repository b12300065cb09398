//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// checked are the members of the group that the daemons check. Each echoes, and counts who connects.
type checked struct {
	list []*target
	work sync.WaitGroup
}

type target struct {
	addr    string
	clients atomic.Int64

	mu sync.Mutex
	l  net.Listener // nil: the member is dead
}

func newChecked(host string, n int) (*checked, error) {
	c := &checked{}
	for i := range n {
		t := &target{addr: fmt.Sprintf("%s:%d", host, 9000+i)}
		c.list = append(c.list, t)
		if err := c.open(t); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *checked) open(t *target) error {
	l, err := net.Listen("tcp", t.addr)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.l = l
	t.mu.Unlock()
	c.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.clients.Add(1)
			c.work.Go(func() { io.Copy(conn, conn); conn.Close() })
		}
	})
	return nil
}

// kill ends a member.
func (t *target) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.l != nil {
		t.l.Close()
		t.l = nil
	}
}

func (c *checked) close() {
	for _, t := range c.list {
		t.kill()
	}
	c.work.Wait()
}

// group returns the group of the configuration.
func (s *settings) group(members []*target) string {
	if len(members) == 0 {
		return `{members: ["tcp://127.0.0.1:9"]}`
	}
	var list []string
	for _, t := range members {
		list = append(list, fmt.Sprintf("%q", "tcp://"+t.addr))
	}
	return fmt.Sprintf("{members: [%s], check: {tcp: {every: %v, shared: %d}}}", strings.Join(list, ", "), s.every, s.shared)
}

// checks counts how often each member is checked, and measures how long all daemons take to know that one has died, and
// that it is back.
func (s *settings) checks(out io.Writer, f *relays, c *checked) error {
	before, total := make([]int64, len(c.list)), int64(0)
	for i, t := range c.list {
		before[i] = t.clients.Load()
	}
	begin := time.Now()
	time.Sleep(s.rest)
	took := time.Since(begin).Seconds()
	least, most := int64(1)<<62, int64(0)
	for i, t := range c.list {
		n := t.clients.Load() - before[i]
		least, most, total = min(least, n), max(most, n), total+n
	}
	fmt.Fprintf(out, "BenchmarkChecks/shared=%d/daemons=%d/members=%d\t1\t%.3f checks/member/s\t%.3f least\t%.3f most\n", s.shared, s.daemons, len(c.list),
		float64(total)/took/float64(len(c.list)), float64(least)/took, float64(most)/took)
	for i := range s.storms {
		t := c.list[i%len(c.list)]
		for _, state := range []string{"down", "up"} {
			f.forgetStates()
			at := time.Now()
			var err error
			if state == "down" {
				t.kill()
			} else {
				err = c.open(t)
			}
			if err != nil {
				return err
			}
			all, err := f.awaitState("tcp://"+t.addr, state)
			if err != nil {
				return err
			}
			var some times
			for _, e := range all {
				some = append(some, e.at.Sub(at))
			}
			fmt.Fprintf(out, "BenchmarkMember/to=%s/shared=%d/daemons=%d\t1\t%s\n", state, s.shared, s.daemons, some.figures())
		}
	}
	return nil
}

// memberState is what a daemon's log says of a member.
type memberState struct{ node, member, state string }

// noteState notes a line of a daemon's log.
func (f *relays) noteState(node, member, state string, at time.Time) {
	if state == "slow-start" {
		state = "up"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	k := memberState{node, member, state}
	if _, ok := f.states[k]; !ok {
		f.states[k] = event{Node: node, At: at.UnixNano()}
	}
}

func (f *relays) forgetStates() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states = map[memberState]event{}
}

// awaitState waits until all daemons have a member in a state.
func (f *relays) awaitState(member, state string) (map[string]got, error) {
	if f.s.nodes > 0 {
		return nil, errors.New("simulated relays check nothing; allowed: -nodes 0")
	}
	return f.all(fmt.Sprintf("member %s %s", member, state), func() map[string]event {
		some := map[string]event{}
		for k, e := range f.states {
			if k.member == member && k.state == state {
				some[k.node] = e
			}
		}
		return some
	})
}
