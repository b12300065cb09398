package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/certs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/starttls"
)

// verdictTime bounds how long a check waits for what a member says to the relay's certificate.
const verdictTime = time.Second

// A tlsConn is a connection of a check over TLS. Its errors are for operators.
type tlsConn struct{ *tls.Conn }

func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if isAlert(err) {
		err = certs.Explain(err)
	}
	return n, err
}

// Write returns why the member has ended the connection, if it has said so.
func (c *tlsConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		if _, said := c.Read(make([]byte, 1)); isAlert(said) {
			err = said
		}
	}
	return n, err
}

// isAlert reports whether an error is an alert that the member has sent.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error" // as crypto/tls calls it
}

// tlsConfig returns the settings of a check's handshake with a member. asked becomes true when the member asks for a certificate. Sessions are
// not resumed, so that each check sees the member's certificate.
func (p *prober) tlsConfig(t *spec.ClientTLS, m *probed, asked *bool) (*tls.Config, error) {
	base, err := p.clients.Of(t).Config("", "", m.host, &m.addr)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	c := base.Clone()
	c.ClientSessionCache = nil
	own := c.GetClientCertificate
	c.GetClientCertificate = func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if *asked = true; own == nil {
			return new(tls.Certificate), nil
		}
		return own(i)
	}
	return c, nil
}

// handshake begins TLS with a member.
func (p *prober) handshake(conn net.Conn, t *spec.ClientTLS, m *probed, found *finding) (*tlsConn, error) {
	asked := false
	c, err := p.tlsConfig(t, m, &asked)
	if err != nil {
		return nil, err
	}
	kind := m.group.Check.Kind
	if kind == "http" { // it speaks no other version
		c.NextProtos = slices.DeleteFunc(slices.Clone(c.NextProtos), func(p string) bool { return p != "http/1.1" })
	}
	if p := starttls.ByName(t.StartTLS); p != nil {
		if err := starttls.Ask(p, conn); err != nil {
			return nil, err
		}
	}
	s := &tlsConn{tls.Client(conn, c)}
	err = s.Handshake()
	state := s.ConnectionState()
	if found.expires = certs.Expires(&state, err); err != nil {
		return nil, certs.Explain(err)
	}
	if kind == "tcp" && asked && state.Version >= tls.VersionTLS13 {
		return s, s.verdict()
	}
	return s, nil
}

// verdict returns an error if the member refuses the relay's certificate. In TLS 1.3 it says so only after the handshake (RFC 8446,
// 4.4.2.4), and a check that connects reads nothing. A member that has taken the certificate ends the connection, or says something, or
// waits for more.
func (c *tlsConn) verdict() error {
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(verdictTime))
	if _, err := c.Read(make([]byte, 1)); isAlert(err) {
		return err
	}
	return nil
}
