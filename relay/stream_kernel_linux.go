package relay

import (
	"crypto/tls"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/pump"
	"github.com/penstock/penstock/internal/tlsconn"
	"github.com/penstock/penstock/relay/stats"
)

// A connection with TLS whose configuration is from hold.TLSInKernel is given to the kernel when its flow is to be settled, if the kernel
// has TLS. From then on the flow is like one without TLS: its bytes lie in memory that outlives the process, or in pipes, and another process that has its
// sockets can go on. Three things differ:
//
//   - The kernel's counters count records. So lengths are noted by message headers, as with Unix sockets.
//   - What is no data, such as close_notify, is read by a call of its own, and stops splices.
//   - An end of the stream without close_notify may be a cut.
//
// Before it is settled a flow is better off without: most are over by then, and those to upstreams need the tickets that come first, which
// the kernel would not understand.

// giveTries is how many turns of a flow are short so that there is one after which nothing of its connections lies in the process. While one side
// takes nothing there is none, and the other direction is not to wait for that.
const giveTries = 64

// short returns how much a turn of a half may move: one read at the most, and nothing if it has something to deliver, which may be all that the process has.
func (t *flowTLS) short(h, budget int) int {
	if t.flow.half[h].Held() > 0 && (!t.has(h) || t.conn[h].Whole()) {
		return 0
	}
	return min(budget, 1)
}

// tryGiveTLS gives the connections of a flow to the kernel if a short turn has left nothing of them in the process.
func (s *streams) tryGiveTLS(f *streamFlow) {
	t := f.tls
	t.tries--
	if s.giveTLS(f) || !t.keepable() || t.tries <= 0 {
		t.tries = 0
		t.careful(false)
	}
}

// careful has the connections read in such a way that they can be given away soon, or as usual.
func (t *flowTLS) careful(on bool) {
	for _, c := range t.conn {
		if c != nil {
			c.Careful(on)
		}
	}
}

// keepable reports whether a flow with this TLS, which may be nil, can be settled, now or later.
func (t *flowTLS) keepable() bool {
	if t == nil {
		return true
	}
	for side, c := range t.conn {
		if c != nil && !c.InKernel() {
			if ever, _ := c.Givable(); !ever || !t.flow.tcp[side] {
				return false
			}
		}
	}
	return true
}

// stay has the connections that are not the kernel's forget what they would be given to it with. t may be nil.
func (t *flowTLS) stay() {
	if t == nil {
		return
	}
	for _, c := range t.conn {
		if c != nil {
			c.Keep()
		}
	}
}

// hurry has the next turns of a flow be short, unless nothing has moved since they were.
func (t *flowTLS) hurry() {
	moved := t.flow.half[up].In + t.flow.half[down].In
	if t.tries == 0 && moved != t.tried && t.flow.early == nil { // not while it has a bandwidth: a turn may read one byte then
		t.tries, t.tried = giveTries, moved
		t.careful(true)
	}
}

// kernel reports whether the kernel has all TLS of the flow. t is not nil.
func (t *flowTLS) kernel() bool {
	for _, c := range t.conn {
		if c != nil && !c.InKernel() {
			return false
		}
	}
	return true
}

// inKernel returns the connection of a side if it is the kernel's. t may be nil.
func (t *flowTLS) inKernel(side int) *tlsconn.Conn {
	if t.has(side) && t.conn[side].InKernel() {
		return t.conn[side]
	}
	return nil
}

// giveTLS gives the connections of a flow that relays to the kernel if all can be. It reports whether the flow has no TLS of its own
// any more.
func (s *streams) giveTLS(f *streamFlow) bool {
	t := f.tls
	if t == nil || t.kernel() {
		return true
	}
	if f.cause != CauseNone {
		return false
	}
	all := true
	for side, c := range t.conn {
		if c == nil || c.InKernel() {
			continue
		}
		ever, now := c.Givable()
		if !ever || !f.tcp[side] {
			return false
		}
		all = all && now
	}
	if !all {
		return false
	}
	for side, c := range t.conn {
		if c != nil && !c.InKernel() && !c.Give(s.shared.kernel, int(f.fd[side])) {
			if c.Unsent() != 0 {
				s.again(f) // the next turn tells
			}
			return false
		}
	}
	var env pump.Env
	env.Buffers = &s.shared.buffers
	why := datapath.WhyNone
	if s.env.Pipes == nil {
		why = datapath.WhyOff
	}
	for h := range f.half {
		f.half[h].Move(&env, &s.env)
		f.half[h].Refuse(why)
	}
	s.env.Held += env.Held
	s.again(f) // the kernel may have decrypted something already
	for side := range t.conn {
		if t.has(side) {
			f.one |= oneKernelTLS << side
		}
	}
	return true
}

// again has the halves of a flow read that wait for something to read.
func (s *streams) again(f *streamFlow) {
	for h := range f.half {
		if f.wait[h] == pump.WantRead {
			f.wait[h] = pump.Again
		}
	}
	s.makeReady(f)
}

// restoreTLS has a restored flow go on with TLS that an earlier process has given to the kernel.
func (s *streams) restoreTLS(f *streamFlow, one uint8, about [2]*stats.TLS) {
	for side := range about {
		if one&(oneKernelTLS<<side) == 0 || about[side] == nil {
			continue
		}
		d, t := about[side], s.tlsOf(f)
		t.conn[side] = tlsconn.InKernel(tls.ConnectionState{
			Version: d.Version, HandshakeComplete: true, DidResume: d.Resumed, CipherSuite: d.CipherSuite, NegotiatedProtocol: d.Protocol, ServerName: d.ServerName,
		})
		t.took[side] = d.Handshake
		f.one |= oneKernelTLS << side
	}
}
