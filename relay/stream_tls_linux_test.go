package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/datapath"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testkernel"
	"github.com/penstock/penstock/internal/testnet"
	"github.com/penstock/penstock/internal/testwait"
	"github.com/penstock/penstock/relay/stats"
)

// Both directions carry every byte, whatever its pieces, and each ends by itself.
func TestTLS(t *testing.T) {
	const most = 3 << 20
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, pair := range pairs {
			for _, chunk := range []int{1, 1000, 100_000} {
				size := int64(min(most, chunk*300))
				if pair != pairs[0] && (chunk != 1000 || version != tls.VersionTLS13) {
					continue // what differs is how a socket is read
				}
				t.Run(fmt.Sprintf("%s/client=%s/upstream=%s/chunk=%d", tls.VersionName(version), pair[0], pair[1], chunk), func(t *testing.T) {
					if testing.Short() && (pair != pairs[0] || version == tls.VersionTLS12) {
						t.Skip("short")
					}
					eachEncryption(t, func(t *testing.T, x *encryption) {
						r := newRig(t, Config{})
						x.version = version
						a, b := x.ends(t, r, pair[0], pair[1])
						play(t, a, b,
							testnet.Script{Send: size, SendSeed: 1, SendChunk: chunk, Recv: 2 * size, RecvSeed: 2, RecvChunk: chunk},
							testnet.Script{Send: 2 * size, SendSeed: 2, SendChunk: chunk, Recv: size, RecvSeed: 1})
						rec := r.expect(CauseEnd)
						if rec.Up.Written != size || rec.Down.Written != 2*size || rec.Up.Path != datapath.Copy || rec.Up.Why != datapath.WhyTLS {
							t.Errorf("%+v", rec)
						}
						for _, d := range []*stats.TLS{rec.ClientTLS, rec.UpstreamTLS} {
							if d != nil && (d.Version != version || d.CipherSuite == 0 || d.ServerName != "test.example" || d.Protocol != "test" ||
								d.Received <= size || d.Sent <= size || d.Handshake <= 0) {
								t.Errorf("%+v", d)
							}
						}
						if (rec.ClientTLS != nil) != x.terminate || (rec.UpstreamTLS != nil) != x.originate {
							t.Errorf("client %v, upstream %v", rec.ClientTLS, rec.UpstreamTLS)
						}
					})
				})
			}
		}
	}
}

// A direction that has ended leaves the other one open, without and with TLS.
func TestTLSHalfClose(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for _, first := range []string{"client", "upstream"} {
			t.Run(first, func(t *testing.T) {
				r := newRig(t, Config{})
				a, b := x.ends(t, r, "tcp4", "tcp4")
				say(t, a, b, "up")
				say(t, b, a, "down")
				if first == "upstream" {
					a, b = b, a
				}
				closeWrite(t, a)
				wantEnd(t, b)
				for range 3 {
					say(t, b, a, "still open")
				}
				closeWrite(t, b)
				wantEnd(t, a)
				r.expect(CauseEnd)
			})
		}
	})
}

// A reader that stops stops the writer, and loses nothing; what is held is bounded.
func TestTLSSlowReader(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for _, direction := range []string{"up", "down"} {
			t.Run(direction, func(t *testing.T) {
				r := newRig(t, Config{Loops: 1})
				a, b := x.ends(t, r, "tcp4", "tcp4")
				if direction == "down" {
					a, b = b, a
				}
				const size = 24 << 20
				sent := make(chan testnet.Report, 1)
				go func() { sent <- testnet.Play(a, testnet.Script{Send: size, SendSeed: 3, Recv: 0}) }()
				var before int64
				still := 0
				testwait.Until(t, "the writer stops", func() bool {
					var now int64
					r.e.onLoops(func(f *Flow) { tr := f.owner.transfer(f, up); now += tr.Read + f.owner.transfer(f, down).Read })
					if still++; now == 0 || now != before {
						still = 0
					}
					before = now
					return still > 40
				})
				var held int64
				for _, s := range r.e.streams.all {
					r.e.onLoops(func(f *Flow) { user, _, _ := s.memory(s.of(f)); held += user })
				}
				if held > 512<<10 {
					t.Errorf("%d bytes are held", held)
				}
				if got := testnet.Play(b, testnet.Script{Recv: size, RecvSeed: 3}); got.Err != "" {
					t.Errorf("reader: %+v", got)
				}
				if got := <-sent; got.Err != "" {
					t.Errorf("writer: %+v", got)
				}
				r.expect(CauseEnd)
			})
		}
	})
}

