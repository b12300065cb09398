package tlsconn

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"

	"github.com/penstock/penstock/internal/sys"
)

// errNoRecord is what a peer has sent that is no record of TLS.
var errNoRecord = errors.New("tls: the peer has sent what is no record")

// kernelConn is a connection whose records are the kernel's.
type kernelConn struct {
	about  tls.ConnectionState // without certificates
	header [4]byte             // of a message of the handshake: its type and length (RFC 8446, 4)
	begun  int                 // how much of the header has come
	skip   int                 // bytes of a message of the handshake that are still to come
	rest   bool                // an earlier process may have read the beginning of a message, and nothing was read since
}

// InKernel returns the end of a connection that an earlier process has given to the kernel. about says what was negotiated.
func InKernel(about tls.ConnectionState) *Conn {
	return &Conn{kernel: &kernelConn{about: about, rest: true}}
}

// InKernel reports whether the records of the connection are the kernel's.
func (c *Conn) InKernel() bool { return c.kernel != nil }

// Givable reports whether the connection can be given to the kernel: ever, and now.
func (c *Conn) Givable() (ever, now bool) {
	g := c.give
	if g == nil || c.handshaking {
		return g != nil, false
	}
	ever = !g.doubt && !c.ended && !c.closed && !c.closing && c.errno == 0 && c.failed == 0 && c.unsent == 0 && c.Err == nil &&
		g.secret[0] != nil && g.secret[1] != nil
	now = ever && c.Whole() && len(c.out) == 0 && c.offered == 0
	if !ever {
		c.Keep()
	}
	return ever, now
}

// Whole reports whether all that was received was read.
func (c *Conn) Whole() bool {
	return len(c.in) == 0 && c.record.head == 0 && (c.give == nil || !c.give.left && !c.give.open)
}

// Careful has Recv stop behind each record, and receive nothing of the next one, so that there are moments at which the connection can be given
// to the kernel; or not any more.
func (c *Conn) Careful(on bool) {
	if c.give != nil {
		c.give.careful = on
	}
}

// IsCareful reports whether it does.
func (c *Conn) IsCareful() bool { return c.give != nil && c.give.careful }

// Keep forgets what the connection would be given to the kernel with: it never is.
func (c *Conn) Keep() {
	if c.give != nil {
		c.give.wipe()
		c.give = nil
	}
}

// Give gives the connection to the kernel, if Givable says that it can be now. It reports false if it was not given; then
// it goes on as it was, or has failed: Recv and Send tell.
func (c *Conn) Give(k sys.Kernel, fd int) bool {
	g, state := c.give, c.tls.ConnectionState()
	defer c.Keep()
	for i, half := range halves {
		if now := trafficSecret(c.tls, half); now != nil && !bytes.Equal(now, g.secret[i]) {
			return false // a KeyUpdate came behind a ticket, in one record
		}
	}
	out, ok := keys(state.CipherSuite, g.secret[0], g.sent)
	in, ok2 := keys(state.CipherSuite, g.secret[1], g.read)
	defer out.Wipe()
	defer in.Wipe()
	if state.Version != tls.VersionTLS13 || !ok || !ok2 {
		return false
	}
	begun, e := k.GiveTLS(fd, &out, &in)
	if e != 0 && !begun {
		return false
	}
	if e != 0 { // nobody's fault, and nothing more can be read or sent
		c.failed, c.unsent = e, e
		return false
	}
	c.kernel = &kernelConn{about: tls.ConnectionState{
		Version: state.Version, HandshakeComplete: true, DidResume: state.DidResume, CipherSuite: state.CipherSuite,
		NegotiatedProtocol: state.NegotiatedProtocol, ServerName: state.ServerName,
	}}
	wipe(c.tls)
	c.tls, c.most = nil, 0
	return true
}

// recvKernel is Recv of a connection that is the kernel's. If m is not nil, the result is also in m.
func (c *Conn) recvKernel(env *Env, fd int, m *sys.Message, p []byte) (n int, e sys.Errno) {
	c.more = false
	for {
		if m == nil {
			n, e = env.Kernel.Recv(fd, p)
		} else {
			n, e = env.Kernel.RecvOne(fd, m, p)
		}
		switch {
		case e == sys.EINTR:
		case e == sys.EIO:
			if over, e := c.Control(env, fd); over || e != 0 {
				return 0, e
			}
		case e == 0 && n == 0:
			c.failed, c.Err = Truncated, errShort
			return 0, c.failed
		case e == 0:
			c.kernel.rest, c.kernel.begun, c.kernel.skip = false, 0, 0 // no message goes on behind data: RFC 8446, 5.1
			return n, 0
		case e == sys.EAGAIN:
			return 0, e
		default:
			return 0, c.Broken(env, fd, e)
		}
	}
}

// Alerts, RFC 8446, B.2.
const (
	alertCloseNotify       = 0
	alertUnexpectedMessage = 10
	alertBadRecordMAC      = 20
	alertUserCanceled      = 90
)

// Broken notes that the kernel cannot read the connection any more, and returns what Recv returns from now on.
func (c *Conn) Broken(env *Env, fd int, e sys.Errno) sys.Errno {
	switch e {
	case sys.EBADMSG:
		return c.invalid(env, fd, alertBadRecordMAC, tls.AlertError(alertBadRecordMAC))
	case sys.EINVAL, sys.EMSGSIZE: // tls_rx_msg_size
		return c.invalid(env, fd, alertUnexpectedMessage, errNoRecord)
	}
	c.failed = e
	return e
}

