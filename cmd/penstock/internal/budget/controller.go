package budget

import (
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/relay/overload"
)

const (
	// The intervals of measuring: far from the limit, and near to it.
	calmInterval, tenseInterval = 250 * time.Millisecond, 100 * time.Millisecond
	tense                       = 0.5 // the pressure from which the shorter one holds
	// shrinkPause is the least time between two rounds of giving back, each of which collects garbage;
	// a round that has ended flows is followed by another one at once, unless rounds take more than one
	// part in restShare of the time.
	shrinkPause = 2 * time.Second
	restShare   = 4
	// vainPause is the pause after a round that has ended nothing.
	vainPause = 500 * time.Millisecond
	// shutMost is for how long new clients of streams wait before stalled flows end for them: those that
	// hold the memory may do so for ever, and would keep everybody else out.
	shutMost = time.Second
	// overshoot is how much further the pressure is to fall than where an action ends: what flows hold is an
	// estimate, and rounds that ask for just enough come nearer and nearer without getting there.
	overshoot = 0.05
	// For how long nothing must have moved in a flow that is ended.
	stalledFor, idleFor = time.Second, 5 * time.Second
	// goShare is the part of the limit that becomes the limit of Go's runtime, above which it collects
	// garbage more often: below the first threshold, so that garbage alone never makes the daemon shed.
	goShare = 0.7
	// holdShare is the part of the limit that streams may hold before each further one holds less: so
	// much may come between two measures.
	holdShare = 0.25
)

// Config configures a Controller.
type Config struct {
	Engine overload.Control
	Meter  *Meter // which the Controller closes
	// Counts are what the actions have done, by action: Shrink and the gates count how often they
	// became active; the others count flows.
	Counts [NumActions]*atomic.Int64
	// Changed, if not nil, is called when an action begins or ends.
	Changed func(a Action, active bool, r Reading)
	// Limited, if not nil, is called when the lowest limit has changed; 0: there is none any more.
	Limited func(limit int64)
	// KeepGoLimit leaves the memory limit of Go's runtime as it is.
	KeepGoLimit bool
}

// A Controller measures memory from time to time and has the engine shed load. Its methods may be called
// by any goroutine.
type Controller struct {
	Config
	stop chan struct{}
	done sync.WaitGroup

	// Of the goroutine that measures.
	gates     overload.State
	limit     int64 // the lowest
	shrunk    time.Time
	shut      time.Time // since when streams are not accepted; zero: they are
	nextRound time.Time
	free      func() // gives free memory back to the system

	mu      sync.Mutex
	reading Reading
	active  active
}

// State is what a Controller does at the moment.
type State struct {
	Reading
	Active [NumActions]bool
}

// GoLimitIsSet reports whether an operator has set the memory limit of Go's runtime.
func GoLimitIsSet() bool { return os.Getenv("GOMEMLIMIT") != "" }

// Start starts a Controller.
func Start(cfg Config) *Controller {
	c := newController(cfg)
	c.done.Go(c.run)
	return c
}

func newController(cfg Config) *Controller {
	for a := range cfg.Counts {
		if cfg.Counts[a] == nil {
			cfg.Counts[a] = new(atomic.Int64)
		}
	}
	return &Controller{Config: cfg, stop: make(chan struct{}), free: debug.FreeOSMemory}
}

// Close ends the Controller. The engine stays as it is.
func (c *Controller) Close() {
	if c == nil {
		return
	}
	close(c.stop)
	c.done.Wait()
	c.Meter.Close()
}

// State returns what the Controller does at the moment.
func (c *Controller) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{c.reading, c.active}
}

func (c *Controller) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-timer.C:
		}
		interval := calmInterval
		if c.tick(time.Now()) >= tense {
			interval = tenseInterval
		}
		timer.Reset(interval)
	}
}

// tick measures, and does what is to be done. It returns the pressure.
func (c *Controller) tick(now time.Time) float64 {
	r := c.measure()
	c.noteLimit()
	if c.shrinks(r, now) {
		c.shrink()
		c.shrunk = time.Now()
		r = c.measure()
	}
	c.set(r, now)
	if c.State().Active[EndStalled] && !now.Before(c.nextRound) {
		r = c.shed(r, now)
	}
	return r.Pressure
}