// A connection that ends without close_notify is not an end: the other side sees that bytes may be missing, after all
// that came before.
func TestTLSTruncated(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for side, cause := range []Cause{CauseClientTruncated, CauseUpstreamTruncated} {
			if side == sideClient && !x.terminate || side == sideUpstream && !x.originate {
				continue
			}
			for _, size := range []int{0, 100, 1 << 20} {
				t.Run(fmt.Sprintf("side=%d/bytes=%d", side, size), func(t *testing.T) {
					r := newRig(t, Config{})
					a, b := x.ends(t, r, "tcp4", "tcp4")
					if side == sideUpstream {
						a, b = b, a
					}
					go func() {
						a.Write(make([]byte, size))
						closeWrite(t, a.(*tls.Conn).NetConn())
					}()
					b.SetReadDeadline(time.Now().Add(patience))
					n, err := io.Copy(io.Discard, b)
					if int(n) != size || err == nil {
						t.Errorf("%d bytes of %d, and then %v", n, size, err)
					}
					if rec := r.expect(cause); rec.Err == nil || !strings.Contains(rec.Err.Error(), "close_notify") {
						t.Errorf("error %v", rec.Err)
					}
				})
			}
		}
	})
}

// Once a side has been told that no more comes, many only close their connection.
func TestTLSLazyEnd(t *testing.T) {
	x := &encryption{terminate: true}
	r := newRig(t, Config{})
	a, b := x.ends(t, r, "tcp4", "tcp4")
	say(t, a, b, "question")
	say(t, b, a, "answer")
	closeWrite(t, b)
	wantEnd(t, a)
	a.(*tls.Conn).NetConn().Close()
	wantEnd(t, b)
	r.expect(CauseEnd)
}

// A record that was damaged is the end of its flow. What came before it is delivered; nothing of it, and no clean end.
func TestTLSDamaged(t *testing.T) {
	x := &encryption{terminate: true}
	for _, what := range []string{"garbage", "plain text", "a damaged record", "a long record"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, Config{})
			s := newServer(t, "tcp4")
			raw := dial(t, r.listen("tcp4", x.config(), s.addr))
			through := &damaging{Conn: raw}
			a := tls.Client(through, clientTLS())
			go a.Handshake()
			b := s.accept(t)
			say(t, a, b, "before")
			switch what {
			case "garbage":
				raw.Write([]byte("\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"))
			case "plain text":
				io.WriteString(raw, "GET / HTTP/1.1\r\n\r\n")
			case "a damaged record":
				through.damage = true
				a.Write([]byte("secret"))
			case "a long record":
				raw.Write([]byte{23, 3, 3, 0xff, 0xff})
			}
			n, err := readToEnd(t, b)
			if n != 0 || err == nil {
				t.Errorf("%d bytes, and then %v", n, err)
			}
			a.SetReadDeadline(time.Now().Add(patience))
			if _, err := a.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "remote error") {
				t.Errorf("the client was told %v, want an alert", err)
			}
			if rec := r.expect(CauseClientTLS); rec.Err == nil {
				t.Error("no error")
			}
		})
	}
}

// damaging changes a bit of what is written.
type damaging struct {
	net.Conn
	damage bool
}

func (d *damaging) Write(p []byte) (int, error) {
	if d.damage {
		p = append([]byte(nil), p...)
		p[len(p)-1] ^= 1
	}
	return d.Conn.Write(p)
}

// A handshake that fails ends the flow, tells the client why, and the hook.
func TestTLSHandshakeFails(t *testing.T) {
	for name, change := range map[string]func(*tls.Config){
		"version":  func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 },
		"protocol": func(c *tls.Config) { c.NextProtos = []string{"other"} },
	} {
		t.Run(name, func(t *testing.T) {
			x := &encryption{terminate: true, version: tls.VersionTLS12}
			r := newRig(t, Config{})
			c := dial(t, r.listen("tcp4", x.config()))
			cfg := clientTLS()
			change(cfg)
			if err := tls.Client(c, cfg).Handshake(); err == nil || !strings.Contains(err.Error(), "remote error") {
				t.Errorf("client: %v", err)
			}
			wantEnd(t, c) // not a reset, which would destroy the alert
			rec := r.expect(CauseClientTLS)
			if rec.Err == nil || len(x.errs) != 1 || x.errs[0] == nil || x.states[0] != nil || rec.Attempts != 0 {
				t.Errorf("%v; hook %v", rec, x.errs)
			}
		})
	}
}

// The hook can refuse a client for what its certificate says, for instance.
func TestTLSRefused(t *testing.T) {
	x := &encryption{terminate: true, answer: CauseRefused}
	r := newRig(t, Config{})
	c := tls.Client(dial(t, r.listen("tcp4", x.config())), clientTLS())
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err == nil {
		t.Error("a clean end")
	}
	r.expect(CauseRefused)
}

