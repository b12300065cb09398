package relay

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/loop"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// eachSecure runs a behaviour with each side whose TLS begins or ends here: its end, with a socket that takes little at
// once, and the other one.
func eachSecure(t *testing.T, behaviour func(t *testing.T, r *rig, side int, a *tls.Conn, b net.Conn)) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for side := range 2 {
			if side == sideClient && !x.terminate || side == sideUpstream && !x.originate {
				continue
			}
			t.Run(fmt.Sprintf("side=%d", side), func(t *testing.T) {
				r := newRig(t, Config{})
				a, b := x.ends(t, r, "tcp4", "tcp4")
				say(t, a, b, "up")
				say(t, b, a, "down")
				if side == sideUpstream {
					a, b = b, a
				}
				for _, c := range []net.Conn{a, b} {
					rawOf(c).SetReadBuffer(64 << 10)
				}
				behaviour(t, r, side, a.(*tls.Conn), b)
			})
		}
	})
}

// rawOf is the socket of an end.
func rawOf(c net.Conn) *net.TCPConn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return c.(*net.TCPConn)
}

// What is sent to a peer that has ended arrives, although the peer has sent something behind its close_notify.
func TestTLSUnreadBehindEnd(t *testing.T) {
	const n = 512 << 10
	eachSecure(t, func(t *testing.T, r *rig, side int, a *tls.Conn, b net.Conn) {
		closeWrite(t, a)
		wantEnd(t, b)
		rawOf(a).SetWriteDeadline(time.Time{}) // which CloseWrite sets
		if _, err := io.WriteString(rawOf(a), "this is not TLS"); err != nil {
			t.Fatal(err)
		}
		b.Write(make([]byte, n))
		closeWrite(t, b)
		r.expect(CauseEnd)
		if got, err := readToEnd(t, a); got != n || err != nil {
			t.Errorf("%d bytes of %d, and then %v", got, n, err)
		}
	})
}

// Nor does what follows a failure destroy what is sent, or the alert.
func TestTLSUnreadBehindFailure(t *testing.T) {
	const n = 512 << 10
	eachSecure(t, func(t *testing.T, r *rig, side int, a *tls.Conn, b net.Conn) {
		b.Write(make([]byte, n))
		testwait.Until(t, "all is in the socket", func() (all bool) {
			r.e.onLoops(func(f *Flow) { all = streamOf(f).half[1-side].Out > n })
			return all
		})
		garbage := append([]byte("this is not TLS"), make([]byte, 32<<10)...)
		leave := make(chan struct{})
		for _, l := range r.e.loops { // what comes after the end is reset
			entered := make(chan struct{})
			l.Post(loop.Request{Do: func() { close(entered); <-leave }})
			<-entered
		}
		rawOf(a).Write(garbage)
		testwait.Until(t, "all of it is at the relay", func() (all bool) {
			raw, _ := rawOf(a).SyscallConn()
			raw.Control(func(fd uintptr) { n, e := sys.Linux{}.WriteQueued(int(fd)); all = n == 0 && e == 0 })
			return all
		})
		close(leave)
		if rec := r.record(); rec.Cause != CauseClientTLS+Cause(side) {
			t.Errorf("cause %v", rec.Cause)
		}
		if got, err := readToEnd(t, a); got != n || err == nil || !strings.Contains(err.Error(), "remote error") {
			t.Errorf("%d bytes of %d, and then %v, want an alert", got, n, err)
		}
	})
}

// What came before a failure is delivered, although nothing can be sent the other way any more, or nothing more comes
// from there.
func TestTLSDeliversAfterFailure(t *testing.T) {
	const n = 512 << 10
	for _, failure := range []string{"garbage", "truncated"} {
		for _, then := range []string{"speaks", "ends"} {
			t.Run(failure+"/"+then, func(t *testing.T) {
				eachSecure(t, func(t *testing.T, r *rig, side int, a *tls.Conn, b net.Conn) {
					a.Write(make([]byte, n))
					if failure == "garbage" {
						rawOf(a).Write([]byte("this is not TLS"))
					} else {
						rawOf(a).Close()
					}
					testwait.Until(t, "the failure is noticed", func() (noticed bool) {
						r.e.onLoops(func(f *Flow) { noticed = f.owner.(*streams).of(f).cause != CauseNone })
						return noticed || len(r.records) > 0
					})
					if then == "speaks" {
						b.Write([]byte("once"))
						r.e.onLoops(func(*Flow) {})
						b.Write([]byte("twice"))
					} else {
						closeWrite(t, b)
					}
					r.e.onLoops(func(*Flow) {})
					r.e.onLoops(func(*Flow) {})
					if got, err := readToEnd(t, b); got != n || err == nil {
						t.Errorf("%d bytes of %d, and then %v, want a reset", got, n, err)
					}
					r.record()
				})
			})
		}
	}
}

// The last flight of a handshake arrives, although it does not fit into the socket at once, and nothing can be relayed yet.
func TestTLSLastFlight(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			r := newRig(t, Config{Loops: 1})
			x := &encryption{terminate: true, version: version}
			cfg := x.config()
			server := serverTLS(version)
			server.ClientAuth = tls.RequestClientCert // which its tickets have, too
			cfg.Hooks.Sniff = func(f *Flow, b []byte, last bool) (int, SniffNext) {
				if f.Terminate(server) != nil {
					return 0, SniffRefuse
				}
				return 0, SniffDone
			}
			cfg.Hooks.Upstream = func(f *Flow, _ int) *Addr {
				f.Queue()
				return nil
			}
			cfg.Socket.SendBuffer = 4 << 10
			raw := dial(t, r.listen("tcp4", cfg))
			rawOf(raw).SetReadBuffer(4 << 10)
			held := &patient{Conn: raw, after: make(chan struct{})}
			client := clientTLS()
			client.Certificates = []tls.Certificate{largeCertificate(t)}
			cache := &noting{ClientSessionCache: tls.NewLRUClientSessionCache(1), put: make(chan struct{}, 1)}
			client.ClientSessionCache = cache
			c := tls.Client(held, client)
			c.SetDeadline(time.Now().Add(patience))
			done := make(chan error, 2)
			go func() {
				done <- c.Handshake()
				_, err := c.Read(make([]byte, 1)) // the tickets of TLS 1.3
				done <- err
			}()
			testwait.Until(t, "the flow is queued", func() bool {
				all := list(r.e)
				return len(all) == 1 && all[0].State == stats.StateQueued
			})
			close(held.after)
			if err := <-done; err != nil {
				t.Error(err)
			}
			select {
			case <-cache.put:
			case err := <-done:
				t.Error("no ticket: ", err)
			}
			reset(t, raw)
			r.expect(CauseClientGone)
		})
	}
}

// patient does not read what comes in answer to the client's second flight before after is closed.
type patient struct {
	net.Conn
	writes int
	after  chan struct{}
}

func (h *patient) Write(p []byte) (int, error) {
	h.writes++
	return h.Conn.Write(p)
}

func (h *patient) Read(p []byte) (int, error) {
	if h.writes > 1 {
		<-h.after
	}
	return h.Conn.Read(p)
}

// noting says when a session is put into it.
type noting struct {
	tls.ClientSessionCache
	put chan struct{}
}

func (n *noting) Put(key string, s *tls.ClientSessionState) {
	select {
	case n.put <- struct{}{}:
	default:
	}
}

// largeCertificate is a client's that makes tickets large.
func largeCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	one, _ := certificate()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(24 * time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, 48<<10)}},
	}
	der, err := x509.CreateCertificate(nil, template, template, one.Leaf.PublicKey, one.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: one.PrivateKey}
}
