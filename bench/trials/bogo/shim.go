//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// unimplemented is the exit code that tells the runner to leave a test out.
const unimplemented = 89

// A shim is what the runner starts for each test: it speaks TLS over connections that it makes to the runner, and answers each byte
// with its complement.
type shim struct {
	as            string
	noted         string // a file that gets a byte for each connection that ended as the kernel's
	port          string
	id            uint64
	ipv6, server  bool
	resumes       int
	writesFirst   bool
	shutsDown     bool
	config        *tls.Config
	versions      [2]int
	expectVersion int
	expectALPN    string
}

// parseShim reads the flags of one test. An error means that it asks for what this shim has not.
func parseShim(args []string) (*shim, error) {
	s := &shim{config: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(0)}}
	fs := flag.NewFlagSet("shim", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var off [4]bool
	var cert, key, roots, advertise, choose, name string
	var anyClient, verify bool
	fs.StringVar(&s.as, "as", "", "")
	fs.StringVar(&s.noted, "noted", "", "")
	fs.StringVar(&s.port, "port", "", "")
	fs.Uint64Var(&s.id, "shim-id", 0, "")
	fs.BoolVar(&s.ipv6, "ipv6", false, "")
	fs.BoolVar(&s.server, "server", false, "")
	fs.IntVar(&s.resumes, "resume-count", 0, "")
	fs.BoolVar(&s.writesFirst, "shim-writes-first", false, "")
	fs.BoolVar(&s.shutsDown, "shim-shuts-down", false, "")
	fs.Bool("check-close-notify", false, "") // an engine always does
	fs.StringVar(&cert, "cert-file", "", "")
	fs.StringVar(&key, "key-file", "", "")
	fs.StringVar(&roots, "trust-cert", "", "")
	fs.IntVar(&s.versions[0], "min-version", tls.VersionTLS10, "")
	fs.IntVar(&s.versions[1], "max-version", tls.VersionTLS13, "")
	for i, version := range []string{"no-tls1", "no-tls11", "no-tls12", "no-tls13"} {
		fs.BoolVar(&off[i], version, false, "")
	}
	fs.BoolVar(&anyClient, "require-any-client-certificate", false, "")
	fs.BoolVar(&verify, "verify-peer", false, "")
	fs.StringVar(&name, "host-name", "test", "")
	fs.StringVar(&advertise, "advertise-alpn", "", "")
	fs.StringVar(&choose, "select-alpn", "", "")
	fs.StringVar(&s.expectALPN, "expect-alpn", "", "")
	fs.IntVar(&s.expectVersion, "expect-version", 0, "")
	fs.Func("curves", "", func(v string) error {
		id, err := strconv.ParseUint(v, 10, 16)
		s.config.CurvePreferences = append(s.config.CurvePreferences, tls.CurveID(id))
		return err
	})
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	low, high := tls.VersionTLS10, tls.VersionTLS13
	for low <= high && off[low-tls.VersionTLS10] {
		low++
	}
	for high >= low && off[high-tls.VersionTLS10] {
		high--
	}
	c := s.config
	c.MinVersion, c.MaxVersion, c.ServerName = uint16(max(low, s.versions[0])), uint16(min(high, s.versions[1])), name
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		c.CipherSuites = append(c.CipherSuites, suite.ID)
	}
	for len(advertise) > 0 {
		n := 1 + int(advertise[0])
		if n > len(advertise) {
			return nil, errors.New("-advertise-alpn ends early")
		}
		c.NextProtos, advertise = append(c.NextProtos, advertise[1:n]), advertise[n:]
	}
	if choose != "" {
		c.NextProtos = []string{choose}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	if roots != "" {
		text, err := os.ReadFile(roots)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(text)
	}
	switch {
	case anyClient:
		c.ClientAuth = tls.RequireAnyClientCert
	case verify:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return s, nil
}

// run has the connections of one test, one after the other.
func (s *shim) run() error {
	stack, ok := stacks[s.as]
	if !ok {
		return fmt.Errorf("%q is none of %s", s.as, strings.Join(names, ", "))
	}
	relayed, stop, err := stack(s)
	if err != nil {
		return err
	}
	defer stop()
	for range s.resumes + 1 {
		host := "127.0.0.1"
		if s.ipv6 {
			host = "::1"
		}
		runner, err := net.Dial("tcp", net.JoinHostPort(host, s.port))
		if err != nil {
			return err
		}
		if _, err := runner.Write(binary.LittleEndian.AppendUint64(nil, s.id)); err != nil {
			return err
		}
		state, err := relayed(runner.(*net.TCPConn))
		if err != nil {
			return err
		}
		if s.expectVersion != 0 && int(state.Version) != s.expectVersion {
			return fmt.Errorf("the version is %#x, not %#x", state.Version, s.expectVersion)
		}
		if s.expectALPN != "" && state.NegotiatedProtocol != s.expectALPN {
			return fmt.Errorf("the protocol is %q, not %q", state.NegotiatedProtocol, s.expectALPN)
		}
	}
	return nil
}

// A halfCloser is a *net.TCPConn or a *tls.Conn.
type halfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// echo answers each byte with its complement, until the stream ends; or it ends its own direction first.
func (s *shim) echo(c halfCloser, first bool) error {
	if s.shutsDown {
		if err := c.CloseWrite(); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, c)
		return err
	}
	if first && s.writesFirst {
		if _, err := io.WriteString(c, "hello"); err != nil {
			return err
		}
	}
	b := make([]byte, 512)
	for {
		n, err := c.Read(b)
		for i := range b[:n] {
			b[i] ^= 0xff
		}
		if _, e := c.Write(b[:n]); err == nil {
			err = e
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// patience bounds a test; the runner gives up after 15 s.
const patience = 20 * time.Second

func (s *shim) noteKernel() {
	f, err := os.OpenFile(s.noted, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		f.WriteString(".")
		f.Close()
	}
}
