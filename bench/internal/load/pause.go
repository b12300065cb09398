//go:build linux

package load

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/stat"
)

// PauseConfig describes connections through a relay to which something happens. All of them have had
// an echo. Some, the active ones, send the next message as soon as the echo has come, all the time;
// the others are idle until the end, and then send one more.
type PauseConfig struct {
	Addr    string
	Conns   int
	Active  int
	Around  time.Duration // load before the event, and for at least as long after it
	Settled func() (int64, error)

	// Event is called from the thread that carries the load. It returns a channel that says when the
	// event is over, or nil if it is when Event returns: then nothing that has come until then was
	// moved after the event.
	Event func() (over <-chan error, err error)
}

// Pauses are durations in ns, of all active connections that live, in order.
type Pauses []uint32

// At returns the pause that a share of the connections did not exceed.
func (p Pauses) At(share float64) time.Duration { return time.Duration(stat.Rank(p, share)) }

// PauseResult is what the connections have seen.
type PauseResult struct {
	Settled int64         // flows that the keeper held before the event
	Took    time.Duration // the event
	First   Pauses        // from the begin of the event to the first byte that moved again; only of an event that is over when Event returns
	Gap     Pauses        // the longest time between two echoes, of which the second came after the begin of the event
	Before  Pauses        // the same for a time without an event, as long as that before it
	Cut     int           // connections that ended, or gave wrong bytes
	Errors  []string      // some of why
}

type paused struct {
	pinger
	last    time.Time
	longest time.Duration
	first   time.Duration
	cut     bool
}

// pauser is the load of Pause.
type pauser struct {
	cfg   PauseConfig
	all   []paused
	poll  *poller
	buf   []byte
	ids   uint64
	begun time.Time // the event; zero: not yet
	res   PauseResult
}

// Pause runs the load with the event in its middle.
func Pause(cfg PauseConfig) (PauseResult, error) {
	runtime.LockOSThread()
	p := &pauser{cfg: cfg, buf: make([]byte, messageSize)}
	err := p.run()
	return p.res, err
}

func (p *pauser) run() error {
	to, err := sockaddr(p.cfg.Addr)
	if err != nil {
		return err
	}
	all, err := openAllIdle(to, Spec{Conns: p.cfg.Conns, Size: messageSize})
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range all {
			unix.Close(c.fd)
		}
	}()
	if p.poll, err = newPoller(); err != nil {
		return err
	}
	defer unix.Close(p.poll.fd)
	for i, c := range all {
		p.all = append(p.all, paused{pinger: c})
		if err := p.poll.add(c.fd, int32(i)); err != nil {
			return err
		}
	}
	for end := time.Now().Add(stall); p.cfg.Settled != nil; time.Sleep(50 * time.Millisecond) {
		if p.res.Settled, err = p.cfg.Settled(); err != nil {
			return err
		}
		if p.res.Settled >= int64(p.cfg.Conns) {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("only %d of %d flows are settled after %v", p.res.Settled, p.cfg.Conns, stall)
		}
	}
	active := p.all[:p.cfg.Active]
	for i := range active {
		p.next(&active[i])
	}
	if err := p.until(time.Now().Add(100 * time.Millisecond)); err != nil { // all are in motion
		return err
	}
	p.fresh()
	if err := p.until(time.Now().Add(p.cfg.Around)); err != nil {
		return err
	}
	p.res.Before = p.gaps()
	p.fresh()
	if err := p.event(); err != nil {
		return err
	}
	p.res.Gap = p.gaps()
	p.lastEchoes()
	for _, c := range p.all {
		if c.cut {
			p.res.Cut++
		}
	}
	return nil
}

