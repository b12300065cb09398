package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"golang.org/x/net/quic"

	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/testcerts"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/relay"
)

var quicServers = map[string]func(*testing.T, net.PacketConn, *tls.Config){
	"golang.org/x/net/quic": func(t *testing.T, p net.PacketConn, c *tls.Config) {
		e, err := quic.NewEndpoint(p, &quic.Config{TLSConfig: c})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close(canceled()) })
	},
	"quic-go": func(t *testing.T, p net.PacketConn, c *tls.Config) {
		tr := &quicgo.Transport{Conn: p}
		l, err := tr.Listen(c, &quicgo.Config{HandshakeIdleTimeout: longEnough})
		if err != nil {
			t.Fatal(err)
		}
		go func() { // until the transport is closed
			for err == nil {
				_, err = l.Accept(context.Background())
			}
		}()
		t.Cleanup(func() {
			tr.Close()
			p.Close()
		})
	},
}

// canceled returns a context that has ended.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// udpSocket returns a socket that takes datagrams at an address of its own.
func udpSocket(t *testing.T) (*net.UDPConn, relay.Addr) {
	t.Helper()
	p, err := net.ListenPacket("udp", loopback+":"+testnet.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	return p.(*net.UDPConn), addrOf(p.LocalAddr())
}

// Servers of QUIC name their versions. Where nothing is, the kernel says so.
func TestProbeQUIC(t *testing.T) {
	server := &tls.Config{Certificates: []tls.Certificate{testcerts.Authority(t, "Test CA").Issue(t, "web.example").TLS()}, NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13}
	for name, serve := range quicServers {
		t.Run(name, func(t *testing.T) {
			p, to := udpSocket(t)
			serve(t, p, server)
			if err := ask(t, &spec.Check{Kind: "quic"}, 0, to, longEnough); err != nil {
				t.Error(err)
			}
		})
	}
	p, to := udpSocket(t)
	p.Close()
	if err := ask(t, &spec.Check{Kind: "quic"}, 0, to, longEnough); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody: %v", err)
	}
}

// negotiation is Version Negotiation from one connection ID to another. RFC 9000, 17.2.1.
func negotiation(first byte, to, from []byte, versions string) []byte {
	b := append([]byte{first, 0, 0, 0, 0, byte(len(to))}, to...)
	return append(append(append(b, byte(len(from))), from...), versions...)
}

