package relay

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
)

// Some protocols say something before they relay: where a server is to connect to, and whether it could, or that TLS
// follows. The hooks know the words; the engine says them, on both sides, before it goes on.

var (
	errNoReply  = fmt.Errorf("relay: Reply of a datagram flow: %w", errors.ErrUnsupported)
	errNoExpect = fmt.Errorf("relay: Expect of a datagram flow: %w", errors.ErrUnsupported)
	errAnswer   = fmt.Errorf("relay: Expect of no bytes, or of more than %d", answerMost)
	errReplies  = fmt.Errorf("relay: more than %d bytes of replies that the client does not take", repliesMost)
)

const (
	answerMost  = 1024
	repliesMost = 16 << 10
)

// Reply, called in a hook of a stream that does not relay yet, sends b to the client: in Hooks.Sniff what a protocol
// answers, in Hooks.Connected that the flow has its upstream, before a hook ends the flow why it does. Reply copies b.
// What the client's socket does not take at once is sent before anything else that the client gets, its TLS included. A
// client that does not take it within Timeouts.Connect ends the flow with [CauseClientGone]. The record does not count
// these bytes.
//
// A client that is refused, or for which there is no upstream, is not reset if the last thing that it got is a reply: one
// that was sent while it was sniffed, if Hooks.Sniff refuses it, and otherwise one since Hooks.Upstream has last
// returned an address. What its socket has not taken by then has a second to be taken.
//
// Reply returns [ErrStage] while a stream relays and after [Flow.Terminate], [errors.ErrUnsupported] for a datagram flow,
// and an error if more than 16 KiB wait for a client that does not take them.
func (f *Flow) Reply(b []byte) error {
	s, ok := f.owner.(*streams)
	if !ok {
		return errNoReply
	}
	sf := s.of(f)
	if sf.state == streamRelaying || sf.tls.has(sideClient) {
		return sf.stage("Reply", "hooks before a stream relays, and before Terminate")
	}
	x := s.earlyOf(sf)
	if len(x.reply)+len(b) > repliesMost {
		return errReplies
	}
	x.replied = true
	if len(x.reply) == 0 && x.failed == 0 {
		b, x.failed = s.sendOut(int(sf.fd[sideClient]), b)
	}
	x.reply = append(x.reply, b...)
	return nil
}

// sendOut sends what a socket takes of b, and returns the rest.
func (s *streams) sendOut(fd int, b []byte) ([]byte, sys.Errno) {
	for len(b) > 0 {
		n, e := s.env.Kernel.Send(fd, b)
		switch {
		case e == sys.EINTR:
		case e == sys.EAGAIN:
			return b, 0
		case e != 0:
			return nil, e
		default:
			b = b[n:]
		}
	}
	return nil, 0
}

// replyTurn goes on with a client that takes its replies, and may have been waited for.
func (s *streams) replyTurn(f *streamFlow) {
	x := f.early
	if x.failed == 0 { // or a reply in front of these could not be sent
		x.reply, x.failed = s.sendOut(int(f.fd[sideClient]), x.reply)
	}
	switch {
	case x.failed != 0:
		s.end(f, CauseClientGone, x.failed)
	case len(x.reply) > 0 || f.state != streamReplying:
	case f.cause != CauseNone:
		s.turnAway(f, f.cause, f.err)
	case f.connect > 0:
		s.start(f, true)
	default:
		s.sniffed(f)
	}
}

// replies reports whether the client does not have all of its replies, which the flow then waits for before it goes on,
// or cannot be sent them.
func (s *streams) replies(f *streamFlow) bool {
	x := f.early
	switch {
	case x == nil:
		return false
	case x.failed != 0:
		s.end(f, CauseClientGone, x.failed)
	case len(x.reply) > 0:
		f.state, f.since = streamReplying, s.loop.Now
		s.rearm(f)
	default:
		return false
	}
	return true
}

// turnAway ends a flow that has no upstream because a hook, or the last of its attempts, says so. A client that was told
// why is not reset.
func (s *streams) turnAway(f *streamFlow, c Cause, err error) {
	if x := f.early; x != nil && x.replied {
		f.cause, f.err, f.active = c, err, s.loop.Now // it has failedDrain to take what was not sent yet
		if s.replies(f) {
			return
		}
		f.wait[down] = pump.End
	}
	s.end(f, c, err)
}

// sniffed goes on with a flow whose hook has seen enough.
func (s *streams) sniffed(f *streamFlow) {
	switch {
	case s.replies(f):
	case f.tls != nil:
		s.secure(f, sideClient)
	default:
		s.toUpstream(f)
	}
}

