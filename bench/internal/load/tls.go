//go:build linux

package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock/penstock/bench/internal/certs"
)

// The kinds of loads over TLS besides Connect, PingPong and Idle.
const (
	Up   Kind = "up"   // streams from clients to the sink
	Down Kind = "down" // streams from the sink to clients
)

// TLSSpec is a load whose clients talk TLS. Where its sink does, too, the relay passes TLS through, or
// begins it anew.
type TLSSpec struct {
	Kind  Kind
	Size  int // of a message, or of a write; of an idle load: bytes that each connection sends and gets back before it is idle, may be 0
	Conns int

	Plain   bool        // clients talk plain TCP instead
	Version uint16      // the only version that clients offer; 0: what Go offers
	Group   tls.CurveID // the key exchange; 0: what Go offers
	Resume  bool        // each handshake but the first ones resumes
	Name    string      // of the server
	CA      string      // PEM: signed the relay's certificate, and the sink's
}

// suites returns what clients offer with a version: all relays encrypt with AES-128-GCM.
func suites(version uint16) []uint16 {
	if version == tls.VersionTLS12 {
		return []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
	}
	return nil // those of TLS 1.3 are not configurable
}

// config returns the clients' configuration. It trusts anybody: first, which all loads do once, verifies.
func (s TLSSpec) config() *tls.Config {
	c := &tls.Config{ServerName: s.Name, MinVersion: s.Version, MaxVersion: s.Version, CipherSuites: suites(s.Version),
		InsecureSkipVerify: true, DynamicRecordSizingDisabled: true}
	if s.Group != 0 {
		c.CurvePreferences = []tls.CurveID{s.Group}
	}
	if s.Group != 0 && s.Version == tls.VersionTLS12 {
		c.CurvePreferences = append(c.CurvePreferences, tls.CurveP256) // before TLS 1.3 a server with an ECDSA certificate wants its curve in the list, too
	}
	return c
}

// first makes one connection, verifies the certificate, and returns what was negotiated.
func (s TLSSpec) first(addr string) (string, error) {
	if s.Plain {
		return "plain TCP", nil
	}
	roots, err := certs.Roots(s.CA)
	if err != nil {
		return "", err
	}
	config := s.config()
	config.InsecureSkipVerify, config.RootCAs = false, roots
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: stall}, "tcp", addr, config)
	if err != nil {
		return "", err
	}
	defer c.Close()
	state := c.ConnectionState()
	if s.Group != 0 && state.CurveID != s.Group {
		return "", fmt.Errorf("the relay chose %s: want %s, as the others", state.CurveID, s.Group)
	}
	if s.Version == tls.VersionTLS13 && state.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		return "", fmt.Errorf("the relay chose %s: want TLS_AES_128_GCM_SHA256, as the others", tls.CipherSuiteName(state.CipherSuite))
	}
	return fmt.Sprintf("%s, %s, %s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite), state.CurveID,
		state.PeerCertificates[0].PublicKeyAlgorithm), nil
}

// RunTLS drives the load to its end.
func RunTLS(spec TLSSpec, cfg Config) (r Result, err error) {
	negotiated, err := spec.first(cfg.Addr)
	if err != nil {
		return r, fmt.Errorf("the first connection: %w", err)
	}
	switch spec.Kind {
	case Connect:
		r, err = runHandshakes(spec, cfg)
	case Up, Down:
		r, err = runStreams(spec, cfg)
	case PingPong:
		r, err = runTLSPingPong(spec, cfg)
	case Idle:
		r, err = runTLSIdle(spec, cfg)
	default:
		err = fmt.Errorf("unknown kind of TLS load %q", spec.Kind)
	}
	r.Negotiated, r.Conns = negotiated, spec.Conns
	return r, err
}

// dial returns a connection over a blocking socket, whose handshake is done.
func (s TLSSpec) dial(to *unix.SockaddrInet4) (c net.Conn, fd int, err error) {
	fd, err = dial(to)
	if err != nil {
		return nil, fd, err
	}
	raw := &socket{fd: fd}
	if s.Kind == Down {
		raw.buf = make([]byte, 256<<10) // crypto/tls alone asks for every record
	}
	if s.Plain {
		return raw, fd, nil
	}
	secured := tls.Client(raw, s.config())
	if err := secured.Handshake(); err != nil {
		raw.Close()
		return nil, -1, fmt.Errorf("handshake: %w", err)
	}
	return secured, fd, nil
}

// A socket is a blocking socket as crypto/tls wants it. Its timeouts are those of dial. It reads ahead as far as its buffer goes, if it has one.
type socket struct {
	fd   int
	buf  []byte
	have []byte // the part of buf that was read, and not yet asked for
}

func (s *socket) Read(p []byte) (int, error) {
	if len(s.have) == 0 && len(p) < len(s.buf) {
		n, err := s.read(s.buf)
		if err != nil {
			return 0, err
		}
		s.have = s.buf[:n]
	}
	if len(s.have) > 0 {
		n := copy(p, s.have)
		s.have = s.have[n:]
		return n, nil
	}
	return s.read(p)
}

func (s *socket) read(p []byte) (n int, err error) {
	err = retry(func() error {
		n, err = unix.Read(s.fd, p)
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, fmt.Errorf("nothing came through the relay for %v", stall)
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (s *socket) Write(p []byte) (int, error) {
	if err := sendAll(s.fd, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *socket) Close() error                     { return unix.Close(s.fd) }
func (s *socket) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *socket) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *socket) SetDeadline(time.Time) error      { return nil }
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
