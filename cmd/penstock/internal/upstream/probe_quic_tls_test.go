package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	quicgo "github.com/quic-go/quic-go"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay"
)

// shakeHands checks a member by QUIC, with a handshake.
func shakeHands(ctx context.Context, on *spec.ClientTLS, to relay.Addr) (finding, error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	c := &spec.Check{Kind: "quic", TLS: on, Timeout: longEnough}
	return newProber(nil).probe(ctx, &probed{group: &spec.Group{Check: c}, addr: to, host: "web.example"})
}

// Servers that others have written, with what the check is told to expect of them.
func TestQUICHandshake(t *testing.T) {
	ca, file := authority(t)
	_, otherFile := authority(t)
	web := ca.Issue(t, "web.example")
	h3 := &tls.Config{Certificates: []tls.Certificate{web.TLS()}, NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13}
	asks := h3.Clone()
	asks.ClientAuth, asks.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	own, key := ca.Issue(t, "relay.example").Write(t, t.TempDir(), "own")
	for name, serve := range quicServers {
		for _, c := range []struct {
			name   string
			server *tls.Config
			on     spec.ClientTLS
			want   string
			known  bool // the end of the certificate
		}{
			{"right", h3, spec.ClientTLS{CA: file}, "", true},
			{"not verified", h3, spec.ClientTLS{NoVerify: true}, "", true},
			{"one protocol of two", h3, spec.ClientTLS{CA: file, ALPN: spec.Offer{List: "doq,h3"}}, "", true},
			{"another name", h3, spec.ClientTLS{CA: file, ServerName: "b.example"}, "TLS: the certificate is for web.example, not for b.example (server-name in tls sets another name)", true},
			{"unknown authority", h3, spec.ClientTLS{CA: otherFile}, "TLS: the certificate of web.example is signed by Test CA, which is not an authority in ca, or for which a certificate in between is missing", true},
			{"no CA file", h3, spec.ClientTLS{CA: file + ".none"}, "TLS: " + file + ".none: no such file", false},
			{"no common protocol", h3, spec.ClientTLS{CA: file, ALPN: spec.Offer{List: "doq,hq"}}, "TLS: the member speaks none of the protocols that alpn in tls offers: doq, hq", false},
			{"no protocol", h3, spec.ClientTLS{CA: file, ALPN: spec.Offer{None: true}}, "TLS: the member speaks none of the protocols that alpn in tls offers: none", false},
			{"a certificate is missing", asks, spec.ClientTLS{CA: file}, "TLS: the member refuses: certificate required", true},
			{"a certificate is there", asks, spec.ClientTLS{CA: file, Cert: own, Key: key}, "", true},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				p, to := udpSocket(t)
				serve(t, p, c.server)
				found, err := shakeHands(t.Context(), &c.on, to)
				if text(err) != c.want {
					t.Errorf("%q, want %q", text(err), c.want)
				}
				if c.known != found.expires.Equal(web.NotAfter) || !c.known && !found.expires.IsZero() {
					t.Errorf("the certificate ends %v, want %v: %v", found.expires, web.NotAfter, c.known)
				}
			})
		}
	}
}

// A server that wants to see first that the client is at its address.
func TestQUICHandshakeRetry(t *testing.T) {
	ca, file := authority(t)
	p, to := udpSocket(t)
	asked := make(chan net.Addr, 64)
	tr := &quicgo.Transport{Conn: p, VerifySourceAddress: func(a net.Addr) bool {
		select {
		case asked <- a:
		default:
		}
		return true
	}}
	if _, err := tr.Listen(&tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}, NextProtos: []string{"h3"}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tr.Close()
		p.Close()
	})
	if _, err := shakeHands(t.Context(), &spec.ClientTLS{CA: file}, to); err != nil || len(asked) == 0 {
		t.Errorf("%v after %d retries", err, len(asked))
	}
}

// ngtcp2's server, of Debian's ngtcp2-server.
func TestQUICHandshakeNgtcp2(t *testing.T) {
	const program = "/usr/sbin/gtlsserver"
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(err)
	}
	ca, file := authority(t)
	cert, key := ca.Issue(t, "web.example").Write(t, t.TempDir(), "web")
	p, to := udpSocket(t)
	p.Close()
	cmd := exec.CommandContext(t.Context(), program, "-q", to.AddrPort.Addr().String(), fmt.Sprint(to.AddrPort.Port()), key, cert)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log(printed.String())
		}
	}()
	var last error
	testwait.Until(t, "the server listens", func() bool {
		_, last = shakeHands(t.Context(), &spec.ClientTLS{CA: file}, to)
		return !errors.Is(last, syscall.ECONNREFUSED)
	})
	if last != nil {
		t.Error(last)
	}
	if _, err := shakeHands(t.Context(), &spec.ClientTLS{CA: file, ServerName: "b.example"}, to); !strings.HasPrefix(text(err), "TLS: the certificate is for web.example, not for b.example") {
		t.Error(err)
	}
}

// idsOf returns the connection IDs of a client's long header.
func idsOf(b []byte) (dest, src []byte) {
	n := int(b[5])
	m := int(b[6+n])
	return b[6 : 6+n], b[7+n : 7+n+m]
}