// Expect, called in Hooks.Connected of a stream that is connected, makes the engine send what [Flow.Preface] has added, and
// wait until the upstream has sent these bytes, of which there are at most 1024. Then the flow goes on: with a handshake,
// if [Flow.Originate] was called too, or else Hooks.Answered is called, and it goes on with the bytes of the client. Whatever
// else the upstream does is a failed attempt: other bytes, more bytes at once, the end of its side
// ([AnswerError]), or nothing within Timeouts.Connect. The record does not count these bytes. They must not change.
//
// Expect returns [ErrStage] in another hook and after a failed attempt, and [errors.ErrUnsupported] for a datagram flow.
func (f *Flow) Expect(answer []byte) error {
	s, ok := f.owner.(*streams)
	switch {
	case !ok:
		return errNoExpect
	case !s.of(f).connected():
		return s.of(f).stage("Expect", connectedOnly)
	case len(answer) == 0 || len(answer) > answerMost:
		return errAnswer
	}
	s.earlyOf(s.of(f)).answer = answer
	return nil
}

// connected goes on with a flow whose upstream is connected, and has answered if it had to.
func (s *streams) connected(f *streamFlow, readable bool) {
	if f.tls.has(sideUpstream) {
		s.secure(f, sideUpstream)
		return
	}
	s.start(f, readable)
}

// start begins to relay, once the client has all of its replies.
func (s *streams) start(f *streamFlow, readable bool) {
	if s.replies(f) {
		return
	}
	s.relay(f)
	if f.to.Network.BuiltIn() {
		f.wait[down] = pump.End
		s.firstTurn(f)
		return
	}
	s.firstTurns(f, readable)
}

// ask begins to wait for an upstream's answer. What it is asked is kept apart from what the client has sent,
// which is still there after a failed attempt.
func (s *streams) ask(f *streamFlow) {
	x := f.early
	x.question, x.answered = bytes.Clone(x.held[:x.own]), 0
	x.held, x.own = x.held[:copy(x.held, x.held[x.own:])], 0
	f.state = streamAsking
	s.rearm(f)
	s.askTurn(f)
}

// askTurn goes on with a flow whose upstream is to answer.
func (s *streams) askTurn(f *streamFlow) {
	x, fd := f.early, int(f.fd[sideUpstream])
	var e sys.Errno
	if x.question, e = s.sendOut(fd, x.question); e != 0 {
		s.answerFailed(f, e)
		return
	}
	if len(x.question) > 0 {
		return
	}
	for {
		want := x.answer[x.answered:]
		n, e := s.env.Kernel.Recv(fd, s.env.Scratch[:len(want)+1])
		got := s.env.Scratch[:max(n, 0)]
		switch {
		case e == sys.EINTR, e == sys.EAGAIN && s.disturbed(f, sideUpstream):
		case e == sys.EAGAIN:
			return
		case e != 0:
			s.answerFailed(f, e)
			return
		case n == 0, !bytes.HasPrefix(want, got):
			s.answerFailed(f, &AnswerError{append(bytes.Clone(x.answer[:x.answered]), got...)})
			return
		case n == len(want):
			s.answered(f)
			return
		default:
			x.answered += n
		}
	}
}

// answered goes on with a flow whose upstream has answered as it should.
func (s *streams) answered(f *streamFlow) {
	f.early.answer = nil
	if hook := f.cfg.Hooks.Answered; hook != nil && !f.tls.has(sideUpstream) {
		hook(&f.Flow, nil, s.loop.Now-f.since, nil)
	}
	f.connect = s.loop.Now - f.start
	s.connected(f, true)
}

// answerFailed goes on to the next upstream.
func (s *streams) answerFailed(f *streamFlow, err error) {
	x := f.early
	x.question, x.answer = nil, nil
	if hook := f.cfg.Hooks.Answered; hook != nil {
		hook(&f.Flow, nil, s.loop.Now-f.since, err)
	}
	s.startFailed(f, err)
}

// startFailed goes on to the next upstream after one that was connected, and did not agree to what was to follow.
func (s *streams) startFailed(f *streamFlow, err error) {
	if t := f.tls; t != nil {
		t.refused = t.has(sideUpstream) && err != os.ErrDeadlineExceeded
		s.forget(t, sideUpstream)
	}
	f.connect = 0
	s.closeAttempt(f, err)
	f.state = streamConnecting
	if s.nextAttempt(f) {
		s.connect(f)
	}
}
