//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/internal/proc"
	"github.com/penstock/penstock/bench/internal/world"
)

// The group spread has a rebalance: when a member joins, flows of the others end, one in each round of 5 s, until each has its part and
// one more at most.
const (
	spreadMembers = 3
	spreadClients = 12
)

// spreadName is what a member of the group spread is called, and answers with.
func spreadName(n int) string { return fmt.Sprintf("s%d", n) }

// A spread is what the model knows of the group spread.
type spread struct {
	away    [spreadMembers + 1]bool
	left    [spreadMembers + 1]int // the event at which a member was disabled last; 0: never
	joined  int                    // the event at which a member has joined last; 0: never
	clients []*staying
	moved   int // flows that have ended, because a member has joined
	ended   int // those that have because theirs was disabled
}

// leaveSpread disables a member, unless it is the last one.
func (r *endsRun) leaveSpread(n int) error {
	s := &r.spread
	others := 0
	for i := 1; i <= spreadMembers; i++ {
		if i != n && !s.away[i] {
			others++
		}
	}
	if s.away[n] || others == 0 {
		return nil
	}
	s.away[n], s.left[n] = true, r.now
	return r.ask(http.MethodPatch, "/v1/groups/spread/members/"+spreadName(n), `{"state": "disable"}`)
}

// joinSpread enables a member.
func (r *endsRun) joinSpread(n int) error {
	s := &r.spread
	if !s.away[n] {
		return nil
	}
	s.away[n], s.joined = false, r.now
	return r.ask(http.MethodPatch, "/v1/groups/spread/members/"+spreadName(n), `{"state": "enable"}`)
}

// spreadFlows sees that those flows end whose member was disabled, and that others have ended only if they are older than a member that has
// joined. Their clients come again.
func (r *endsRun) spreadFlows() (err error) {
	s := &r.spread
	s.clients = slices.DeleteFunc(s.clients, func(c *staying) bool {
		n := int(c.server[1] - '0')
		switch {
		case s.left[n] > c.born:
			err = errors.Join(err, r.mustEnd(c, "its member was disabled"))
			s.ended++
		case c.open():
			c.SetDeadline(time.Now().Add(world.Patience))
			got, e := ask(c, r.probes.next())
			if e == nil && got == c.server {
				return false
			}
			if s.joined <= c.born || got != "" {
				err = errors.Join(err, fmt.Errorf("a flow at %s, as old as event %d, does not go on: %q, %v", c.server, c.born, got, e))
			}
			s.moved++ // just now
		case s.joined > c.born:
			s.moved++
		default:
			err = errors.Join(err, fmt.Errorf("a flow at %s, as old as event %d, has ended, and no member has joined since", c.server, c.born))
		}
		c.Close()
		return true
	})
	for err == nil && len(s.clients) < spreadClients {
		var c *staying
		if c, err = r.come("spread", 0); err != nil {
			return fmt.Errorf("a client of the listener spread: %w", err)
		}
		if s.clients = append(s.clients, c); !r.serves("spread", c.server) {
			return fmt.Errorf("a client of the listener spread is at %s", c.server)
		}
	}
	return err
}

// balanced waits until each member has its part of the flows, and sees how many have ended.
func (r *endsRun) balanced() error {
	s := &r.spread
	if s.joined == 0 || s.joined < slices.Max(s.left[:]) { // whoever comes again when members leave may make others fuller, which nobody cures
		return nil
	}
	present := 0
	for n := 1; n <= spreadMembers; n++ {
		if !s.away[n] {
			present++
		}
	}
	err := proc.Until("a part of the flows for each member", world.Patience, 100*time.Millisecond, func() error {
		if err := r.spreadFlows(); err != nil {
			return err
		}
		at := map[string]int{}
		for _, c := range s.clients {
			if at[c.server]++; at[c.server] > spreadClients/present+1 {
				return fmt.Errorf("%s has %d of %d flows or more, of %d members", c.server, at[c.server], spreadClients, present)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	causes, err := r.causes("spread")
	if got := causes["rebalanced"] + causes["removed"]; err == nil && (got != s.moved+s.ended || causes["rebalanced"] < s.moved) {
		err = fmt.Errorf("%d flows have ended because a member has joined and %d because theirs was disabled, and %v are counted", s.moved, s.ended, causes)
	}
	return err
}

func (p *places) spread(n int) string { return fmt.Sprintf("%s:%d", p.host, 23040+n) }

// spreadGroup is the group's text.
func (p *places) spreadGroup() string {
	var members []string
	for n := 1; n <= spreadMembers; n++ {
		members = append(members, fmt.Sprintf("{name: %s, to: \"tcp://%s\"}", spreadName(n), p.spread(n)))
	}
	return fmt.Sprintf("  spread: {balance: least-connections, rebalance: {share: 1, tolerance: 0}, members: [%s]}\n", strings.Join(members, ", "))
}
