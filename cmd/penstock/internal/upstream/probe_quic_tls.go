package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/quic-go/quic-go"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
)

const (
	// maxQUICAnswers bounds the datagrams that a check reads. A handshake has some ten, and more if they are lost.
	maxQUICAnswers = 256
	// quicWindow bounds what a member may send behind the handshake: a check reads none of it.
	quicWindow = 1 << 10
	// http3 is the protocol that is offered by default, and closedHTTP3 how it says that nothing is wrong (RFC 9114, 8.1).
	http3       = "h3"
	closedHTTP3 = quic.ApplicationErrorCode(0x100)
	// cryptoAlert is the first of the error codes that are alerts of TLS (RFC 9000, 20.1), and noProtocol the alert no_application_protocol
	// (RFC 7301, 3.2).
	cryptoAlert = quic.TransportErrorCode(0x100)
	noProtocol  = tls.AlertError(120)
)

// quicHandshake shakes hands with a member by QUIC, and ends the connection.
func (p *prober) quicHandshake(ctx context.Context, conn net.Conn, t *spec.ClientTLS, m *probed, found *finding) error {
	asked := false
	c, err := p.tlsConfig(t, m, &asked)
	if err != nil {
		return err
	}
	if c.MinVersion = tls.VersionTLS13; t.ALPN == (spec.Offer{}) {
		c.NextProtos = []string{http3}
	}
	socket := &quicSocket{Conn: conn}
	transport := &quic.Transport{Conn: socket}
	q, err := transport.Dial(ctx, socket.RemoteAddr(), c, &quic.Config{
		HandshakeIdleTimeout:           m.group.Check.Timeout,
		InitialStreamReceiveWindow:     quicWindow,
		MaxStreamReceiveWindow:         quicWindow,
		InitialConnectionReceiveWindow: quicWindow,
		MaxConnectionReceiveWindow:     quicWindow,
		MaxIncomingStreams:             -1,
		MaxIncomingUniStreams:          3, // those that a server of HTTP/3 begins with: RFC 9114, 6.2
		DisablePathMTUDiscovery:        true,
	})
	if err != nil {
		late := ctx.Err() != nil
		transport.Close() // from here on nobody reads from the socket
		found.expires = certs.Expires(nil, err)
		return socket.explain(err, late, c.NextProtos)
	}
	state := q.ConnectionState().TLS
	found.expires = certs.Expires(&state, nil)
	if asked {
		err = quicVerdict(ctx, q)
	}
	code := quic.ApplicationErrorCode(0)
	if state.NegotiatedProtocol == http3 {
		code = closedHTTP3
	}
	q.CloseWithError(code, "")
	transport.Close()
	return err
}

// quicVerdict returns an error if the member refuses the relay's certificate, which it says only after the handshake. A member that begins a
// stream has taken it; others say nothing.
func quicVerdict(ctx context.Context, q *quic.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, verdictTime)
	defer cancel()
	_, err := q.AcceptUniStream(ctx)
	if remote := (*quic.TransportError)(nil); errors.As(err, &remote) && remote.Remote {
		return explainQUIC(err, nil)
	}
	return nil
}

// A quicSocket is a connected socket as package quic takes one. The first error of reading ends the connection: there is no other peer.
type quicSocket struct {
	net.Conn

	mu          sync.Mutex // of the rest: package quic may write while the failure is explained, also after its Close
	answers     int        // datagrams that were read
	first       []byte     // the beginning of the first one
	read, write error      // the last ones; nil: none
}

// quicShown is how many bytes of an answer are shown.
const quicShown = 40

func (s *quicSocket) ReadFrom(b []byte) (n int, from net.Addr, err error) {
	if s.answers == maxQUICAnswers { // only a reader changes it
		err = fmt.Errorf("the handshake was not over after %d datagrams", maxQUICAnswers)
	} else {
		n, err = s.Conn.Read(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read = err; err != nil {
		return 0, nil, net.ErrClosed // after some others package quic would read again
	}
	if s.answers++; s.first == nil {
		s.first = append(make([]byte, 0, quicShown), b[:min(n, quicShown)]...)
	}
	return n, s.RemoteAddr(), nil
}

func (s *quicSocket) WriteTo(b []byte, _ net.Addr) (n int, err error) {
	n, err = s.Conn.Write(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write = err
	return n, err
}

// SetReadBuffer and SetWriteBuffer do nothing: a handshake fits into any buffer, and package quic writes to the log where they are missing.
func (*quicSocket) SetReadBuffer(int) error  { return nil }
func (*quicSocket) SetWriteBuffer(int) error { return nil }

// explain returns why a handshake has failed in words for operators: late if the check's time was over.
func (s *quicSocket) explain(err error, late bool, protocols []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, own := range []error{s.read, s.write} {
		switch {
		case errors.Is(own, syscall.ECONNREFUSED):
			return own
		case own == nil, isTimeout(own), errors.Is(own, net.ErrClosed), errors.Is(own, syscall.EMSGSIZE): // the end of the check, or none
		case s.answers == 0 || s.answers == maxQUICAnswers:
			return own
		}
	}
	var silent net.Error // package quic has given up
	switch late = late || errors.As(err, &silent) && silent.Timeout(); {
	case late && s.answers == 0:
		return fmt.Errorf("no answer (%w); expected: a handshake of QUIC", os.ErrDeadlineExceeded)
	case late:
		return fmt.Errorf("the handshake of QUIC was not over in time; the member has sent %d datagrams, of which the first one begins with %.*q", s.answers, quicShown, s.first)
	}
	return explainQUIC(err, protocols)
}

// explainQUIC returns the error of a connection in words for operators. protocols are those that were offered.
func explainQUIC(err error, protocols []string) error {
	var (
		transport *quic.TransportError
		versions  *quic.VersionNegotiationError
		closed    *quic.ApplicationError
		reset     *quic.StatelessResetError
	)
	switch {
	case errors.As(err, &versions):
		list := make([]uint32, len(versions.Theirs))
		for i, v := range versions.Theirs {
			list[i] = uint32(v)
		}
		if err := knownVersion(list); err != nil {
			return err
		}
	case errors.As(err, &transport) && transport.Remote && transport.ErrorCode.IsCryptoError():
		alert := tls.AlertError(transport.ErrorCode - cryptoAlert)
		if alert == noProtocol {
			return fmt.Errorf("TLS: the member speaks none of the protocols that alpn in tls offers: %s", cmp.Or(strings.Join(protocols, ", "), "none"))
		}
		return fmt.Errorf("TLS: the member refuses: %s", strings.TrimPrefix(alert.Error(), "tls: "))
	case errors.As(err, &transport) && transport.ErrorCode.IsCryptoError():
		return certs.Explain(err)
	case errors.As(err, &transport) && transport.Remote, errors.As(err, &closed) && closed.Remote:
		return fmt.Errorf("the member has ended the connection of QUIC: %.200q", err.Error())
	case errors.As(err, &reset):
		return errors.New("the member knows nothing of the connection of QUIC (stateless reset)")
	}
	return fmt.Errorf("QUIC: %w", err)
}
