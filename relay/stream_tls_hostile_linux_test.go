package relay

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// What a hook reads of a client without TLS, and a preface in front of it, become an upstream's preface in the clear, and
// then TLS.
func TestTLSPrefaceAfterSniffing(t *testing.T) {
	x := &encryption{originate: true}
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	cfg := x.config()
	cfg.Hooks.Admit = func(f *Flow) Cause {
		f.StartSniff(1000, time.Minute)
		return CauseNone
	}
	cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) { return 0, SniffDone }
	originate := cfg.Hooks.Connected
	cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
		f.Preface([]byte("a header\n"))
		originate(f, to, took, err)
	}
	c := dial(t, r.listen("tcp4", cfg, s.addr))
	io.WriteString(c, "a secret of the client")
	b := s.accept(t)
	hear(t, b, "a header\n")
	secure := tls.Server(b, serverTLS(0))
	hear(t, secure, "a secret of the client")
	say(t, secure, c, "and back")
	c.Close()
	secure.Close()
	r.expect(CauseEnd)
}

// A connection that ends within a record is no end, even if the peer was told that nothing more comes.
func TestTLSCutRecord(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for side, cause := range []Cause{CauseClientTruncated, CauseUpstreamTruncated} {
			if side == sideClient && !x.terminate || side == sideUpstream && !x.originate {
				continue
			}
			r := newRig(t, Config{})
			a, b := x.ends(t, r, "tcp4", "tcp4")
			if side == sideUpstream {
				a, b = b, a
			}
			closeWrite(t, b)
			wantEnd(t, a)
			a.(*tls.Conn).NetConn().Write([]byte{23, 3, 3, 1, 0, 1, 2, 3})
			closeWrite(t, a.(*tls.Conn).NetConn().(*net.TCPConn))
			wantReset(t, b)
			r.expect(cause)
		}
	})
}

// The cause is that of the last attempt.
func TestTLSLastAttemptRefused(t *testing.T) {
	x := &encryption{originate: true}
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	gone := &Addr{Network: Unix, Path: t.TempDir() + "/nobody"}
	dial(t, r.listen("tcp4", x.config(), s.addr, gone))
	s.accept(t).Close()
	r.expect(CauseNoUpstream)
}
