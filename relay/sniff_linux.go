package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

var (
	errNoSniffing  = fmt.Errorf("relay: Sniff of a datagram flow: %w", errors.ErrUnsupported)
	errNoPreface   = fmt.Errorf("relay: Preface of a datagram flow: %w", errors.ErrUnsupported)
	errNoSniffHook = errors.New("relay: Sniff without Hooks.Sniff")
)

// StartSniff, called in Hooks.Admit of a stream, has the engine read what the client
// says first, before there is an upstream, and show it to Hooks.Sniff: all that
// is there and not yet taken, each time that more has come. So b grows from call
// to call; it is valid during the call and must not be written to.
//
// The hook returns how many bytes of b's head it takes away, for instance a
// PROXY header; nobody else will see those. If it took some and answers
// SniffMore, it is asked again at once when more bytes are there. With SniffDone
// the flow goes on to Hooks.Upstream. What was not taken goes to the upstream
// before all else.
//
// last says that b will not become longer: it has max bytes, timeout has passed
// (0 means [DefaultSniffTimeout]), or the client has ended its side. SniffMore is
// then as good as SniffRefuse, unless bytes were taken. A client that has ended
// its side can still have an upstream and an answer.
//
// At most max bytes are held, in a buffer that grows with what comes: a client
// that is silent has none.
//
// StartSniff returns [ErrStage] in another hook than Admit, [errors.ErrUnsupported]
// for a datagram flow, and an error where the listener has no Hooks.Sniff or max
// is not positive.
func (f *Flow) StartSniff(max int, timeout time.Duration) error {
	switch {
	case f.session != nil:
		return errNoSniffing
	case f.state != flowAdmitting:
		return ErrStage
	case f.cfg.Hooks.Sniff == nil:
		return errNoSniffHook
	case max <= 0:
		return fmt.Errorf("relay: Sniff of at most %d bytes", max)
	}
	if timeout <= 0 {
		timeout = DefaultSniffTimeout
	}
	x := f.more()
	x.most, x.patience = max, timeout
	return nil
}

// ClientEnded, called in Hooks.Sniff, reports whether the client has ended its side.
// It tells that reason for last from the others: see [Flow.StartSniff].
func (f *Flow) ClientEnded() bool { return f.session == nil && f.extra != nil && f.extra.ended }

// sniffBurst is how often one flow is sniffed before others have their turn.
const sniffBurst = 16

// sniff reads what the client says and shows it to the hook, until that has
// seen enough or the client says no more for now. A hook that takes what it sees
// and asks for more does not hold the loop for a client that says much.
func (l *loop) sniff(f *Flow) {
	x := f.extra
	for range sniffBurst {
		want := min(x.most-len(x.held), len(l.env.Scratch))
		n, e := l.env.Kernel.Recv(int(f.fd[sideA]), l.env.Scratch[:want])
		switch {
		case e == sys.EINTR:
			continue
		case e == sys.EAGAIN:
			f.pending = false
			return
		case e != 0:
			l.end(f, CauseClientGone, e)
			return
		}
		l.resize(x, len(x.held)+n)
		x.held = append(x.held, l.env.Scratch[:n]...)
		// What is left in the socket gives no event: the edge has passed.
		f.pending = n == want || n == 0 || f.odd[sideA] || !f.tcp[sideA]
		x.ended = n == 0
		l.show(f, n == 0)
		if f.state != flowSniffing || !f.pending {
			return
		}
	}
	l.again(f)
}

// show lets the hook decide about what is held; over says that no more will come.
func (l *loop) show(f *Flow, over bool) {
	x := f.extra
	for {
		last := over || len(x.held) >= x.most
		take, next := f.cfg.Hooks.Sniff(f, x.held, last)
		take = min(max(take, 0), len(x.held))
		if take > 0 {
			x.held = x.held[:copy(x.held, x.held[take:])]
		}
		switch {
		case next == SniffDone:
			f.state = flowConnecting
			l.connect(f)
			return
		case next != SniffMore, last && take == 0:
			l.end(f, CauseRefused, nil)
			return
		case take == 0, len(x.held) == 0 && !over:
			return
		}
	}
}

// Preface, called in Hooks.Connected of a stream whose upstream is connected,
// sends b there before all that comes from the client, for instance a PROXY
// header. b is copied. Further calls add to it. The record does not count these
// bytes. A built-in upstream has no preface.
//
// Preface returns [ErrStage] in another hook and after an attempt that failed,
// and [errors.ErrUnsupported] for a datagram flow.
func (f *Flow) Preface(b []byte) error {
	switch {
	case f.session != nil:
		return errNoPreface
	case !f.connected():
		return ErrStage
	case len(b) == 0:
		return nil
	}
	x := f.more()
	n := len(x.held)
	f.loop.resize(x, n+len(b))
	x.held = x.held[:n+len(b)]
	copy(x.held[x.own+len(b):], x.held[x.own:n])
	copy(x.held[x.own:], b)
	x.own += len(b)
	return nil
}

// connected reports whether the flow is in Hooks.Connected, with an upstream.
func (f *Flow) connected() bool { return f.state == flowConnecting && f.connect > 0 }
