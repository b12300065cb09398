package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

// agentAt is what a member has for itself of how its agent is asked. Zero values: its own address, and as the group's agent says.
type agentAt struct {
	addr netip.Addr
	port uint16
	send string
}

// agent is what is known of a member's agent. It is guarded by the Set's lock.
type agent struct {
	says  agentSays // by all answers
	at    time.Time // of the last answer; zero: none
	err   error     // of the last time that it was asked; nil: it has answered
	asker *asker    // nil: it is not asked
}

// An asker asks a member's agent at intervals. An agent that does not answer changes nothing: what it has said holds.
type asker struct {
	m      *Member
	cfg    *spec.Agent
	group  *spec.Group
	own    agentAt
	to     netip.AddrPort
	send   []byte
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
}

// agentJitter is the random variation of the time from one question to the next, as a share of it.
const agentJitter = 0.2

// updateAgent starts, stops or changes the questions to the member's agent. The caller holds the Set's lock.
func (m *Member) updateAgent() {
	g, a := m.group, &m.agent
	cfg := g.cfg.Agent
	if cfg == nil {
		a.stop()
		*a = agent{}
		m.updateLimit()
		return
	}
	addr := m.addr.AddrPort.Addr()
	if own := m.agentAt.addr; own.IsValid() {
		addr = own
	}
	if !addr.IsValid() || m.override.mode == Disable || g.set.closed {
		a.stop()
		return
	}
	if k := a.asker; k != nil && k.own == m.agentAt && reflect.DeepEqual(k.cfg, cfg) && reflect.DeepEqual(k.group.Dial, g.cfg.Dial) {
		return
	}
	a.stop()
	k := &asker{m: m, cfg: cfg, group: g.cfg, own: m.agentAt, to: netip.AddrPortFrom(addr, cmp.Or(m.agentAt.port, cfg.Port)), send: cfg.Send}
	if m.agentAt.send != "" {
		k.send = []byte(m.agentAt.send)
	}
	k.ctx, k.cancel = context.WithCancel(g.set.ctx)
	k.timer = time.AfterFunc(time.Hour, k.run)
	k.timer.Reset(rand.N(min(cfg.Every, time.Duration(len(g.members))*firstCheckSpread) + 1))
	a.asker = k
}

// stop stops the questions; one that is being asked has no effect any more. What the agent has said stays.
func (a *agent) stop() {
	if a.asker != nil {
		a.asker.cancel()
		a.asker.timer.Stop()
		a.asker = nil
	}
}

// run asks once, on the timer's goroutine.
func (k *asker) run() {
	s := k.m.group.set
	var line string
	var err error
	s.look(k.ctx, s.asks, k.cfg.Timeout, func(ctx context.Context) {
		line, err = s.ask(ctx, k.group, k.to, k.send)
	}, func(_, now time.Time) {
		k.take(line, s.opt.Explain(err), now)
	})
}

// take takes an answer. The caller holds the Set's lock.
func (k *asker) take(line string, err error, now time.Time) {
	m := k.m
	a, g := &m.agent, m.group
	k.timer.Reset(k.cfg.Every + time.Duration((rand.Float64()-0.5)*agentJitter*float64(k.cfg.Every)))
	if a.err = err; err != nil {
		return
	}
	var says agentSays
	says, a.err = parseAgent(line)
	a.at = now
	was, weight := a.says, m.weight()
	if a.says.merge(says); a.says == was {
		return
	}
	g.set.touch()
	m.updateLimit()
	g.wake()
	m.updateChecker() // one that is in maintenance is not checked
	g.updateState(m, now, a.says.why())
	if m.weight() != weight {
		g.scheduleBuild()
	}
}

// updateLimit sets how many flows the member may have. The caller holds the Set's lock.
func (m *Member) updateLimit() {
	limit := int32(m.limitWanted)
	if m.agent.says.hasLimit {
		limit = int32(m.agent.says.limit)
	}
	if m.limit.Swap(limit) != limit {
		if t := m.tier.Load(); t != nil {
			t.released(m, true)
		}
	}
}

// ask asks an agent once, and returns its line without the end. ctx must have a deadline.
func (p *prober) ask(ctx context.Context, g *spec.Group, to netip.AddrPort, send []byte) (string, error) {
	conn, err := p.dialIP(ctx, g, "tcp", to, g.Dial.Source)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// The end of ctx, including its deadline, ends reading and writing.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if len(send) > 0 {
		if _, err := conn.Write(send); err != nil {
			return "", err
		}
	}
	line := make([]byte, 0, maxAgentLine)
	for {
		n, err := conn.Read(line[len(line):cap(line)])
		line = line[:len(line)+n]
		if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
			return string(line[:end]), nil
		}
		switch {
		case len(line) == cap(line):
			return "", fmt.Errorf("the agent's line is more than %d bytes long", maxAgentLine)
		case err == nil:
		case len(line) == 0 && (errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded)):
			return "", fmt.Errorf("no answer of the agent (%w)", err)
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return "", fmt.Errorf("the agent's answer %.40q does not end as a line (%w)", line, err)
		default:
			return "", err
		}
	}
}