// Members that speak QUIC in part, or not at all.
func TestQUICHandshakeLiars(t *testing.T) {
	const v1, draft = "\x00\x00\x00\x01", "\xff\x00\x00\x1d"
	const many = 2 * maxQUICAnswers
	for _, c := range []struct {
		name   string
		times  int                   // that a datagram is answered
		answer func(b []byte) []byte // to a datagram
		want   string
	}{
		{"garbage", many, func([]byte) []byte { return []byte("what?") }, "the handshake was not over after 256 datagrams"},
		{"nothing in it", many, func([]byte) []byte { return nil }, "the handshake was not over after 256 datagrams"},
		{"the question", many, func(b []byte) []byte { return b }, "the handshake was not over after 256 datagrams"},
		{"a version that is in use, and no handshake", many, func(b []byte) []byte {
			dest, src := idsOf(b)
			return negotiation(0x80, src, dest, v1)
		}, "the handshake was not over after 256 datagrams"},
		{"other versions", 1, func(b []byte) []byte {
			dest, src := idsOf(b)
			return negotiation(0x80, src, dest, draft)
		}, "the member speaks version 0xff00001d of QUIC; expected: 1 or 2"},
		{"a Retry with another tag", many, func(b []byte) []byte {
			dest, src := idsOf(b)
			r := negotiation(0xf0, src, dest, "token"+strings.Repeat("x", 16))
			r[4] = 1
			return r
		}, "the handshake was not over after 256 datagrams"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, to := udpSocket(t)
			var over sync.WaitGroup
			over.Go(func() {
				b := make([]byte, 2*quicMinimum)
				for {
					n, from, err := p.ReadFromUDP(b)
					if err != nil {
						return
					}
					for range c.times {
						p.WriteToUDP(c.answer(b[:n]), from)
					}
				}
			})
			_, err := shakeHands(t.Context(), &spec.ClientTLS{NoVerify: true}, to)
			if text(err) != c.want {
				t.Errorf("%q, want %q", text(err), c.want)
			}
			p.Close()
			over.Wait()
		})
	}
}

// Nobody is there, or somebody who says nothing.
func TestQUICHandshakeSilence(t *testing.T) {
	p, to := udpSocket(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p.ReadFrom(make([]byte, 2*quicMinimum))
		cancel() // as the end of the check's time
	}()
	if _, err := shakeHands(ctx, &spec.ClientTLS{NoVerify: true}, to); text(err) != "no answer (i/o timeout); expected: a handshake of QUIC" {
		t.Error(err)
	}
	p.Close()
	if _, err := shakeHands(t.Context(), &spec.ClientTLS{NoVerify: true}, to); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody: %v", err)
	}
}

// Package quic may still write when the failure is explained: its Close waits only for who reads. This is for the race detector.
func TestQUICHandshakeLateWrite(t *testing.T) {
	own, peer := net.Pipe()
	defer peer.Close()
	own.Close()
	s := &quicSocket{Conn: own}
	var late sync.WaitGroup
	late.Go(func() { s.WriteTo([]byte("closed"), nil) })
	if err := s.explain(context.DeadlineExceeded, true, nil); err.Error() != "no answer (i/o timeout); expected: a handshake of QUIC" && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	late.Wait()
}

// Whatever a member says, a check is over when its datagrams are, and its error is a short line.
func FuzzQUICHandshake(f *testing.F) {
	f.Add([]byte("\x80\x00\x00\x00\x00"), []byte("\xff\x00\x00\x1d"))
	f.Add([]byte("\xc0\x00\x00\x00\x01"), []byte("\x00\x00\x00\x01"))
	f.Add([]byte("\xf0\x00\x00\x00\x01"), []byte("0123456789abcdef"))
	f.Add([]byte("\x40"), []byte{})
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		own, peer := net.Pipe()
		defer peer.Close()
		go func() {
			b := make([]byte, 2*quicMinimum)
			n, err := peer.Read(b)
			if err != nil {
				return
			}
			go func() { // as a network that loses them
				for b := make([]byte, 2*quicMinimum); err == nil; {
					_, err = peer.Read(b)
				}
			}()
			dest, src := idsOf(b[:n])
			for i := range maxQUICAnswers {
				answer := bytes.Clone(head)
				if i%2 == 0 { // to the client's own ID
					answer = negotiation(0x80, src, dest, string(rest))
					copy(answer, head[:min(5, len(head))])
				}
				peer.Write(answer)
			}
		}()
		g := &spec.Group{Check: &spec.Check{Kind: "quic", TLS: &spec.ClientTLS{NoVerify: true}, Timeout: longEnough}}
		p := newProber(nil)
		ctx, cancel := context.WithTimeout(t.Context(), longEnough)
		defer cancel()
		err := p.quicHandshake(ctx, own, g.Check.TLS, &probed{group: g, host: "web.example"}, &finding{})
		own.Close()
		if err == nil || len(err.Error()) > 400 || ctx.Err() != nil {
			t.Errorf("%x %x: %v", head, rest, err)
		}
	})
}

// Many members are checked at the same time, and nothing is left.
func TestQUICHandshakeMany(t *testing.T) {
	ca, file := authority(t)
	p, to := udpSocket(t)
	quicServers["quic-go"](t, p, &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "web.example").TLS()}, NextProtos: []string{"h3"}})
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, err := shakeHands(t.Context(), &spec.ClientTLS{CA: file}, to); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
