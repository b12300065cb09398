package hooks

import (
	"errors"

	"github.com/penstock/penstock/cmd/penstock/internal/ja4"
	"github.com/penstock/penstock/cmd/penstock/internal/quicid"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/quichello"
	"github.com/penstock/penstock/relay"
)

// quic is the part of the hook sniff that reads datagrams: the ClientHello of QUIC, which may take several. A client
// that speaks something else, or a version that is not known here, has no name.
func (h *Hooks) quic(f *relay.Flow, p *State, b []byte, last bool) (take int, next relay.SniffNext) {
	if n := p.named(); n != nil {
		return 0, h.awaitName(f, p, n, last)
	}
	if p.target.Load() != nil {
		if h.learn(f, p, b) {
			return 0, relay.SniffMore
		}
		return 0, relay.SniffDone
	}
	begun := p.hello.Load()
	first := begun == nil
	if first && b != nil && p.plan.divides && h.recognise(f, p, b) {
		p.watch(f)
		return 0, relay.SniffDone
	}
	known := &clientTLS{conn: p.clientTLS().conn}
	if first && !p.plan.routes.Needs(clientAddr(f)) { // only its connection ID is of interest
		next = h.routed(f, p)
		p.watch(f)
		return 0, next
	}
	err := quichello.ErrIncomplete
	if b != nil { // the time is not over
		if first {
			begun = &clientTLS{quic: new(quichello.Assembler), conn: known.conn}
			p.hello.Store(begun)
		}
		hello, e := begun.quic.Add(b)
		if err = e; err == nil {
			known.Hello = hello
			if known.conn == nil { // of its connection IDs none is of interest, but for who looks at the flow
				known.conn = newQUICConn(f, begun.quic.Version())
				known.conn.first, _ = quicid.NewID(begun.quic.ID())
			}
			if p.plan.Spec.Sniff.JA4 {
				known.ja4 = ja4.QUIC(begun.quic.Message())
			}
		}
	}
	incomplete := errors.Is(err, quichello.ErrIncomplete)
	switch {
	case incomplete && !last:
		return 0, relay.SniffMore
	case err != nil && !incomplete && !errors.Is(err, quichello.ErrNotInitial) && !errors.Is(err, quichello.ErrVersion):
		// No server would take it. Where nothing came before, the flow ends, and with it what it takes. Otherwise the connection goes on,
		// as anybody can send in the name of its client. A second connection from the same port waits for the first one: its client
		// sends again.
		if first {
			p.hello.Store(nil)
			p.reason = spec.ReasonQUICInvalid
			return 0, relay.SniffRefuse
		}
		return max(1, len(b)), relay.SniffMore
	}
	if err == nil || known.conn != nil {
		p.hello.Store(known)
	} else {
		p.hello.Store(nil)
	}
	next = h.routed(f, p)
	p.watch(f)
	if n := p.named(); n != nil && next == relay.SniffDone {
		next = h.awaitName(f, p, n, last)
	}
	if incomplete && p.reason == spec.ReasonNoRoute {
		p.reason = spec.ReasonSniffTimeout
		if b != nil {
			p.reason = spec.ReasonSniffMax
		}
	}
	return 0, next
}
