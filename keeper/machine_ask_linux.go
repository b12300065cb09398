package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// maxAsks is how many requests of a worker may wait for an answer. The worker's end waits before it sends more.
const maxAsks = 32

// asked is a request that was not answered.
type asked struct {
	seq uint32
	due time.Time
}

func (m *machine) features() uint64 {
	if m.cfg.Broker == nil {
		return featureLinger
	}
	return featureAsk | featureLinger
}

// sendPolicy tells a worker the policy of the one before.
func (m *machine) sendPolicy(p *peer) {
	if !p.asks || m.cfg.Broker == nil {
		return
	}
	all := parts(p.policy)
	for i, texts := range all {
		p.send(m, appendControl(nil, kindPolicyIs, 0, []uint64{wordOf(i < len(all)-1)}, texts...))
	}
}

// onPolicy takes a worker's policy, once: what controls the worker later cannot change it.
func (m *machine) onPolicy(p *peer, msg *message) {
	switch {
	case !p.asks:
		m.lie(p, "a policy, which it said that it does not know")
		return
	case p.sealed:
		m.lie(p, "a second policy")
		return
	}
	for _, s := range msg.texts {
		p.partial = append(p.partial, s...)
	}
	switch {
	case len(p.partial) > MaxPolicy:
		p.partial = nil
		m.lie(p, "a policy that is too long")
		return
	case msg.word(0) != 0:
		return
	}
	if msg.word(1) == 0 {
		p.policy = string(p.partial)
	}
	p.partial, p.sealed = nil, true
	if p == m.active && p.ready {
		m.policy = p.policy
	}
}

// onAsk passes a request on.
func (m *machine) onAsk(p *peer, msg *message, now time.Time) {
	request := slices.Concat(bytesOf(msg.texts)...)
	switch {
	case len(p.pending) >= maxAsks:
		m.lie(p, "too many requests")
	case len(request) > MaxRequest:
		m.lie(p, "a request that is too long")
	case p.handedOver:
		m.lie(p, "a request after it handed over")
	case m.cfg.Broker == nil:
		p.send(m, refusal(msg.seq, uint64(syscall.ENOSYS), "nobody answers"))
	case !p.sealed:
		p.send(m, refusal(msg.seq, uint64(syscall.EPERM), "this worker has no policy"))
	case slices.ContainsFunc(p.pending, func(a asked) bool { return a.seq == msg.seq }):
		m.lie(p, "two requests with one number")
	default:
		p.pending = append(p.pending, asked{msg.seq, now.Add(m.cfg.AskTimeout)})
		m.port.broker(p.id, msg.seq, p.policy, string(request))
	}
}

func bytesOf(texts []string) (b [][]byte) {
	for _, s := range texts {
		b = append(b, []byte(s))
	}
	return b
}

// brokered is called with what the broker says: a descriptor, which belongs to the machine, or an error.
func (m *machine) brokered(id int, seq uint32, fd int, err error) {
	p := m.peer(id)
	at := -1
	if p != nil {
		at = slices.IndexFunc(p.pending, func(a asked) bool { return a.seq == seq })
	}
	if at < 0 { // too late
		if err == nil {
			m.closeOne(fd)
		}
		return
	}
	p.pending = slices.Delete(p.pending, at, at+1)
	switch {
	case err == nil && fd >= 0:
		p.post(m, outgoing{appendControl(nil, kindAnswer, seq, []uint64{1, 0}), fd})
	case err == nil:
		p.send(m, refusal(seq, uint64(syscall.EBADF), "the broker returned no descriptor"))
	default:
		var e syscall.Errno
		errors.As(err, &e)
		p.send(m, refusal(seq, uint64(e), err.Error()))
	}
}

// waitsFor reports whether a worker still waits for an answer.
func (m *machine) waitsFor(id int, seq uint32) bool {
	p := m.peer(id)
	return p != nil && slices.ContainsFunc(p.pending, func(a asked) bool { return a.seq == seq })
}

// expire answers requests that took too long.
func (m *machine) expire(p *peer, now time.Time) {
	for len(p.pending) > 0 && due(p.pending[0].due, now) {
		m.brokered(p.id, p.pending[0].seq, -1, errSlow)
	}
}

// errSlow is ETIMEDOUT.
var errSlow = fmt.Errorf("the keeper has no answer in time: %w", syscall.ETIMEDOUT)

// refusal is the answer to a request without a descriptor.
func refusal(seq uint32, errno uint64, why string) []byte {
	return appendControl(nil, kindAnswer, seq, []uint64{0, errno}, why)
}

func seqOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b[4:]) }