func (c *Controller) measure() Reading {
	return c.Meter.Read(func() int64 {
		u := c.Engine.MemoryUse()
		return u.Sockets + u.Pipes
	})
}

// noteLimit has Go's runtime and the owner know the lowest limit.
func (c *Controller) noteLimit() {
	limit := c.Meter.LeastLimit()
	if limit == c.limit {
		return
	}
	c.limit = limit
	c.gates.HoldMost = int64(float64(limit) * holdShare)
	c.Engine.Set(c.gates)
	if !c.KeepGoLimit {
		debug.SetMemoryLimit(goLimit(limit))
	}
	if c.Limited != nil {
		c.Limited(limit)
	}
}

// goLimit returns the memory limit of Go's runtime for a limit of all memory; 0: there is none.
func goLimit(limit int64) int64 {
	if limit <= 0 {
		return noLimit
	}
	return int64(float64(limit) * goShare)
}

// shrinks reports whether memory is to be given back now, before anything is done that costs flows.
func (c *Controller) shrinks(r Reading, now time.Time) bool {
	return r.Pressure >= thresholds[Shrink] && now.Sub(c.shrunk) >= shrinkPause
}

// shrink gives back what costs nothing, and what flows that have ended held.
func (c *Controller) shrink() {
	c.Engine.Trim()
	c.free()
}

// set makes the actions active that a reading asks for, at a time.
func (c *Controller) set(r Reading, at time.Time) {
	c.mu.Lock()
	was := c.active
	now := was.next(r.Pressure)
	switch {
	case !now[NoStreams]:
		c.shut = time.Time{}
	case c.shut.IsZero():
		c.shut = at
	}
	now[EndStalled] = now[EndStalled] || c.isShut(at)
	c.active = now
	c.reading = r
	c.mu.Unlock()
	gates := overload.State{HoldLess: now[Shrink], NoDatagramFlows: now[NoDatagramFlows], NoStreams: now[NoStreams], HoldMost: c.gates.HoldMost}
	if gates != c.gates {
		c.gates = gates
		c.Engine.Set(gates)
	}
	for a := range now {
		if now[a] == was[a] {
			continue
		}
		if now[a] && Action(a) <= NoStreams {
			c.Counts[a].Add(1)
		}
		if c.Changed != nil {
			c.Changed(Action(a), now[a], r)
		}
	}
}

// isShut reports whether new clients of streams have waited for too long.
func (c *Controller) isShut(now time.Time) bool {
	return !c.shut.IsZero() && now.Sub(c.shut) >= shutMost
}

// shed ends as many stalled flows as are needed for the action to end, or for new streams to be accepted again
// if these have waited for too long; or, if there are none, idle flows. What it frees is an estimate, so that
// there may have to be another round.
func (c *Controller) shed(r Reading, now time.Time) Reading {
	began, ended := time.Now(), 0
	for _, a := range [...]Action{EndStalled, EndIdle} {
		c.mu.Lock()
		on := c.active[a]
		c.mu.Unlock()
		if !on {
			break
		}
		limit := a
		if a == EndStalled && c.isShut(now) {
			limit = NoStreams
		}
		s := overload.Shedding{Quiet: stalledFor, Bytes: r.Use - int64((thresholds[limit]-hysteresis-overshoot)*float64(r.Limit))}
		if a == EndIdle {
			s.Idle, s.Quiet = true, idleFor
		}
		got := c.Engine.Shed(s)
		c.Counts[a].Add(int64(got.Flows))
		ended += got.Flows
		if got.Flows > 0 {
			c.shrink() // otherwise the next measure would still count what they held
			r = c.measure()
			c.set(r, now)
			break // no idle flow ends while there are stalled ones
		}
	}
	pause := restShare * time.Since(began)
	if ended == 0 {
		pause = max(pause, vainPause)
	}
	c.nextRound = time.Now().Add(pause)
	return r
}