// What members answer, to the IDs dest and src of the question.
func TestQUICAnswers(t *testing.T) {
	const v1, v2, draft, reserved = "\x00\x00\x00\x01", "\x6b\x33\x43\xcf", "\xff\x00\x00\x1d", "\x5a\x6a\x7a\x8a"
	const notQUIC = `the answer is "what?", which is not Version Negotiation of QUIC`
	garbage := []byte("what?")
	for _, c := range []struct {
		name    string
		answers func(dest, src []byte) [][]byte
		faulty  string
	}{
		{"version 1", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, d, v1)} }, ""},
		{"version 2, behind others", func(d, s []byte) [][]byte { return [][]byte{negotiation(0xff, s, d, reserved+draft+v2)} }, ""},
		{"behind what is somebody else's", func(d, s []byte) [][]byte {
			return [][]byte{{}, garbage, negotiation(0x80, s, s, draft), negotiation(0x80, s, d, v1)}
		}, ""},
		{"the IDs are not swapped", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, d, s, v1), garbage} }, notQUIC},
		{"another destination", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, d, d, v1), garbage} }, notQUIC},
		{"another source", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, s, v1), garbage} }, notQUIC},
		{"half a destination", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s[:4], d, v1), garbage} }, notQUIC},
		{"no IDs", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, nil, nil, v1), garbage} }, notQUIC},
		{"a short header", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x40, s, d, v1), garbage} }, notQUIC},
		{"an Initial", func(d, s []byte) [][]byte {
			b := negotiation(0xc0, s, d, v1)
			b[4] = 1
			return [][]byte{b, garbage}
		}, notQUIC},
		{"no versions", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, d, ""), garbage} }, notQUIC},
		{"a piece of a version", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, d, v1+"\x00"), garbage} }, notQUIC},
		{"other versions", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, d, draft+reserved+"Q050")} },
			"the member speaks version 0xff00001d, 0x51303530 of QUIC; expected: 1 or 2"},
		{"no version that is in use", func(d, s []byte) [][]byte { return [][]byte{negotiation(0x80, s, d, reserved)} },
			"the member speaks QUIC, but names no version that is in use; expected: 1 or 2"},
		{"the question", func(d, s []byte) [][]byte {
			return [][]byte{slices.Concat([]byte("\xc0\x0a\x0a\x0a\x0a\x08"), d, []byte("\x08"), s), garbage}
		}, notQUIC},
		{"nothing", func(d, s []byte) [][]byte { return nil },
			"no answer (read pipe: i/o timeout); expected: Version Negotiation of QUIC, which not every server sends (docs/quic.md)"},
		{"never the answer", func(d, s []byte) [][]byte { return slices.Repeat([][]byte{garbage}, 2*quicStrange) },
			`the answers are "what?" and the like, which are not Version Negotiation of QUIC`},
	} {
		own, peer := net.Pipe() // what is written is read as a whole
		done := make(chan struct{})
		go func() {
			defer close(done)
			b := make([]byte, 2*quicMinimum)
			n, _ := peer.Read(b)
			if b = b[:n]; n != 1200 || b[0] != 0xc0 || b[5] != 8 || b[14] != 8 || b[1]&0xf != 10 || b[2]&0xf != 10 || b[3]&0xf != 10 || b[4]&0xf != 10 {
				t.Errorf("%s: the question is %x", c.name, b)
				peer.Close()
				return
			}
			for _, answer := range c.answers(b[6:14], b[15:23]) {
				if _, err := peer.Write(answer); err != nil {
					return
				}
			}
			own.SetReadDeadline(time.Unix(1, 0)) // as the end of the check's time
		}()
		if err := quicCheck(own); text(err) != c.faulty {
			t.Errorf("%s: %v; want %q", c.name, err, c.faulty)
		}
		own.Close()
		<-done
		peer.Close()
	}
}

// No question has the IDs of another: who has not seen it cannot answer it.
func TestQUICQuestionsDiffer(t *testing.T) {
	a, b := newQUICQuestion(), newQUICQuestion()
	if bytes.Equal(a.dest, b.dest) || bytes.Equal(a.src, b.src) || bytes.Equal(a.dest, a.src) {
		t.Errorf("%x %x, %x %x", a.dest, a.src, b.dest, b.src)
	}
}

// Whatever a member of QUIC says, only Version Negotiation for the question is the answer, and an error is a short line.
func FuzzQUICVersions(f *testing.F) {
	f.Add([]byte(nil), []byte("\x00\x00\x00\x01"))
	f.Add([]byte("\x80\x00\x00\x00\x00\x08"), []byte("\x00\x00\x00\x01"))
	f.Add([]byte("\xff\x00\x00\x00\x00\x00\x00"), []byte("\x6b\x33\x43\xcf"))
	f.Fuzz(func(t *testing.T, head, versions []byte) {
		q := newQUICQuestion()
		if list, ok := q.versions(slices.Concat(head, versions)); ok { // 128 random bits
			t.Errorf("%x is an answer: %x", slices.Concat(head, versions), list)
		}
		list, ok := q.versions(negotiation(0x80, q.src, q.dest, string(versions)))
		if ok != (len(versions) > 0 && len(versions)%4 == 0) || ok && 4*len(list) != len(versions) {
			t.Errorf("%x: %x %v", versions, list, ok)
		}
		known := strings.Contains(string(versions), "\x00\x00\x00\x01") || strings.Contains(string(versions), "\x6b\x33\x43\xcf")
		if err := knownVersion(list); err == nil && !known || err != nil && len(err.Error()) > 200 {
			t.Errorf("%x: %v", list, err)
		}
	})
}