// invalid notes what the peer has done wrong, and tells it, if there is room.
func (c *Conn) invalid(env *Env, fd int, alert uint8, err error) sys.Errno {
	c.failed, c.Err = Invalid, err
	env.Kernel.SendRecord(fd, sys.RecordAlert, []byte{2, alert})
	return c.failed
}

// Control reads a record that is no data, which the connection has next. over says that nothing more comes. EAGAIN says that there is no
// such record, or that there were many.
func (c *Conn) Control(env *Env, fd int) (over bool, e sys.Errno) {
	if c.work += idleWork; c.work >= workMost {
		c.more = true
		return false, sys.EAGAIN
	}
	env.scratch()
	// What ends the connection stays there: another process may have to find it.
	n, kind, e := env.Kernel.RecvRecord(fd, env.in, true)
	switch {
	case e == sys.EINTR:
		return false, 0
	case e == sys.EAGAIN:
		return false, e
	case e != 0:
		return false, c.Broken(env, fd, e)
	}
	b := env.in[:n]
	switch {
	case kind == sys.RecordAlert && n == 2 && b[1] == alertCloseNotify:
		c.closed = true
		return true, 0
	case kind == sys.RecordAlert && n == 2 && b[1] == alertUserCanceled: // which means nothing
	case kind == sys.RecordAlert && n == 2:
		c.failed, c.Err = Invalid, tls.AlertError(b[1])
		return false, c.failed
	case kind == sys.RecordHandshake:
		if err := c.messages(b); err != nil {
			return false, c.invalid(env, fd, alertUnexpectedMessage, err)
		}
	case kind == sys.RecordData:
		return false, sys.EAGAIN
	default:
		return false, c.invalid(env, fd, alertUnexpectedMessage, tls.AlertError(alertUnexpectedMessage))
	}
	_, _, e = env.Kernel.RecvRecord(fd, env.in, false)
	return false, e
}

// messages skips tickets, which nobody can use any more: they are good for the secrets that were forgotten. A record may have several of them,
// or a part of one, also of its header.
func (c *Conn) messages(b []byte) error {
	const newTicket, keyUpdate = 4, 24 // RFC 8446, 4
	k := c.kernel
	rest := k.rest
	for k.rest = false; ; rest = false {
		n := min(k.skip, len(b))
		k.skip -= n
		b = b[n:]
		if len(b) == 0 {
			return nil
		}
		whole := len(k.header)+1 == len(b) && k.begun == 0
		n = copy(k.header[k.begun:], b)
		k.begun += n
		b = b[n:]
		switch {
		case k.header[0] == keyUpdate && (!rest || whole):
			return ErrKeyUpdate
		case rest && (k.header[0] != newTicket || k.begun < len(k.header)): // of a ticket whose beginning went with that process
			k.begun = 0
			return nil
		case k.header[0] != newTicket:
			return tls.AlertError(alertUnexpectedMessage)
		case k.begun < len(k.header):
			return nil
		}
		k.skip, k.begun = int(k.header[1])<<16+int(k.header[2])<<8+int(k.header[3]), 0
	}
}

// sendKernel is Send of a connection that is the kernel's.
func (c *Conn) sendKernel(env *Env, fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	for {
		var n int
		var e sys.Errno
		if m == nil {
			n, e = env.Kernel.Send(fd, p)
		} else {
			n, e = env.Kernel.SendOne(fd, m, p)
		}
		if e != sys.EINTR {
			return n, c.Told(e)
		}
	}
}

// Told returns what an error that the socket of a connection which is the kernel's has told says, other than by Recv: Invalid if its peer has sent what is no
// record (tls_rx_msg_size). What came before can be read.
func (c *Conn) Told(e sys.Errno) sys.Errno {
	switch e {
	case sys.EBADMSG, sys.EINVAL, sys.EMSGSIZE:
		c.Err = cmp.Or(c.Err, errNoRecord)
		return Invalid
	}
	return e
}

// RecvOne is Recv of a connection that is the kernel's, by [sys.Kernel].RecvOne.
func (c *Conn) RecvOne(env *Env, fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	switch {
	case c.failed != 0:
		m.Clear()
		return 0, c.failed
	case c.closed:
		m.Clear()
		return 0, 0
	}
	return c.recvKernel(env, fd, m, p)
}

// SendOne is Send of such a connection, by [sys.Kernel].SendOne.
func (c *Conn) SendOne(env *Env, fd int, m *sys.Message, p []byte) (int, sys.Errno) {
	return c.sendKernel(env, fd, m, p)
}

// finishKernel sends close_notify. While the socket has little room, the kernel may keep some of a record to itself that it has accepted, and an end
// of the socket would destroy it: poll(2) says when there is room for all of it.
func (c *Conn) finishKernel(env *Env, fd int) sys.Errno {
	if c.closing {
		return 0
	}
	if env.Kernel.Poll(fd, sys.PollOut)&sys.PollOut == 0 {
		return sys.EAGAIN
	}
	for {
		e := env.Kernel.SendRecord(fd, sys.RecordAlert, []byte{1, alertCloseNotify})
		c.closing = e == 0
		if e != sys.EINTR {
			return c.Told(e)
		}
	}
}

// Drop reads what the kernel has received, so that the socket's end does not reset its connection.
func (c *Conn) Drop(env *Env, fd int) {
	env.scratch()
	for range workMost {
		if n, _, e := env.Kernel.RecvRecord(fd, env.in, false); e != 0 && e != sys.EINTR || e == 0 && n == 0 {
			return
		}
	}
}
