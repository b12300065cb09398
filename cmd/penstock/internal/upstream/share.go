package upstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A SharedCheck is a member whose checks are shared among relays.
type SharedCheck struct {
	Scope    string        // which group it is, and how it is checked: all that results depend on
	Member   string        // in the scope
	Checkers int           // how many relays check it
	Patience time.Duration // how long to wait for what others find
	// Update says that what holds has changed. It is called one at a time, without locks that SharedMember's
	// methods take.
	Update func(CheckShare)
}

// A CheckShare is what this relay has to do with the checks of a member.
type CheckShare struct {
	Check bool   // it checks
	Known bool   // what the relays that check have found is known: this counts, and not what this relay finds alone
	Up    bool   // what they have found
	Why   string // of not Up
}

// A SharedMember takes what this relay finds. Its methods do not block, and do not call the Set.
type SharedMember interface {
	// Found says what this relay's checks say, after every one.
	Found(up bool, why string)
	// Leave ends the sharing.
	Leave()
}

// beginSharing asks who checks, if checks are shared. The caller holds the Set's lock.
func (c *checker) beginSharing() {
	c.share = CheckShare{Check: true}
	share := c.m.group.set.opt.Share
	if share == nil || c.cfg.Shared == 0 {
		return
	}
	cfg, scope := *c.cfg, ""
	if cfg.TLS = nil; c.group.CheckTLS() != nil {
		scope = fmt.Sprintf(" %+v", *c.group.CheckTLS())
	}
	member := fmt.Sprintf("%s %d", c.m.addr, c.m.ports)
	if c.at != (checkAt{}) {
		member += fmt.Sprintf(" at %v %d", c.at.addr, c.at.port)
	}
	c.shared, c.share = share(SharedCheck{
		Scope:    fmt.Sprintf("%s %+v %+v", c.group.Name, cfg, c.group.Dial) + scope,
		Member:   member,
		Checkers: c.cfg.Shared, Patience: max(c.cfg.Every, c.cfg.EveryDown) + c.cfg.Timeout + 2*time.Second,
		Update: c.updateShare,
	})
	c.m.health.shared = c.share.state()
}

func (s *CheckShare) state() checkState {
	switch {
	case !s.Known:
		return unknown
	case s.Up:
		return passing
	}
	return failing
}

// updateShare takes what holds now. A relay that no longer knows what others find goes on from the last that it
// knew, so that nothing goes up or down by that.
func (c *checker) updateShare(next CheckShare) {
	s := c.m.group.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || c.ctx.Err() != nil {
		return
	}
	was, now, h := c.share, time.Now(), &c.m.health
	c.share = next
	if was.Known && !next.Known && !was.Check {
		h.state, h.contrary = was.state(), 0
	}
	h.shared = next.state()
	switch {
	case next.Check && !was.Check:
		// A member whose state is not known is checked soon; the others at any time, because many relays may
		// begin at once.
		soon := c.cfg.Every
		if h.effective() == unknown {
			soon = min(soon, time.Duration(len(c.m.group.members))*firstCheckSpread)
		}
		c.timer.Reset(rand.N(soon + 1))
	case was.Check && !next.Check:
		c.timer.Stop()
		if next.Known {
			h.state, h.contrary = unknown, 0
		}
	}
	why := "check passed, as other relays found"
	if next.Known {
		var err error
		if !next.Up {
			why = next.Why
			err = errors.New(next.Why)
		}
		if !next.Check && (!was.Known || was.Up != next.Up) {
			h.record(now, 0, err)
		}
	}
	s.touch()
	c.m.group.updateState(c.m, now, why)
}