// A client that says nothing more, or leaves, in its handshake.
func TestTLSHandshakeStops(t *testing.T) {
	for what, cause := range map[string]Cause{"silent": CauseClientTLS, "leaves": CauseClientGone, "resets": CauseClientGone, "is killed": CauseKilled, "engine closes": CauseClosed} {
		t.Run(what, func(t *testing.T) {
			x := &encryption{terminate: true, timeout: time.Minute}
			if what == "silent" {
				x.timeout = 200 * time.Millisecond
			}
			r := newRig(t, Config{})
			c := dial(t, r.listen("tcp4", x.config()))
			c.Write(helloOf(t))
			if what == "silent" {
				r.expect(cause)
				return
			}
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil { // it waits for the client's second flight
				t.Fatal(err)
			}
			switch what {
			case "leaves":
				c.Close()
			case "resets":
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			case "is killed":
				r.e.Flows(func(all []FlowInfo) bool {
					if len(all) == 1 && all[0].State != stats.StateHandshake {
						t.Errorf("state %s", all[0].State)
					}
					for _, f := range all {
						go r.e.Kill(f.ID, CauseKilled)
					}
					return true
				})
			case "engine closes":
				r.e.Close()
			}
			r.expect(cause)
		})
	}
}

// helloOf returns a ClientHello.
func helloOf(t *testing.T) []byte {
	t.Helper()
	a, b := net.Pipe()
	go tls.Client(a, clientTLS()).Handshake()
	defer a.Close()
	defer b.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(b, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(b, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// No more handshakes are under way than there may be; the others wait.
func TestTLSHandshakesBounded(t *testing.T) {
	x := &encryption{terminate: true, timeout: time.Minute}
	r := newRig(t, Config{Loops: 1, MaxHandshakes: 2})
	l := r.listen("tcp4", x.config(), &Addr{Network: Echo})
	var silent []net.Conn
	for range 2 {
		c := dial(t, l)
		c.Write(helloOf(t))
		io.ReadFull(c, make([]byte, 5))
		silent = append(silent, c)
	}
	c := tls.Client(dial(t, l), clientTLS())
	done := make(chan error, 1)
	go func() { done <- c.Handshake() }()
	testwait.Until(t, "the third waits", func() bool {
		n := 0
		r.e.onLoops(func(f *Flow) { n = r.e.streams.all[0].tlsLoop.later.len() })
		return n == 1
	})
	silent[0].Close()
	r.expect(CauseClientGone)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	say(t, c, c, "hello")
	c.Close()
	r.expect(CauseEnd)
	silent[1].Close()
	r.expect(CauseClientGone)
}

// Clients that do not go on with their handshakes keep others out for a moment only.
func TestTLSHandshakesCrowded(t *testing.T) {
	x := &encryption{terminate: true, timeout: time.Hour}
	r := newRig(t, Config{Loops: 1, MaxHandshakes: 2})
	l := r.listen("tcp4", x.config(), &Addr{Network: Echo})
	for range 4 {
		dial(t, l).Write(helloOf(t))
	}
	c := tls.Client(dial(t, l), clientTLS())
	c.SetDeadline(time.Now().Add(patience))
	say(t, c, c, "hello")
	c.Close()
	for left := 0; ; left++ { // the first two after their second, and then one of the others
		if rec := r.record(); rec.Cause == CauseEnd {
			if left != 3 {
				t.Errorf("%d have left for the last client, want 3", left)
			}
			break
		} else if rec.Cause != CauseClientTLS {
			t.Errorf("cause %v", rec.Cause)
		}
	}
}

// No more of them leave than others wait, however long it takes until they have.
func TestTLSHandshakesLeave(t *testing.T) {
	x := &encryption{terminate: true, timeout: time.Hour}
	r := newRig(t, Config{Loops: 1, MaxHandshakes: 8})
	l := r.listen("tcp4", x.config(), &Addr{Network: Echo})
	for range 8 {
		c := dial(t, l)
		c.Write(helloOf(t))
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil { // it waits for the client's second flight
			t.Fatal(err)
		}
	}
	computing := r.e.streams.computing.Limit
	for range cap(computing) {
		computing <- struct{}{} // none can end
	}
	c := tls.Client(dial(t, l), clientTLS())
	c.SetDeadline(time.Now().Add(patience))
	done := make(chan error, 1)
	go func() { done <- said(c, c, "hello") }()
	r.expect(CauseClientTLS)
	for range 50 {
		r.e.onLoops(func(*Flow) {})
	}
	for range cap(computing) {
		<-computing
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.Close()
	r.expect(CauseEnd)
}

// An upstream whose handshake fails is an attempt that failed.
func TestTLSNextUpstream(t *testing.T) {
	for _, what := range []string{"not TLS", "other name", "silent", "ends"} {
		t.Run(what, func(t *testing.T) {
			x := &encryption{originate: true, timeout: time.Minute}
			if what == "silent" {
				x.timeout = 200 * time.Millisecond
			}
			r := newRig(t, Config{})
			bad, good := newServer(t, "tcp4"), newServer(t, "tcp4")
			cfg := x.config()
			originate := cfg.Hooks.Connected
			connected := 0
			cfg.Hooks.Connected = func(f *Flow, to *Addr, took time.Duration, err error) {
				if f.Preface([]byte("a header\n")) != nil {
					t.Error("no preface")
				}
				if connected++; connected == 2 { // only the first one is silent
					timeouts := f.Timeouts()
					timeouts.Handshake = time.Minute
					f.SetTimeouts(timeouts)
				}
				originate(f, to, took, err)
			}
			c := dial(t, r.listen("tcp4", cfg, bad.addr, good.addr))
			io.WriteString(c, "from the client")
			b := bad.accept(t)
			hear(t, b, "a header\n")
			switch what {
			case "not TLS":
				io.WriteString(b, "220 mail.example ESMTP\r\n")
			case "other name":
				config := serverTLS(0)
				config.NextProtos = []string{"other"}
				tls.Server(b, config).Handshake()
			case "ends":
				b.Close()
			}
			g := good.accept(t)
			hear(t, g, "a header\n")
			secure := tls.Server(g, serverTLS(0))
			hear(t, secure, "from the client")
			say(t, secure, c, "and back")
			c.Close()
			secure.Close()
			rec := r.record()
			if rec.Attempts != 2 || len(x.errs) != 2 || x.errs[0] == nil || x.errs[1] != nil || connected != 2 || rec.UpstreamTLS == nil {
				t.Errorf("%v; hook %v", rec, x.errs)
			}
			if what == "silent" && !errors.Is(x.errs[0], os.ErrDeadlineExceeded) {
				t.Errorf("error %v", x.errs[0])
			}
		})
	}
}

// If no upstream speaks TLS the cause says so.
func TestTLSNoUpstream(t *testing.T) {
	x := &encryption{originate: true}
	r := newRig(t, Config{})
	s := newServer(t, "tcp4")
	c := dial(t, r.listen("tcp4", x.config(), s.addr))
	b := s.accept(t)
	io.WriteString(b, "hello, what is your name?\n")
	if rec := r.expect(CauseUpstreamTLS); rec.Err == nil || !strings.Contains(rec.Err.Error(), "upstream") {
		t.Errorf("error %v", rec.Err)
	}
	wantReset(t, c)
}

// Short calls and calls that fail for a while change nothing.
func TestTLSFaults(t *testing.T) {
	eachEncryption(t, func(t *testing.T, x *encryption) {
		for seed := range uint64(4) {
			r := newRig(t, Config{})
			// Of a Unix socket a short read does not say that it is empty.
			network, short := "tcp4", []testkernel.Call{testkernel.Send}
			if seed%2 == 1 {
				network, short = "unix", append(short, testkernel.Recv)
			}
			a, b := x.ends(t, r, network, network)
			r.k.Random(seed, 3, map[testkernel.Call][]sys.Errno{
				testkernel.Recv: {sys.EINTR}, testkernel.Send: {sys.EINTR},
			}, short...)
			play(t, a, b, testnet.Script{Send: 300_000, SendSeed: 1, SendChunk: 7000, Recv: 300_000, RecvSeed: 2},
				testnet.Script{Send: 300_000, SendSeed: 2, SendChunk: 7000, Recv: 300_000, RecvSeed: 1})
			r.k.Heal()
			r.expect(CauseEnd)
		}
	})
}

// Where it does not belong, TLS is refused.
func TestTLSStage(t *testing.T) {
	r := newRig(t, Config{})
	wrong := make(chan error, 2)
	cfg := ListenConfig{}
	cfg.Hooks.Admit = func(f *Flow) Cause {
		wrong <- f.Terminate(serverTLS(0))
		wrong <- f.Originate(clientTLS())
		return CauseNone
	}
	dial(t, r.listen("tcp4", cfg, &Addr{Network: Echo})).Close()
	r.expect(CauseEnd)
	for range 2 {
		if err := <-wrong; !errors.Is(err, ErrStage) {
			t.Errorf("%v", err)
		}
	}
}