// event causes the event, and goes on until each active connection that lives has had an echo
// after it.
func (p *pauser) event() error {
	p.begun = time.Now()
	over, err := p.cfg.Event()
	if err != nil {
		return err
	}
	if over == nil {
		p.res.Took = time.Since(p.begun)
		// What is there now was moved before.
		for i := range p.all[:p.cfg.Active] {
			c := &p.all[i]
			if n, _, err := unix.Recvfrom(c.fd, p.buf[:1], unix.MSG_PEEK|unix.MSG_DONTWAIT); err == nil && n > 0 {
				p.echo(c)
			}
		}
	}
	instant := over == nil
	for i := range p.all[:p.cfg.Active] {
		p.all[i].first = 0
	}
	enough := p.begun.Add(p.cfg.Around)
	for end := p.begun.Add(2 * stall); ; {
		if err := p.until(time.Now().Add(10 * time.Millisecond)); err != nil {
			return err
		}
		select {
		case err := <-over:
			if err != nil {
				return err
			}
			p.res.Took = time.Since(p.begun)
			over = nil
			enough = time.Now().Add(p.cfg.Around)
		default:
		}
		missing := slices.ContainsFunc(p.all[:p.cfg.Active], func(c paused) bool { return !c.cut && c.first == 0 })
		if over == nil && !missing && time.Now().After(enough) {
			break
		}
		if time.Now().After(end) {
			if over != nil {
				return errors.New("the event is not over")
			}
			for i := range p.all[:p.cfg.Active] {
				if c := &p.all[i]; c.first == 0 {
					p.fail(c, fmt.Errorf("no echo for %v", 2*stall))
				}
			}
			break
		}
	}
	if instant {
		for _, c := range p.all[:p.cfg.Active] {
			if !c.cut {
				p.res.First = append(p.res.First, pause(c.first))
			}
		}
		slices.Sort(p.res.First)
	}
	return nil
}

func pause(d time.Duration) uint32 { return uint32(min(d, 1<<32-1)) }

// fresh forgets the gaps so far.
func (p *pauser) fresh() {
	for i := range p.all {
		p.all[i].longest = 0
	}
}

// gaps returns the longest gap of each active connection, including the one that lasts.
func (p *pauser) gaps() (gaps Pauses) {
	for _, c := range p.all[:p.cfg.Active] {
		if !c.cut {
			gaps = append(gaps, pause(max(c.longest, time.Since(c.last))))
		}
	}
	slices.Sort(gaps)
	return gaps
}

// until carries the load.
func (p *pauser) until(end time.Time) error {
	for {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		n, err := unix.EpollWait(p.poll.fd, p.poll.events[:], max(1, millis(left)))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, ev := range p.poll.events[:n] {
			p.echo(&p.all[ev.Fd])
		}
	}
}

// echo takes an echo, or the end of a connection, and sends the next message.
func (p *pauser) echo(c *paused) {
	if c.cut {
		return
	}
	if err := c.pong(p.buf); err != nil {
		p.fail(c, err)
		return
	}
	now := time.Now()
	if !c.last.IsZero() {
		c.longest = max(c.longest, now.Sub(c.last))
	}
	c.last = now
	if !p.begun.IsZero() && c.first == 0 {
		c.first = now.Sub(p.begun)
	}
	p.next(c)
}

func (p *pauser) next(c *paused) {
	p.ids++
	if err := c.ping(p.ids); err != nil {
		p.fail(c, err)
	}
}

func (p *pauser) fail(c *paused, err error) {
	if c.cut {
		return
	}
	c.cut = true
	unix.EpollCtl(p.poll.fd, unix.EPOLL_CTL_DEL, c.fd, nil)
	if len(p.res.Errors) < 5 {
		p.res.Errors = append(p.res.Errors, err.Error())
	}
}

// lastEchoes makes each connection that lives answer once more; calls time out by themselves.
func (p *pauser) lastEchoes() {
	for i := range p.all {
		c := &p.all[i]
		if c.cut {
			continue
		}
		if i < p.cfg.Active { // a message is under way
			if err := c.pong(p.buf); err != nil {
				p.fail(c, err)
				continue
			}
		}
		p.ids++
		err := c.ping(p.ids)
		if err == nil {
			err = c.pong(p.buf)
		}
		if err != nil {
			p.fail(c, err)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.EAGAIN) {
			return // the others would take as long
		}
	}
}
