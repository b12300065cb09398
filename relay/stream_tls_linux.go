package relay

import (
	"time"

	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/tlsconn"
)

// A side whose TLS begins or ends here is a tlsconn.Conn around its socket. The halves do not know: for
// them it is a kernel whose sockets receive and send what is in the records.
//
//	client's socket ─▶ records ─▶ Half up ─▶ records or not ─▶ upstream's socket
//
// A handshake runs on a goroutine of its own, because it computes for up to a millisecond, and only ever
// touches memory. Whenever it needs more bytes it waits, and the loop moves what lies in that memory from and
// to the socket.

const (
	defaultHandshakes = 4096 // per loop
	mostHandshakes    = 1 << 16
)

// loopTLS is what the flows of a loop share that have TLS.
type loopTLS struct {
	under   int           // handshakes under way, with those that nobody waits for any more
	most    int           // of them
	leaving int           // of those under way, such as nobody waits for
	queued  int           // flows that wait for one of the others to be over
	later   queue[ref]    // they, and some that do not wait any more
	begun   queue[lagRef] // the others, in the order in which they began; some are over
	records tlsconn.Env
	env     pump.Env // see envOf
	scratch []byte
}

func (t *loopTLS) init(all *shared) {
	t.most = all.cfg.MaxHandshakes
	if t.most == 0 {
		t.most = defaultHandshakes
	}
	t.records = tlsconn.Env{Kernel: all.kernel, Buffers: &all.buffers}
}

// flowTLS is a flow's TLS, and the kernel that its halves have.
type flowTLS struct {
	sys.Kernel
	flow        *streamFlow
	records     *tlsconn.Env
	conn        [2]*tlsconn.Conn // nil: the side's bytes are passed on as they are
	took        [2]time.Duration // of the handshake
	side        int              // while the flow is securing: whose handshake it is
	waits       bool             // it has not begun
	begun       bool             // it has begun, and is not over
	since       time.Duration    // when it began
	ours        bool             // it waits for more bytes
	refused     bool             // the last attempt failed in its handshake
	undelivered int              // see streams.undelivered
	answered    bool             // the upstream has sent something after the client's last byte
	late        bool             // a side has sent something after it was told that nothing more comes
	closed      bool             // the client's connection ended without close_notify, with nothing on its way
	spoke       bool             // of a leg: the client had sent something before
	settles     bool             // the flow is among those that are to be settled
	tries       int              // turns that are still short, so that the connections can be given to the kernel
	tried       int64            // how many bytes had been read when they began to be
}

// has reports whether the TLS of a side begins or ends here. t may be nil.
func (t *flowTLS) has(side int) bool { return t != nil && t.conn[side] != nil }

// tlsOf returns the flow's TLS, which it makes if there is none.
func (s *streams) tlsOf(f *streamFlow) *flowTLS {
	if f.tls == nil {
		f.straight = false
		f.tls = &flowTLS{Kernel: s.shared.kernel, flow: f, records: &s.tlsLoop.records}
	}
	return f.tls
}

// under reports whether the handshake of a side is under way, so that its goroutine may have the connection.
func (t *flowTLS) under(side int) bool {
	return t.flow.state == streamSecuring && side == t.side && t.begun
}

// failed reports whether a side has sent what is not TLS, or its connection has ended too early. It is not reset,
// because that would destroy the alert, and whatever else is on its way there. t may be nil.
func (t *flowTLS) failed(side int) bool {
	return t.has(side) && !t.under(side) && t.conn[side].Failed()
}

// failure is the cause of a handshake that fails.
func (t *flowTLS) failure() Cause {
	if t.side == sideClient {
		return CauseClientTLS
	}
	return CauseUpstreamTLS
}
